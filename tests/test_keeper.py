"""Uncertain payments end by themselves: when the chain is asked, and what suffices for a decision."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.events import OperatorRelease, RecordSettled, RecordUncertain
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.chains import FINAL_WITHIN, Chains
from ranking_evaluate.keeper import Keeper, decide_now
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import Evidence, Landed, NeverLanded, PaymentFacts, Unknown
from tests.attempts.samples import KEY, draft, settling
from tests.fakes import FixedClock, ScriptedProtocol

pytestmark = pytest.mark.anyio

TX = "0x" + "ab" * 32
MINUTES_10 = 600
WAITING = Unknown("there is no receipt so far")
EXPIRED = NeverLanded("the authorization is unused, and a final block is past its expiry")
CANCELLED = NeverLanded("the authorization was cancelled", for_good=True)
VALID_SECONDS = 180


class Chain(ScriptedProtocol):
    """A protocol whose chain says what the test says, and remembers when it was asked."""

    wire = replace(ScriptedProtocol.wire, name="x402")

    def __init__(self, clock: FixedClock) -> None:
        super().__init__()
        self._clock = clock
        self.says: Evidence | Exception = WAITING
        self.asked: list[tuple[float, str]] = []
        self.is_known = True

    def has_node(self, network: str) -> bool:
        return self.is_known

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        self.asked.append((self._clock(), facts.payment_id))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@dataclass
class Watch:
    """A keeper beside a store, whose clock moves with the test."""

    store: SqliteStore
    clock: FixedClock
    chain: Chain = field(init=False)
    keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        self.chain = Chain(self.clock)
        self.keeper = self.another()

    def another(self) -> Keeper:
        return Keeper(self.store, Chains((self.chain,)))

    async def uncertain(self, **changes: Any) -> Attempt:
        """Leave a payment uncertain that can land for three minutes from now."""
        changes = {"valid_before": int(self.clock()) + VALID_SECONDS, "recipient": "payee", **changes}
        row = await settling(self.store, draft(**changes))
        step = await self.store.move(row.claim, RecordUncertain("timeout"))
        assert step.attempt is not None
        return step.attempt

    async def look(self) -> None:
        await self.keeper.look()
        await self.keeper.idle()

    async def pass_time(self, seconds: float, step: float = 5.0) -> None:
        """Let time pass as it does for a running keeper, which looks every five seconds."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.advance(min(step, end - self.clock()))
            await self.look()

    async def state(self, key: str = KEY) -> State:
        [row] = (await self.store.read(key)).rows
        return row.state

    async def audits(self, key: str = KEY) -> list[tuple[str, str]]:
        return [(audit.who, audit.what) for _, _, audit in await self.store.audits(key)]


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[Watch]:
    clock = FixedClock()
    store = SqliteStore(tmp_path / "attempts.db", clock)
    await store.open()
    yield Watch(store, clock)
    await store.close()


async def test_with_nothing_uncertain_no_question_leaves(watch: Watch) -> None:
    await watch.pass_time(3600, step=60)
    assert watch.chain.asked == []


async def test_the_chain_is_asked_after_15_seconds_and_then_twice_as_long_each_time_until_the_payment_is_over(
    watch: Watch,
) -> None:
    row = await watch.uncertain()
    began = watch.clock()
    await watch.pass_time(VALID_SECONDS + MINUTES_10 + 150)
    after = [round(at - began) for at, _ in watch.chain.asked]
    last = VALID_SECONDS + MINUTES_10 + 30
    assert after == [15, 30, 60, 120, 240, 480, last, last + 60, last + 120]
    assert row.valid_before is not None


async def test_a_payment_in_a_final_block_is_settled_at_once_with_a_receipt_that_says_so(watch: Watch) -> None:
    await watch.uncertain()
    watch.chain.says = Landed(TX)
    await watch.pass_time(15)
    [row] = (await watch.store.read(KEY)).rows
    assert (row.state, row.transaction, row.receipt) == (State.SETTLED, TX, f"reconciled {TX}")
    assert await watch.audits() == [("chain", "settled")]
    [sale] = await watch.store.sales()
    assert (sale.transaction, sale.reconciled) == (TX, True)


async def test_a_settling_attempt_past_its_lease_is_looked_after_too(watch: Watch) -> None:
    await settling(watch.store, draft(valid_before=int(watch.clock()) + VALID_SECONDS, recipient="payee"))
    watch.chain.says = Landed(TX)
    await watch.pass_time(30)
    assert watch.chain.asked == []
    await watch.pass_time(600)
    assert await watch.state() is State.SETTLED


