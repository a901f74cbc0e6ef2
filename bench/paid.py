"""Paid calls against an instant local facilitator: this service beside the x402 SDK's own FastAPI middleware.

The middleware stands around a handler that returns a constant and keeps no record; this service evaluates, and commits
three times to disk. Both are one uvicorn process with uvloop and httptools, both ask the same facilitator process, and
their requests alternate. The facilitator does not look at signatures and answers at once, so what is timed, from the
request's first byte to the answer's last, is the servers' own time with their side of the two facilitator calls in it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from bench.jobs import TYPICAL
from bench.timing import Timed, percentile
from ranking_evaluate import evaluate
from ranking_evaluate.contract.discovery import input_of

NETWORK = "eip155:84532"
ASSET = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
PAYEE = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
PAYER = "0x" + "42" * 20
PATH = "/v1/x402/ranking-evaluate"
OURS, STOCK = "ranking-evaluate", "stock x402 middleware"
LOOPBACK = "127.0.0.1"
CLIENTS = 50


# The three processes.


class _Facilitator(asyncio.Protocol):
    """Answers every call at once: it supports what is asked, every payment is valid, every payment is settled."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._received = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, rest = self._received.partition(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if len(rest) < length:
                return
            self._received = rest[length:]
            answer = _answer(head.split(b" ", 2)[1], rest[:length])
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(answer), answer)
            )


def _answer(path: bytes, _: bytes) -> bytes:
    said: dict[str, object] = {"isValid": True, "payer": PAYER}
    if path == b"/supported":
        kind = {"x402Version": 2, "scheme": "exact", "network": NETWORK}
        said = {"kinds": [kind], "extensions": [], "signers": {"eip155:*": [PAYEE]}}
    elif path == b"/settle":
        said = {"success": True, "transaction": "0x" + secrets.token_hex(32), "network": NETWORK, "payer": PAYER}
    return json.dumps(said).encode()


async def _serve_facilitator(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Facilitator, LOOPBACK, port)
    await server.serve_forever()


