"""One sandbox for the whole session, and services of one's own beside it on the same chain."""

from __future__ import annotations

import os
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import orjson
import pytest

from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port
from tests.faults.facilitator import FaultyFacilitator, forward_to
from tests.judges import browser
from tests.judges.browser import Browser
from tests.judges.x402_buyer import Buyer
from tests.oracles.answer_keys import CONTRACT

START_SECONDS: Final = 30.0
PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


@pytest.fixture(scope="session")
def tab() -> Iterator[Browser]:
    """A browser's tab. Without a browser its tests are skipped here and fail where CI is set."""
    program = browser.find()
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(browser.NOT_FOUND)
    with Browser(program) as running:
        yield running


@pytest.fixture(scope="session")
def funded(sandbox: Sandbox) -> FundedProtocol:
    return next(funded for funded in sandbox.protocols if funded.protocol == "x402")


@pytest.fixture(scope="session")
def body() -> bytes:
    """The contract's own example input."""
    return orjson.dumps(CONTRACT["exampleInput"])


@dataclass
class Server:
    """One process of the service; it can be killed and started again."""

    processes: Processes
    name: str
    environment: Mapping[str, str]
    port: int

    @property
    def origin(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        command: list[str | Path] = [PROGRAM, "serve", "--host", LOOPBACK, "--port", str(self.port)]
        self.processes.start(self.name, command, self.environment)
        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(base_url=self.origin, trust_env=False) as client:
            while True:
                self.processes.check()
                try:
                    if client.get("/readyz").status_code in {200, 503}:
                        return
                except httpx.TransportError:
                    assert time.monotonic() < deadline, "the service does not come up"
                    time.sleep(0.03)

    def kill(self) -> None:
        self.processes.end(self.name, kill=True)

    def end(self) -> None:
        self.processes.end(self.name)


Serve = Callable[..., Server]


@pytest.fixture(scope="module")
def serve(sandbox: Sandbox, funded: FundedProtocol) -> Iterator[Serve]:
    """Start services on the sandbox's chain, with settings of their own."""
    started: list[Server] = []

    def serve(name: str, **settings: str) -> Server:
        given = {
            "DATABASE_URL": f"sqlite:///{sandbox.processes.directory / name}.db",
            "REQUEST_RATE": "",
            "PAYMENT_RATE": "",
            **settings,
        }
        environment = {**funded.environment, **{f"RANKING_EVALUATE_{key}": value for key, value in given.items()}}
        server = Server(sandbox.processes, name, environment, free_port())
        started.append(server)
        server.start()
        return server

    yield serve
    for server in started:
        server.kill()


@pytest.fixture(scope="module")
def faulty(funded: FundedProtocol) -> Iterator[FaultyFacilitator]:
    """A faulty facilitator in front of the sandbox's real one."""
    with FaultyFacilitator(forward_to(str(funded.info["facilitator"]))) as running:
        yield running


Buy = Callable[[str], Buyer]


@pytest.fixture(scope="module")
def buyer_at(funded: FundedProtocol, body: bytes) -> Iterator[Buy]:
    """Return buyers in front of any origin, with the sandbox's funded wallet."""
    clients: list[httpx.Client] = []

    def buyer_at(origin: str) -> Buyer:
        client = httpx.Client(base_url=origin, trust_env=False, timeout=30)
        clients.append(client)
        return Buyer(client, funded.payer.key, body)

    yield buyer_at
    for client in clients:
        client.close()


@dataclass
class Books:
    """What the chain says of payer and payee."""

    funded: FundedProtocol

    def __post_init__(self) -> None:
        self.before = self.now()

    def now(self) -> tuple[int, int]:
        return self.funded.balance(self.funded.payer.address), self.funded.balance(self.funded.payee)

    @property
    def moved(self) -> int:
        """The base units that left the payer since the books were opened; all of them reached the payee."""
        payer, payee = self.now()
        assert self.before[0] - payer == payee - self.before[1]
        return payee - self.before[1]


@pytest.fixture
def books(funded: FundedProtocol) -> Books:
    return Books(funded)