async def test_what_never_landed_is_released_ten_minutes_after_its_end_by_two_rounds_a_minute_apart(
    watch: Watch,
) -> None:
    await watch.uncertain()
    watch.chain.says = EXPIRED
    end = watch.clock() + VALID_SECONDS + MINUTES_10
    for _ in range(200):
        await watch.pass_time(5)
        if await watch.state() is not State.UNCERTAIN:
            break
    assert 60 <= watch.clock() - end <= 30 + 60 + 5
    after = [at for at, _ in watch.chain.asked if at >= end]
    assert len(after) == 2
    assert after[1] - after[0] >= 60
    assert await watch.audits() == [("chain", "released")]
    [row] = (await watch.store.read(KEY)).rows
    assert row.reason == "released by the chain"
    assert await watch.store.sales() == []


async def test_what_can_never_land_is_released_before_its_end_by_two_rounds(watch: Watch) -> None:
    await watch.uncertain()
    watch.chain.says = CANCELLED
    await watch.pass_time(15)
    assert await watch.state() is State.UNCERTAIN
    await watch.pass_time(55)
    assert await watch.state() is State.UNCERTAIN
    await watch.pass_time(10)
    assert await watch.state() is State.RELEASED


@pytest.mark.parametrize("between", [WAITING, NeverLanded("it was reverted", for_good=True), RuntimeError("broken")])
async def test_rounds_that_differ_decide_nothing(watch: Watch, between: Evidence | Exception) -> None:
    await watch.uncertain()
    answers = itertools.cycle([CANCELLED, between])
    watch.chain.says = next(answers)
    for _ in range(240):
        asked = len(watch.chain.asked)
        await watch.pass_time(5)
        if len(watch.chain.asked) > asked:
            watch.chain.says = next(answers)
    expected = State.RELEASED if isinstance(between, RuntimeError) else State.UNCERTAIN
    # What broke has said nothing, so it contradicts nothing either.
    assert await watch.state() is expected


async def test_a_landing_between_the_rounds_is_settled(watch: Watch) -> None:
    await watch.uncertain()
    watch.chain.says = CANCELLED
    await watch.pass_time(15)
    watch.chain.says = Landed(TX)
    await watch.pass_time(65)
    assert await watch.state() is State.SETTLED


async def test_the_owners_word_between_evidence_and_decision_stands(watch: Watch) -> None:
    row = await watch.uncertain()

    class Late(Chain):
        async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
            await watch.store.move(row.claim, RecordSettled("the owner's receipt", TX))
            return Landed("0x" + "cd" * 32)

    watch.keeper = Keeper(watch.store, Chains((Late(watch.clock),)))
    await watch.pass_time(20)
    [found] = (await watch.store.read(KEY)).rows
    assert (found.receipt, found.transaction) == ("the owner's receipt", TX)
    assert await watch.audits() == []


async def test_two_keepers_decide_once(watch: Watch) -> None:
    await watch.uncertain()
    both_asked = asyncio.Barrier(2)

    class Same(Chain):
        async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
            await both_asked.wait()
            return Landed(TX)

    one, other = (Keeper(watch.store, Chains((Same(watch.clock),))) for _ in range(2))
    watch.clock.advance(20)
    await asyncio.gather(one.look(), other.look())
    async with asyncio.timeout(10):
        await asyncio.gather(one.idle(), other.idle())
    assert await watch.audits() == [("chain", "settled")]
    assert len(await watch.store.sales()) == 1


async def test_a_keeper_that_was_killed_between_the_rounds_begins_anew(watch: Watch) -> None:
    await watch.uncertain()
    watch.chain.says = CANCELLED
    await watch.pass_time(20)
    watch.keeper = watch.another()
    await watch.pass_time(5)
    assert await watch.state() is State.UNCERTAIN
    await watch.pass_time(65)
    assert await watch.state() is State.RELEASED


async def test_one_attempt_that_cannot_be_asked_about_keeps_no_other_from_it(watch: Watch) -> None:
    await watch.uncertain()
    await watch.uncertain(key="another-key-0001", claim="another", proofs=(b"o" * 32,), payment_id="other")

    class Half(Chain):
        async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
            if facts.payment_id != "other":
                raise RuntimeError("broken")
            return Landed(TX)

    watch.keeper = Keeper(watch.store, Chains((Half(watch.clock),)))
    await watch.pass_time(20)
    assert await watch.state("another-key-0001") is State.SETTLED
    assert await watch.state() is State.UNCERTAIN