def _serve_stock(port: int, facilitator: str) -> None:
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from x402 import AssetAmount, x402ResourceServer
    from x402.extensions.bazaar import declare_discovery_extension
    from x402.extensions.payment_identifier import PAYMENT_IDENTIFIER, declare_payment_identifier_extension
    from x402.http import FacilitatorConfig, HTTPFacilitatorClient, PaymentOption, RouteConfig
    from x402.http.middleware.fastapi import payment_middleware
    from x402.mechanisms.evm.exact import ExactEvmServerScheme

    server = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=facilitator)))
    scheme: Any = ExactEvmServerScheme()  # type: ignore[no-untyped-call]  # The SDK's scheme is not annotated.
    server.register(NETWORK, scheme)
    price = AssetAmount(amount="10000", asset=ASSET, extra={"name": "USDC", "version": "2"})
    option = PaymentOption(scheme="exact", pay_to=PAYEE, price=price, network=NETWORK)
    # It announces what this service announces: the payment identifier, and the input with its schema.
    announced = input_of("ranking-evaluate")
    extensions = {
        PAYMENT_IDENTIFIER: declare_payment_identifier_extension(required=True),
        **declare_discovery_extension(
            input=dict(announced.example), input_schema=announced.schemas[-1], body_type="json"
        ),
    }
    route = RouteConfig(accepts=[option], mime_type="application/json", extensions=extensions)
    middleware = payment_middleware({f"POST {PATH}": route}, server)
    constant = evaluate("ranking-evaluate", TYPICAL.body)
    app = FastAPI()

    @app.middleware("http")
    async def pay(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await middleware(request, call_next)

    @app.post(PATH)
    async def handler() -> Response:
        return Response(constant, media_type="application/json")

    uvicorn.run(app, host=LOOPBACK, port=port, log_level="error", access_log=False, loop="uvloop", http="httptools")


@contextmanager
def servers(parent: str | None = None) -> Iterator[dict[str, int]]:
    """Yield the ports of both servers, each a process of its own; the database stands in a new directory there."""
    with tempfile.TemporaryDirectory(dir=parent) as directory, ExitStack() as running:
        facilitator, ours, stock = (free_port() for _ in range(3))
        url = f"http://{LOOPBACK}:{facilitator}"

        def start(*command: str, **environment: str) -> None:
            log = running.enter_context((Path(directory) / f"{len(command)}-{secrets.token_hex(4)}.log").open("w"))
            process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
            running.callback(_end, process)

        module = (sys.executable, "-m", "bench.paid")
        start(*module, "facilitator", str(facilitator))
        _wait_for(facilitator)
        settings = {
            "DATABASE_URL": f"sqlite:///{directory}/attempts.db",
            "X402_PAY_TO": PAYEE,
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": url,
            "REQUEST_RATE": "",
            "PAYMENT_RATE": "",
        }
        program = str(Path(sysconfig.get_path("scripts")) / "ranking-evaluate")
        start(
            program,
            "serve",
            "--port",
            str(ours),
            **{f"RANKING_EVALUATE_{name}": text for name, text in settings.items()},
        )
        start(*module, "stock", str(stock), url)
        _wait_for(ours)
        _wait_for(stock)
        yield {OURS: ours, STOCK: stock}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(20)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


# The buyer.


class Caller:
    """Makes paid and unpaid requests of one server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._required: dict[str, Any] = {}

    def learn(self) -> None:
        """Ask for the terms once, as any client does."""
        with socket.create_connection((LOOPBACK, self.port), 10) as connection:
            connection.sendall(self.unpaid())
            head, _ = _receive(connection)
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            if name.lower() == b"payment-required":
                self._required = json.loads(base64.b64decode(value))

    def unpaid(self) -> bytes:
        """Return a request without a payment, under a new key."""
        return self._request(secrets.token_hex(16))

    def paid(self) -> bytes:
        """Return a request with a new payment; nobody here looks at its signature."""
        key, now, required = secrets.token_hex(16), int(time.time()), self._required
        [accepted] = required["accepts"]
        extensions = json.loads(json.dumps(required.get("extensions") or {}))
        if "payment-identifier" in extensions:
            extensions["payment-identifier"]["info"]["id"] = key
        payload = {
            "x402Version": 2,
            "payload": {
                "signature": "0x" + secrets.token_hex(65),
                "authorization": {
                    "from": PAYER,
                    "to": PAYEE,
                    "value": accepted["amount"],
                    "validAfter": str(now - 600),
                    "validBefore": str(now + accepted["maxTimeoutSeconds"]),
                    "nonce": "0x" + secrets.token_hex(32),
                },
            },
            "accepted": accepted,
            "resource": required["resource"],
            "extensions": extensions,
        }
        return self._request(key, base64.b64encode(json.dumps(payload).encode()))

    def _request(self, key: str, signature: bytes | None = None) -> bytes:
        payment = b"" if signature is None else b"PAYMENT-SIGNATURE: " + signature + b"\r\n"
        return (
            (
                f"POST {PATH} HTTP/1.1\r\nHost: {LOOPBACK}:{self.port}\r\nContent-Type: application/json\r\n"
                f"Idempotency-Key: {key}\r\nContent-Length: {len(TYPICAL.body)}\r\n"
            ).encode()
            + payment
            + b"\r\n"
            + TYPICAL.body
        )


def _receive(connection: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while True:
        more = connection.recv(65_536)
        if not more:
            raise ConnectionError("the server closed the connection")
        received += more
        head, end, body = received.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            return head, body


def _length(head: bytes) -> int:
    marker = head.lower().index(b"content-length:")
    return int(head[marker + 15 :].split(b"\r\n", 1)[0])


def latencies(ports: dict[str, int], calls: int, *, warm_up: int = 30) -> dict[str, list[float]]:
    """Return the seconds of paid calls over one connection each, the servers taking turns."""
    callers = {name: Caller(port) for name, port in ports.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ports}
    with ExitStack() as open_:
        connections = {
            name: open_.enter_context(socket.create_connection((LOOPBACK, port), 10)) for name, port in ports.items()
        }
        for caller in callers.values():
            caller.learn()
        for number in range(warm_up + calls):
            for name, caller in callers.items():
                request = caller.paid()
                started = time.perf_counter()
                connections[name].sendall(request)
                head, body = _receive(connections[name])
                taken = time.perf_counter() - started
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"{name} did not sell: {head!r} {body!r}")
                if number >= warm_up:
                    seconds[name].append(taken)
    return seconds


class _Client(asyncio.Protocol):
    """One connection that sends the next request as soon as the answer to the last one is there."""

    def __init__(
        self, requests: list[bytes], status: bytes, seconds: list[float], done: Callable[[BaseException | None], None]
    ) -> None:
        self._requests, self._status, self._seconds, self._done = requests, status, seconds, done
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        if not self._requests:
            self._transport.close()
            self._done(None)
            return
        self._received = b""
        self._started = time.perf_counter()
        self._transport.write(self._requests.pop())

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            self._seconds.append(time.perf_counter() - self._started)
            if self._status not in head[:16]:
                self._transport.close()
                self._done(RuntimeError(f"unexpected answer: {head!r} {body!r}"))
            else:
                self._next()


async def _storm(port: int, requests: list[bytes], status: bytes) -> tuple[float, list[float]]:
    loop = asyncio.get_running_loop()
    seconds: list[float] = []
    finished: list[asyncio.Future[None]] = []
    started = time.perf_counter()
    for _ in range(CLIENTS):
        future: asyncio.Future[None] = loop.create_future()
        finished.append(future)

        def done(error: BaseException | None, future: asyncio.Future[None] = future) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        await loop.create_connection(partial(_Client, requests, status, seconds, done), LOOPBACK, port)
    await asyncio.gather(*finished)
    return time.perf_counter() - started, seconds


def throughput(ports: dict[str, int], calls: int, *, paid: bool, rounds: int = 3) -> dict[str, tuple[Timed, float]]:
    """Return, for each server, the seconds per call of 50 clients at once over rounds in turn, and the p99 latency."""
    callers = {name: Caller(port) for name, port in ports.items()}
    taken: dict[str, list[float]] = {name: [] for name in ports}
    each: dict[str, list[float]] = {name: [] for name in ports}
    for caller in callers.values():
        caller.learn()
    for _ in range(rounds):
        for name, caller in callers.items():
            requests = [caller.paid() if paid else caller.unpaid() for _ in range(calls)]
            whole, seconds = asyncio.run(_storm(caller.port, requests, b" 200 " if paid else b" 402 "))
            taken[name].append(whole / calls)
            each[name] += seconds
    return {name: (Timed(tuple(taken[name])), percentile(each[name], 0.99)) for name in ports}


if __name__ == "__main__":
    if sys.argv[1] == "facilitator":
        import uvloop

        uvloop.run(_serve_facilitator(int(sys.argv[2])))
    else:
        _serve_stock(int(sys.argv[2]), sys.argv[3])
