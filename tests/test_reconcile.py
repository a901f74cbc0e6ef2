"""What an operator may decide: every rule of release and settlement, with a chain that says what the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.events import Grounds, RecordSettled, RecordUncertain
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.chains import RELEASE_AFTER, Chains
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import Evidence, Landed, NeverLanded, PaymentFacts, Unknown
from ranking_evaluate.reconcile import DecisionRefused, Reconciler
from tests.attempts.samples import DAY, KEY, NOW, SETTLE_LEASE, TX, draft, reserved, settled, settling
from tests.fakes import FixedClock, ScriptedProtocol

pytestmark = pytest.mark.anyio

OTHER_TX = "0x" + "cd" * 32
NEVER = NeverLanded("the authorization is unused, and a final block is past its expiry")
LAST_SECOND = 1_800_000_180


class Chain(ScriptedProtocol):
    """A protocol whose chain says what the test says, and remembers what it was asked."""

    wire = replace(ScriptedProtocol.wire, name="x402")

    def __init__(self) -> None:
        super().__init__()
        self.says: Evidence = Unknown("the node does not answer")
        self.asked: list[PaymentFacts] = []

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        self.asked.append(facts)
        return self.says


@dataclass
class Desk:
    """An operator's desk beside a store."""

    store: SqliteStore
    clock: FixedClock
    chain: Chain = field(default_factory=Chain)

    def __post_init__(self) -> None:
        self.reconciler = Reconciler(self.store, Chains((self.chain,)), "ada@desk")

    async def uncertain(self) -> Attempt:
        row = await settling(self.store, draft(valid_before=LAST_SECOND))
        step = await self.store.move(row.claim, RecordUncertain("timeout"))
        assert step.attempt is not None
        return step.attempt

    async def refused_release(self, *, force: bool = False) -> str:
        with pytest.raises(DecisionRefused) as caught:
            await self.reconciler.release(KEY, force=force)
        assert await self.store.audits(KEY) == []
        return str(caught.value)

    async def refused_settle(self, transaction: str = TX, *, force: bool = False) -> str:
        with pytest.raises(DecisionRefused) as caught:
            await self.reconciler.settle(KEY, transaction, force=force)
        assert await self.store.audits(KEY) == []
        return str(caught.value)

    async def evidence(self) -> list[tuple[str, str, str]]:
        return [(audit.who, audit.what, audit.evidence) for _, _, audit in await self.store.audits(KEY)]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    clock = FixedClock(NOW)
    store = SqliteStore(tmp_path / "attempts.db", clock)
    await store.open()
    yield Desk(store, clock)
    await store.close()


# Release.


async def test_what_never_landed_is_released_ten_minutes_after_its_last_second_and_not_before(desk: Desk) -> None:
    await desk.uncertain()
    desk.chain.says = NEVER
    desk.clock.advance(LAST_SECOND + RELEASE_AFTER - NOW - 1)
    assert "It can be" not in await desk.refused_release()
    assert "released in a minute" in await desk.refused_release()
    desk.clock.advance(1)
    released = await desk.reconciler.release(KEY)
    assert (released.state, released.expires_at) == (State.RELEASED, desk.clock() + DAY)
    assert await desk.evidence() == [("ada@desk", "released", f"chain: never landed: {NEVER.reason}")]


async def test_how_long_to_wait_is_told(desk: Desk) -> None:
    await desk.uncertain()
    desk.chain.says = NEVER
    assert "released in 14 minutes" in await desk.refused_release()


@pytest.mark.parametrize(
    ("says", "words"), [(Landed(TX), f"settle it with --tx {TX}"), (Unknown("no answer"), "no answer")]
)
async def test_after_its_last_second_the_chain_must_say_that_it_never_landed(
    desk: Desk, says: Evidence, words: str
) -> None:
    await desk.uncertain()
    desk.clock.advance(DAY)
    desk.chain.says = says
    assert words in await desk.refused_release()


@pytest.mark.parametrize(("says", "grounds"), [(Unknown("no answer"), Grounds.OWN_WORD), (NEVER, Grounds.NEVER_LANDED)])
async def test_a_forced_release_keeps_what_the_chain_said(desk: Desk, says: Evidence, grounds: Grounds) -> None:
    await desk.uncertain()
    desk.chain.says = says
    released = await desk.reconciler.release(KEY, force=True)
    assert (released.state, released.reason) == (State.RELEASED, grounds)
    [(_, _, evidence)] = await desk.evidence()
    assert evidence.startswith("forced; chain: ")


@pytest.mark.parametrize("transaction", [None, "", OTHER_TX, TX[:-1]])
async def test_what_the_chain_shows_is_not_released_by_force_without_its_transaction(
    desk: Desk, transaction: str | None
) -> None:
    await desk.uncertain()
    desk.chain.says = Landed(TX)
    with pytest.raises(DecisionRefused, match=f"--force --tx {TX}"):
        await desk.reconciler.release(KEY, force=True, transaction=transaction)
    with pytest.raises(DecisionRefused, match=f"settle it with --tx {TX}"):
        await desk.reconciler.release(KEY, transaction=TX)
    assert await desk.evidence() == []
    released = await desk.reconciler.release(KEY, force=True, transaction=TX.upper().replace("X", "x"))
    assert (released.state, released.reason, released.transaction) == (State.RELEASED, Grounds.ALTHOUGH_PAID, TX)
    assert await desk.evidence() == [
        ("ada@desk", "released", f"forced; chain: landed: this payment is in transaction {TX}")
    ]