@pytest.mark.parametrize("case", ["no node", "no recipient", "no last second", "another protocol"])
async def test_what_the_chain_cannot_tell_is_left_to_an_operator(watch: Watch, case: str) -> None:
    watch.chain.is_known = case != "no node"
    changes: dict[str, dict[str, Any]] = {
        "no recipient": {"recipient": None},
        "no last second": {"valid_before": None},
        "another protocol": {"protocol": "mpp"},
    }
    await watch.uncertain(**changes.get(case, {}))
    await watch.pass_time(890)
    assert watch.chain.asked == []
    assert overdue() == 0
    await watch.pass_time(30)
    assert (await watch.state(), overdue()) == (State.UNCERTAIN, 1)


async def test_the_alarm_is_for_what_the_chain_has_not_decided_in_time(watch: Watch) -> None:
    await watch.uncertain()
    await watch.pass_time(VALID_SECONDS + MINUTES_10 + FINAL_WITHIN - 10, step=60)
    assert overdue() == 0
    await watch.pass_time(20)
    assert overdue() == 1
    watch.chain.says = Landed(TX)
    await watch.pass_time(120)
    assert overdue() == 0


async def test_how_many_are_uncertain_and_how_old_the_oldest_is_are_told(watch: Watch) -> None:
    def told() -> tuple[float, float]:
        return gauge("attempts"), gauge("oldest_seconds")

    await watch.pass_time(5)
    assert told() == (0, 0)
    await watch.uncertain()
    await watch.pass_time(30)
    await watch.uncertain(key="another-key-0001", claim="another", proofs=(b"o" * 32,), payment_id="other")
    await watch.pass_time(10)
    assert told() == (2, 40)
    watch.chain.says = Landed(TX)
    await watch.pass_time(120)
    assert told() == (0, 0)


async def test_the_keeper_goes_on_when_the_store_was_away(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranking_evaluate.keeper.LOOK_SECONDS", 0.01)
    await watch.uncertain()
    watch.chain.says = Landed(TX)
    watch.clock.advance(20)
    away = [StoreUnavailable("away"), RuntimeError("a bug")]
    recent = watch.store.recent

    async def failing(state: State | None = None, limit: int = 100) -> list[Attempt]:
        if away:
            raise away.pop()
        return await recent(state, limit)

    monkeypatch.setattr(watch.store, "recent", failing)
    running = asyncio.create_task(watch.keeper.run())
    for _ in range(1_000):
        await asyncio.sleep(0.01)
        if await watch.state() is State.SETTLED:
            break
    running.cancel()
    await asyncio.wait([running])
    assert away == []


async def test_a_released_payment_is_asked_about_no_more(watch: Watch) -> None:
    row = await watch.uncertain()
    await watch.store.move(row.claim, OperatorRelease("ada", "by hand"))
    await watch.pass_time(3600, step=60)
    assert watch.chain.asked == []


async def test_a_thousand_uncertain_payments_take_five_calls_a_second() -> None:
    pace = Pace(50)
    began = time.monotonic()
    await asyncio.gather(*(pace.turn() for _ in range(11)))
    assert time.monotonic() - began >= 10 / 50


def overdue() -> float:
    return gauge("overdue_attempts")


def gauge(name: str) -> float:
    found = telemetry.metrics.REGISTRY.get_sample_value(f"ranking_evaluate_uncertain_{name}")
    assert found is not None
    return found


# One round now, by an operator's command.


async def test_one_round_now_settles_what_landed_and_says_what_is_not_decided(watch: Watch) -> None:
    row = await watch.uncertain()
    said: list[str] = []
    assert not await decide_now(watch.store, Chains((watch.chain,)), [row], dry_run=False, tell=said.append)
    assert said == [f"{KEY}: not decided: there is no receipt so far"]
    watch.chain.says = Landed(TX)
    assert await decide_now(watch.store, Chains((watch.chain,)), [row], dry_run=True, tell=said.append)
    assert await watch.state() is State.UNCERTAIN
    assert await decide_now(watch.store, Chains((watch.chain,)), [row], dry_run=False, tell=said.append)
    assert said[1:] == [
        f"{KEY}: would be settled: this payment is in transaction {TX}",
        f"{KEY}: settled: this payment is in transaction {TX}",
    ]
    assert await watch.state() is State.SETTLED


async def test_one_round_now_asks_twice_before_it_releases(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranking_evaluate.keeper.ROUNDS_APART", 0.01)
    row = await watch.uncertain()
    said: list[str] = []
    watch.chain.says = EXPIRED
    assert not await decide_now(watch.store, Chains((watch.chain,)), [row], dry_run=False, tell=said.append)
    assert await watch.state() is State.UNCERTAIN
    watch.clock.advance(VALID_SECONDS + MINUTES_10)
    assert await decide_now(watch.store, Chains((watch.chain,)), [row], dry_run=False, tell=said.append)
    assert await watch.state() is State.RELEASED
    assert len(watch.chain.asked) == 3
