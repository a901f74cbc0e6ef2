"""A clock that is off is told by the answers and the blocks that pass by, and only where it is off for certain."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from typing import Any

import pytest

from ranking_evaluate.payments.clock import (
    FORGET_AFTER,
    LOOK_EVERY,
    ClockWatch,
    Limits,
    ahead_of_chain,
    ahead_of_date,
)
from ranking_evaluate.payments.config import USDC, X402Config, X402Network
from ranking_evaluate.payments.facilitator import Facilitator
from ranking_evaluate.payments.json_rpc import JsonRpc
from ranking_evaluate.payments.x402.protocol import X402Protocol
from ranking_evaluate.sandbox.anvil import Chain, start_anvil
from ranking_evaluate.sandbox.processes import Processes
from ranking_evaluate.telemetry.metrics import REGISTRY
from tests.fakes import FixedClock
from tests.payments.test_provider_client import provider, whole

pytestmark = pytest.mark.anyio

NOON = 1_800_000_000.0
PAYER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
SUPPORTED = json.dumps(
    {"kinds": [{"x402Version": 2, "scheme": "exact", "network": "eip155:84532"}], "extensions": [], "signers": {}}
).encode()


def gauge(against: str, protocol: str = "scripted") -> float:
    value = REGISTRY.get_sample_value(
        "ranking_evaluate_clock_offset_seconds", {"against": against, "protocol": protocol}
    )
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("date", "sent", "received", "ahead"),
    [
        (NOON, NOON + 0.2, NOON + 0.9, 0.0),
        # 12:00:00 in the header is any moment until 12:00:01.
        (NOON, NOON + 1.0, NOON + 1.5, 0.0),
        (NOON, NOON + 31.0, NOON + 31.4, 30.0),
        (NOON, NOON - 40.5, NOON - 40.0, -40.0),
        # An answer that took ninety seconds was dated at any time within them.
        (NOON, NOON - 45.0, NOON + 45.0, 0.0),
    ],
)
def test_only_what_lies_outside_of_the_call_s_own_time_counts(
    date: float, sent: float, received: float, ahead: float
) -> None:
    assert ahead_of_date(formatdate(date, usegmt=True), None, sent, received) == ahead


@pytest.mark.parametrize(
    ("date", "age"), [(None, None), ("", None), ("noon", None), ("Tue, 99 Dec 2026 99:99:99 GMT", None)]
)
def test_a_date_that_cannot_be_read_tells_nothing(date: str | None, age: str | None) -> None:
    assert ahead_of_date(date, age, NOON, NOON) is None


def test_an_answer_out_of_a_cache_tells_nothing() -> None:
    assert ahead_of_date(formatdate(NOON, usegmt=True), "3600", NOON + 3600, NOON + 3600) is None


async def test_each_call_of_a_facilitator_tells_its_time_in_passing() -> None:
    heard: list[float] = []
    dated = f"Date: {formatdate(time.time() - 90, usegmt=True)}"
    async with provider(whole(b"{}", "200 OK", dated)) as running:
        facilitator = Facilitator(running.url, None, 5, 5, heard=heard.append)
        try:
            await facilitator.supported()
            await facilitator.verify(b"{}", payer=PAYER)
            await facilitator.settle(b"{}", network="eip155:84532", payer=PAYER)
        finally:
            await facilitator.close()
        assert len(running.heads) == 3, "no call was made for the time alone"
    assert [pytest.approx(90, abs=2)] * 3 == heard


class Blocks:
    """A node whose newest block is the next of a list each time."""

    def __init__(self, blocks: Iterable[tuple[int, float]]) -> None:
        self._blocks = iter(blocks)
        self.asked = 0

    async def block(self, which: str) -> dict[str, Any]:
        self.asked += 1
        number, made = next(self._blocks)
        return {"number": hex(number), "timestamp": hex(int(made))}


def ticking(start: float, step: float) -> Callable[[], float]:
    """Return a clock that is read once every so many seconds."""
    instants = (start + step * each for each in range(1000))
    return lambda: next(instants)


@pytest.mark.parametrize(
    ("blocks", "ahead"),
    [
        # Read at noon, and every half second: a block of each second.
        ([(1, NOON), (2, NOON + 1)], 0.0),
        # A block of the future: the chain is 41 s ahead for certain, whatever else it does.
        ([(1, NOON + 42)], -41.0),
        # A new block that is older than our last look: we are ahead.
        ([(1, NOON - 31), (1, NOON - 31), (2, NOON - 29)], 29.5),
        # A chain that has nothing to do may have an old block.
        ([(1, NOON - 9000)] * 8, None),
    ],
)
async def test_blocks_tell_only_what_is_certain(blocks: list[tuple[int, float]], ahead: float | None) -> None:
    node: Any = Blocks(blocks)
    assert await ahead_of_chain(node, ticking(NOON, 0.5), pause=0) == ahead
    assert node.asked == len(blocks), "a chain that does not tell is asked a few times, and no more"


async def test_what_nobody_confirms_for_five_minutes_is_not_said_any_more() -> None:
    clock = FixedClock()
    watch = ClockWatch("scripted", Limits(60, 110), {}, clock)
    watch.note("eip155:1", -100)
    clock.advance(FORGET_AFTER - 1)
    assert watch.fault() == "this machine's clock is 100 s behind that of eip155:1"
    clock.advance(2)
    assert (watch.fault(), watch.offsets()) == (None, {})
    assert math.isnan(gauge("eip155:1"))


async def test_a_clock_that_was_heard_of_in_the_last_minute_is_not_asked() -> None:
    clock, asked = FixedClock(), []

    async def ask() -> float:
        asked.append(clock.now())
        return 1.0

    async def fail() -> float:
        raise OSError("a node that is away")

    watch = ClockWatch("scripted", Limits(60, 110), {"eip155:1": fail, "eip155:2": ask}, clock)
    await watch.look()
    await watch.look()
    assert (len(asked), watch.offsets()) == (1, {"eip155:2": 1.0})
    clock.advance(LOOK_EVERY)
    watch.note("eip155:2", 2.0)
    await watch.look()
    assert len(asked) == 1
    clock.advance(LOOK_EVERY)
    await watch.look()
    assert len(asked) == 2


@pytest.mark.parametrize("off", [-200, 200])
async def test_a_service_at_a_facilitator_of_another_time_is_not_ready(off: float) -> None:
    dated = f"Date: {formatdate(time.time() - off, usegmt=True)}"
    async with provider(whole(SUPPORTED, "200 OK", dated)) as running:
        network = X402Network("eip155:84532", USDC["eip155:84532"])
        protocol = X402Protocol(X402Config(pay_to=PAYER, networks=(network,), facilitator_url=running.url))
        await protocol.start()
        try:
            fault = protocol.clock.fault()
            assert protocol.ready().ready, "challenges are made as ever"
        finally:
            await protocol.close()
    assert fault is not None
    assert ("ahead of the facilitator's" if off > 0 else "behind the facilitator's") in fault


@pytest.fixture
def chain() -> Iterator[Chain]:
    processes = Processes()
    try:
        yield start_anvil(processes)
    finally:
        processes.stop()


@pytest.mark.beyond_unit
async def test_a_real_chain_tells_its_time_by_a_new_block(chain: Chain) -> None:
    rpc = JsonRpc(chain.rpc, 10)

    async def mine(seconds: int) -> None:
        await asyncio.sleep(0.3)
        await rpc.ask("evm_increaseTime", hex(seconds))
        await rpc.ask("evm_mine")

    try:
        looking = asyncio.create_task(ahead_of_chain(rpc, pause=0.2))
        await mine(0)
        assert await looking == 0.0
        looking = asyncio.create_task(ahead_of_chain(rpc, pause=0.2))
        await mine(100)
        assert await looking == pytest.approx(-100, abs=3)
    finally:
        await rpc.close()
