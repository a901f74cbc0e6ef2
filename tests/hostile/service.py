"""The served process with protocols that need no chain, and raw sockets to be rude to it."""

from __future__ import annotations

import contextlib
import json
import socket
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Final

import httpx
from eth_account import Account

from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port
from tests.faults.facilitator import FaultyFacilitator, ledger_only
from tests.judges.x402_buyer import Buyer

PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
START_SECONDS: Final = 30.0

NETWORK: Final = "eip155:84532"
CHAIN_ID: Final = 42431
PAYEE: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
CURRENCY: Final = "0x20c0000000000000000000000000000000000000"
SECOND_CURRENCY: Final = "0x20C000000000000000000000b9537d11c60E8b50"
MPP_KEY: Final = "a-secret-of-the-hostile-tests-0123456789"
PAYER: Final = Account.from_key("0x" + "42" * 32)

PATH: Final = "/v1/x402/ranking-evaluate"
MPP_PATH: Final = "/v1/mpp/ranking-evaluate"
BODY: Final = b'{"queries":[{"id":"q1","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'


class _Node(BaseHTTPRequestHandler):
    """A JSON-RPC node of a chain on which nobody holds anything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = {
            "eth_chainId": hex(CHAIN_ID),
            "eth_getTransactionByHash": None,
            "eth_getBlockByNumber": {
                "baseFeePerGas": "0x1",
                "gasLimit": "0x1dcd6500",
                "timestamp": hex(int(time.time())),
            },
            "eth_call": "0x0",
        }
        body = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": known[call["method"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def node() -> Iterator[str]:
    """Yield the URL of a node for the MPP protocol to be ready with."""
    server = ThreadingHTTPServer((LOOPBACK, 0), _Node)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Answer:
    """One raw answer; `status` is None when the connection was closed without one."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    closed: bool = False

    @property
    def code(self) -> str | None:
        is_problem = self.headers.get("content-type", "").startswith("application/problem+json")
        return str(json.loads(self.body)["code"]) if is_problem else None