async def test_a_payment_without_a_last_second_is_released_by_force_alone(desk: Desk) -> None:
    row = await settling(desk.store, draft(valid_before=None))
    await desk.store.move(row.claim, RecordUncertain("timeout"))
    desk.chain.says = NEVER
    desk.clock.advance(365 * DAY)
    assert "until when" in await desk.refused_release()
    await desk.reconciler.release(KEY, force=True)


# Settle.


async def test_what_the_chain_shows_is_settled_with_a_receipt_of_the_protocol(desk: Desk) -> None:
    row = await desk.uncertain()
    desk.chain.says = Landed(TX)
    done = await desk.reconciler.settle(KEY, TX.upper().replace("X", "x"))
    assert (done.state, done.transaction, done.receipt) == (State.SETTLED, TX, f"reconciled {TX}")
    assert done.expires_at == NOW + DAY
    assert await desk.evidence() == [("ada@desk", "settled", f"chain: landed: this payment is in transaction {TX}")]
    [asked] = desk.chain.asked
    assert (asked.transaction, asked.payer, asked.payment_id) == (TX, row.payer, row.payment_id)
    assert (asked.amount, asked.asset, asked.network, asked.pay_to) == (row.amount, row.asset, row.network, "payee")


@pytest.mark.parametrize("says", [Unknown("that transaction does not show this payment"), NEVER])
async def test_what_the_chain_does_not_show_is_settled_by_force_alone(desk: Desk, says: Evidence) -> None:
    await desk.uncertain()
    desk.chain.says = says
    assert "The chain does not show this payment" in await desk.refused_settle()
    await desk.reconciler.settle(KEY, OTHER_TX, force=True)
    [(_, _, evidence)] = await desk.evidence()
    assert evidence.startswith("forced; chain: ")


@pytest.mark.parametrize("transaction", ["", "0x12", "ab" * 32, "0x" + "zz" * 32, TX + "\n"])
async def test_what_is_no_transaction_hash_is_refused_even_by_force(desk: Desk, transaction: str) -> None:
    await desk.uncertain()
    assert "not a transaction hash" in await desk.refused_settle(transaction, force=True)


async def test_a_payment_is_settled_with_the_transaction_that_it_is_in(desk: Desk) -> None:
    await desk.uncertain()
    desk.chain.says = Landed(TX)
    with pytest.raises(DecisionRefused, match=f"settle it with --tx {TX}"):
        await desk.reconciler.settle(KEY, OTHER_TX)
    assert (await desk.reconciler.settle(KEY, TX)).transaction == TX


async def test_a_released_attempt_may_still_be_settled_while_it_stands(desk: Desk) -> None:
    await desk.uncertain()
    await desk.reconciler.release(KEY, force=True)
    desk.chain.says = Landed(TX)
    assert (await desk.reconciler.settle(KEY, TX)).state is State.SETTLED
    assert [what for _, what, _ in await desk.evidence()] == ["released", "settled"]


async def test_a_release_whose_window_is_over_is_decided_no_more(desk: Desk) -> None:
    await desk.uncertain()
    await desk.reconciler.release(KEY, force=True)
    desk.clock.advance(DAY)
    desk.chain.says = Landed(TX)
    with pytest.raises(DecisionRefused, match="nothing to decide"):
        await desk.reconciler.settle(KEY, TX, force=True)


async def test_a_protocol_without_settings_makes_no_receipt(desk: Desk) -> None:
    await desk.uncertain()
    reconciler = Reconciler(desk.store, Chains(()), "ada@desk")
    with pytest.raises(DecisionRefused, match="needs the settings of that protocol"):
        await reconciler.settle(KEY, TX, force=True)
    with pytest.raises(DecisionRefused):
        await reconciler.release(KEY)
    desk.clock.advance(DAY)
    with pytest.raises(DecisionRefused, match="x402 is not configured"):
        await reconciler.release(KEY)


# What is open to a decision at all.


async def test_only_an_uncertain_attempt_is_open_and_a_settling_one_once_its_lease_is_over(desk: Desk) -> None:
    assert "Nothing is recorded" in await desk.refused_release(force=True)
    await reserved(desk.store, draft())
    assert "The attempt is reserved" in await desk.refused_release(force=True)
    await desk.store.move("claim of first", RecordUncertain("too early"))
    desk.clock.advance(DAY)  # The reservation lapses.
    await settling(desk.store, draft("second"))
    assert "The attempt is settling" in await desk.refused_settle(force=True)
    desk.clock.advance(SETTLE_LEASE)
    assert (await desk.reconciler.release(KEY, force=True)).state is State.RELEASED


async def test_a_settled_attempt_is_decided_no_more(desk: Desk) -> None:
    await settled(desk.store, draft())
    assert "The attempt is settled" in await desk.refused_release(force=True)
    assert "The attempt is settled" in await desk.refused_settle(force=True)


async def test_of_an_operators_and_the_owners_late_word_the_first_stands(desk: Desk) -> None:
    row = await desk.uncertain()

    class Late(Chain):
        async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
            await desk.store.move(row.claim, RecordSettled("the owner's receipt", TX))
            return NEVER

    desk.clock.advance(DAY)
    reconciler = Reconciler(desk.store, Chains((Late(),)), "ada@desk")
    with pytest.raises(DecisionRefused, match="changed meanwhile"):
        await reconciler.release(KEY)
    assert (await desk.store.read(KEY)).rows[0].receipt == "the owner's receipt"
    assert await desk.evidence() == []
