"""Replicas share their windows in a real Redis; while it is down, each counts alone and nobody is kept waiting."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ranking_evaluate import rates as module
from ranking_evaluate.contract.errors import RateLimited
from ranking_evaluate.rates import Rates, RateStorageUnavailable
from ranking_evaluate.sandbox.processes import LOOPBACK, free_port
from ranking_evaluate.telemetry.metrics import REGISTRY
from tests.http.conftest import Options, running
from tests.redis import RedisServer

pytestmark = pytest.mark.anyio

OTHER_KEY = "purchase-of-tuesday-0002"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@contextlib.asynccontextmanager
async def counting(url: str, request_rate: str, payment_rate: str | None = None) -> AsyncIterator[Rates]:
    rates = Rates(url, request_rate, payment_rate)
    try:
        yield rates
    finally:
        await rates.close()


async def hits(rates: Rates, client: str, times: int) -> int:
    """Return how many of so many requests are admitted."""
    admitted = 0
    for _ in range(times):
        try:
            await rates.count_request(client)
        except RateLimited:
            continue
        admitted += 1
    return admitted


async def test_where_sales_have_ended_nobody_is_counted_and_nobody_buys(server: RedisServer, tmp_path: Path) -> None:
    path, url = tmp_path / "attempts.db", server.url
    async with running(path, Options(payment_rate="1/day", rate_storage=url)) as selling:
        sold = await selling.pay()
        assert (sold.status_code, (await selling.pay("second", OTHER_KEY)).status_code) == (200, 429)
    async with running(path, Options(payment_rate="0/day", rate_storage=url)) as ended:
        again, refused = await ended.pay(), await ended.pay("second", OTHER_KEY)
        assert (again.status_code, again.content) == (200, sold.content)
        assert (refused.status_code, refused.json()["cause"]) == (503, "ended")


async def test_two_replicas_share_a_window(server: RedisServer) -> None:
    async with (
        counting(server.url, "10/minute", "2/minute") as one,
        counting(server.url, "10/minute", "2/minute") as two,
    ):
        await one.open()
        await two.open()
        assert await hits(one, "shared", 6) + await hits(two, "shared", 6) == 10
        with pytest.raises(RateLimited) as refused:
            await one.count_request("shared")
        assert refused.value.retry_after is not None
        assert 50 <= refused.value.retry_after <= 60
        await one.count_payment("shared")
        await two.count_payment("shared")
        with pytest.raises(RateLimited, match="payments"):
            await one.count_payment("shared")


async def test_a_shared_window_opens_again(server: RedisServer) -> None:
    async with counting(server.url, "1/second") as rates:
        assert await hits(rates, "again", 2) == 1
        await asyncio.sleep(1.1)
        assert await hits(rates, "again", 2) == 1


async def test_while_redis_is_down_each_replica_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALONE_SECONDS", 0.2)
    with RedisServer() as server:
        async with counting(server.url, "5/minute") as one, counting(server.url, "5/minute") as other:
            assert await hits(one, "client", 5) == 5
            server.stop()
            assert await hits(one, "client", 6) == 5
            assert await hits(other, "client", 6) == 5
            server.start()
            await asyncio.sleep(0.3)
            assert await hits(one, "client", 6) == 5
            assert await hits(other, "client", 1) == 0, "they share again"


async def test_connections_from_before_a_restart_of_redis_are_no_failures() -> None:
    """Each of them would be one, whenever so many requests come at once: a false alarm hours later."""
    with RedisServer() as server:
        async with counting(server.url, "100/minute") as rates:
            await asyncio.gather(*(rates.count_request("client") for _ in range(8)))
            failures = REGISTRY.get_sample_value("ranking_evaluate_rate_storage_failures_total")
            server.stop()
            server.start()
            await asyncio.gather(*(rates.count_request("client") for _ in range(8)))
            assert REGISTRY.get_sample_value("ranking_evaluate_rate_storage_failures_total") == failures


async def test_a_redis_that_says_nothing_costs_one_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REDIS_SECONDS", 0.2)
    with socket.socket() as mute:
        mute.bind((LOOPBACK, 0))
        mute.listen(8)
        async with counting(f"redis://{LOOPBACK}:{mute.getsockname()[1]}/0", "100/minute") as rates:
            started = time.monotonic()
            assert await hits(rates, "client", 50) == 50
            assert time.monotonic() - started < 1


async def test_a_redis_that_is_not_there_stops_the_start() -> None:
    async with counting(f"redis://{LOOPBACK}:{free_port()}/0", "1/minute") as rates:
        with pytest.raises(RateStorageUnavailable, match="Redis"):
            await rates.open()


async def test_without_the_client_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "redis"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(RateStorageUnavailable, match=r"ranking-evaluate\[redis\]"):
        Rates(f"redis://{LOOPBACK}/0", "1/minute", None)