@dataclass
class Service:
    """One process of the service."""

    processes: Processes
    name: str
    environment: Mapping[str, str]
    host: str = LOOPBACK
    open_files: str = ""
    """The soft and the hard limit of open files, such as 1024/4096, where they are not this process's."""
    port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    program: tuple[str | Path, ...] = (PROGRAM,)

    @property
    def origin(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.processes.log_path(self.name)

    @property
    def pid(self) -> int:
        return self.processes._running[self.name].pid

    def start(self, path: str = "/readyz") -> None:
        """Start it, and wait until this path answers 200."""
        command: list[str | Path] = [*self.program, "serve", "--host", self.host, "--port", str(self.port)]
        if self.open_files:
            soft, _, hard = self.open_files.partition("/")
            command = ["/bin/sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@"', *command]
        environment = {**self.environment, "RANKING_EVALUATE_METRICS_PORT": str(self.metrics_port)}
        self.processes.start(self.name, command, environment)
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.processes.check()
            with contextlib.suppress(httpx.TransportError), httpx.Client(trust_env=False) as client:
                if client.get(self.origin + path).status_code == 200:
                    return
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def end(self, *, kill: bool = False) -> None:
        self.processes.end(self.name, kill=kill)

    def connect(self, timeout: float = 20.0) -> socket.socket:
        return socket.create_connection((LOOPBACK, self.port), timeout)

    def send(self, data: bytes, *, wait: float = 20.0) -> Answer:
        """Send bytes, read one answer, and tell whether the connection was closed after it."""
        with self.connect(wait) as connection:
            # A connection may be closed while we still send.
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            return read_answer(connection)

    def metrics(self) -> dict[str, float]:
        """Return every sample that the operator's port shows, by its name with its labels."""
        with httpx.Client(trust_env=False) as client:
            text = client.get(f"http://{LOOPBACK}:{self.metrics_port}/metrics").text
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def memory(self) -> int:
        """Return the resident bytes of the process."""
        return resident(self.pid)


def resident(pid: int) -> int:
    """Return the resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def read_answer(source: socket.socket | IO[bytes]) -> Answer:
    """Return the next answer on a connection, and nothing of what follows it."""
    answer = Answer()
    reader = source.makefile("rb", buffering=0) if isinstance(source, socket.socket) else source
    # A connection that is reset ends like one that is closed.
    with contextlib.suppress(ConnectionError):
        status_line = reader.readline()
        if status_line:
            answer.status = int(status_line.split()[1])
            while line := reader.readline().rstrip(b"\r\n"):
                name, _, value = line.decode("latin-1").partition(": ")
                answer.headers[name.lower()] = value
            while missing := int(answer.headers.get("content-length", "0")) - len(answer.body):
                more = reader.read(missing)
                if not more:
                    break
                answer.body += more
            if answer.headers.get("connection") != "close":
                return answer
            answer.closed = reader.read(1) == b""
            return answer
    answer.closed = True
    return answer


def request(
    *lines: str | bytes, method: str = "POST", path: str = PATH, body: bytes = BODY, version: str = "1.1"
) -> bytes:
    """Return the bytes of a request with exactly these header lines, and a Content-Length unless one of them has it."""
    encoded = [line.encode() if isinstance(line, str) else line for line in lines]
    if not any(line.lower().startswith((b"content-length:", b"transfer-encoding:")) for line in encoded):
        encoded.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join([f"{method} {path} HTTP/{version}".encode(), *encoded])
    return head + b"\r\n\r\n" + body


HOST: Final = "Host: a"
JSON: Final = "Content-Type: application/json"
KEY: Final = "8e03978e-40d5-43e8-bc93-6894a57f9324"
KEY_LINE: Final = f"Idempotency-Key: {KEY}"
GOOD: Final = (HOST, JSON, KEY_LINE)


@dataclass
class Neighbourhood:
    """A place to start services in, with a facilitator and a node."""

    processes: Processes
    facilitator: FaultyFacilitator
    node_url: str

    def service(self, name: str, *, host: str = LOOPBACK, open_files: str = "", **settings: str) -> Service:
        """Return a service with both protocols, not started; the rates are off unless they are set."""
        given = {
            "DATABASE_URL": f"sqlite:///{self.processes.directory / name}.db",
            "X402_PAY_TO": PAYEE,
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": self.facilitator.url,
            "MPP_RECIPIENT": PAYEE,
            "MPP_CHAIN_ID": str(CHAIN_ID),
            "MPP_RPC_URL": self.node_url,
            # As many as can be: the heads of its 402s are the longest.
            "MPP_CURRENCY": f"{CURRENCY},{SECOND_CURRENCY}",
            "MPP_SECRET_KEY": MPP_KEY,
            "REQUEST_RATE": "",
            "PAYMENT_RATE": "",
            **settings,
        }
        environment = {f"RANKING_EVALUATE_{key}": value for key, value in given.items()}
        return Service(self.processes, name, environment, host, open_files)

    @contextlib.contextmanager
    def running(self, name: str, *, host: str = LOOPBACK, open_files: str = "", **settings: str) -> Iterator[Service]:
        service = self.service(name, host=host, open_files=open_files, **settings)
        service.start()
        try:
            yield service
        finally:
            service.end(kill=True)


OTHER_NETWORKS: Final = ("eip155:11155111", "eip155:80002", "eip155:43113", "eip155:31337")
"""Networks that the facilitator serves beside NETWORK, for a service that is set up to take them."""


@contextlib.contextmanager
def neighbourhood() -> Iterator[Neighbourhood]:
    processes = Processes()
    try:
        with FaultyFacilitator(ledger_only(NETWORK, *OTHER_NETWORKS)) as facilitator, node() as url:
            yield Neighbourhood(processes, facilitator, url)
    finally:
        processes.stop()


@contextlib.contextmanager
def buyer(service: Service) -> Iterator[Buyer]:
    """Yield a buyer over x402 whose signatures the facilitator believes."""
    with httpx.Client(base_url=service.origin, trust_env=False, timeout=30) as client:
        yield Buyer(client, "0x" + "42" * 32, BODY)
