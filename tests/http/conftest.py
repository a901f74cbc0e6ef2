"""The application with a scripted protocol, called in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import structlog
from fastapi import FastAPI

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.http.app import build_app
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.payments.protocol import Offer, Settled, Settlement
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from ranking_evaluate.release import VERSION
from tests.fakes import VALID_SECONDS, FixedClock, ScriptedProtocol, Signed

PATH: Final = "/v1/scripted/ranking-evaluate"
KEY: Final = "purchase-of-monday-0001"
BODY: Final = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'
JSON: Final = {"Content-Type": "application/json"}


SETTLED: Final = Settled("the receipt", "0x" + "ab" * 32, "payer")


def settled(signed: Signed, offer: Offer) -> Settlement:
    return SETTLED


@dataclass
class Service:
    """The running application; `client` calls it."""

    app: FastAPI
    client: httpx.AsyncClient
    protocol: ScriptedProtocol
    store: SqliteStore
    purchases: Purchases
    clock: FixedClock

    async def post(self, *lines: tuple[str, str], body: Any = BODY, path: str = PATH, **given: Any) -> httpx.Response:
        """Send exactly these header lines; without any, the ones of a good request."""
        headers = lines or (("Idempotency-Key", KEY), *JSON.items())
        return await self.client.post(path, content=body, headers=list(headers), **given)

    async def pay(self, proof: str = "first", key: str = KEY) -> httpx.Response:
        signed = Signed(key, proof, self.clock.now() + VALID_SECONDS)
        (credential,) = signed.header().items()
        return await self.post(("Idempotency-Key", key), *JSON.items(), credential)


@dataclass
class Options:
    """What a test may choose about the application."""

    request_rate: str | None = None
    payment_rate: str | None = None
    rate_storage: str = "memory://"
    release: str = VERSION
    previous_origin: str | None = None
    evaluation_rate: str | None = None
    max_in_flight: int = 256
    cors_origins: tuple[str, ...] = ("*",)
    protocol: ScriptedProtocol = field(default_factory=ScriptedProtocol)
    is_configured: bool = True
    client: tuple[str, int] = ("192.0.2.7", 50_000)


@asynccontextmanager
async def running(path: Path, options: Options) -> AsyncIterator[Service]:
    clock = FixedClock()
    store = SqliteStore(path, clock)
    rates = Rates(options.rate_storage, options.request_rate, options.payment_rate)
    protocol = options.protocol
    protocol.settler = settled
    evaluations = Evaluations(1, options.evaluation_rate)
    purchases = Purchases(
        store,
        rates,
        evaluations,
        (protocol.wire,),
        chains=Chains(()),
        verify_timeout=1.0,
        settle_timeout=1.0,
        clock=clock,
        release=options.release,
        previous_origin=options.previous_origin,
    )
    app = build_app(
        Parts(
            chains=Chains(()),
            store=store,
            wires=(protocol.wire,),
            protocols=(protocol,) if options.is_configured else (),
            purchases=purchases,
            evaluations=evaluations,
            rates=rates,
            public_origin="https://rank.example",
            max_in_flight=options.max_in_flight,
            cors_origins=options.cors_origins,
        )
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=options.client)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="https://rank.example") as client,
    ):
        yield Service(app, client, protocol, store, purchases, clock)


Start = Callable[[Options], Awaitable[Service]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:
        numbers = iter(range(100))

        async def started(options: Options) -> Service:
            return await stack.enter_async_context(running(tmp_path / f"{next(numbers)}.db", options))

        yield started


@pytest.fixture
async def service(start: Start) -> Service:
    return await start(Options())


@pytest.fixture(scope="module")
async def shared_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """One application for all tests of a module that leave it as it was: to make one takes longer than to ask it."""
    async with running(tmp_path_factory.mktemp("shared") / "attempts.db", Options()) as service:
        yield service


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Return what reads the log as `serve` writes it."""
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stderr", stream)
    telemetry.configure_logs("info")
    yield lambda: stream.buffer.getvalue().decode()
    structlog.reset_defaults()
