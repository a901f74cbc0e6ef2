"""What every store promises (docs/lifecycle.md, sections 3 and 7); a new store joins STORES."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from ranking_evaluate.attempts.attempt import Audit, Draft, State, Step
from ranking_evaluate.attempts.decide import (
    Cause,
    Conflict,
    Decision,
    DuplicateProof,
    InProgress,
    OutcomeUnknown,
    Reject,
    Replay,
    Request,
    Reserve,
    Snapshot,
    decide,
)
from ranking_evaluate.attempts.events import (
    Event,
    Lapse,
    OperatorRelease,
    OperatorSettle,
    RecordNotSent,
    RecordRefused,
    RecordSettled,
    RecordSpent,
    RecordUncertain,
    Submit,
    Withdraw,
)
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sales import Sale
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from tests.attempts.samples import (
    DAY,
    KEY,
    NOW,
    OTHER_KEY,
    SETTLE_LEASE,
    TX,
    VERIFY_LEASE,
    asks,
    draft,
    proof,
    reserved,
    settled,
    settling,
    tried,
)
from tests.fakes import FixedClock
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio

OpenStore = Callable[[], Awaitable[AttemptStore]]
"""Opens one more store on the same place, as another process would."""

LOST_AND_GONE = Step(None, owned=False)


def in_sqlite(request: pytest.FixtureRequest, clock: FixedClock) -> Callable[[], AttemptStore]:
    folder: Path = request.getfixturevalue("tmp_path")
    return lambda: SqliteStore(folder / "attempts.db", clock)


def in_postgres(request: pytest.FixtureRequest, clock: FixedClock) -> Callable[[], AttemptStore]:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.new_database()
    request.addfinalizer(lambda: server.give_back(url))
    return lambda: PostgresStore(url, lambda database: clock.now())


STORES = [pytest.param(in_sqlite, id="sqlite"), pytest.param(in_postgres, id="postgres", marks=pytest.mark.beyond_unit)]


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


@pytest.fixture(params=STORES)
async def another(request: pytest.FixtureRequest, clock: FixedClock) -> AsyncIterator[OpenStore]:
    opened: list[AttemptStore] = []
    make: Callable[[], AttemptStore] = request.param(request, clock)

    async def open_one() -> AttemptStore:
        store = make()
        await store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(another: OpenStore) -> AttemptStore:
    return await another()


async def decision(store: AttemptStore, made: Request) -> Decision:
    return decide(await store.read(made.key, made.proofs), made)


async def failed(store: AttemptStore, credential: str = "first") -> None:
    row = await settling(store, draft(credential))
    await store.move(row.claim, RecordRefused("insufficient_balance"))


async def released(store: AttemptStore, credential: str = "first") -> None:
    row = await settling(store, draft(credential))
    await store.move(row.claim, RecordUncertain("timeout"))
    await store.move(row.claim, OperatorRelease("ada", "nonce unused"))


# Reading and reserving.


async def test_a_key_that_nobody_used_has_no_rows_and_begins_at_one(store: AttemptStore) -> None:
    seen = await store.read(KEY, [proof("first")])
    assert seen == Snapshot(NOW, (), 0, False, frozenset())
    assert seen.next_n == 1


async def test_a_reservation_is_the_draft_begun_now(store: AttemptStore) -> None:
    stored = await reserved(store, draft())
    assert stored == draft().begun(1, NOW)
    assert stored.lease == NOW + VERIFY_LEASE
    assert await store.find(stored.claim) == stored
    assert (await store.read(KEY)).rows == (stored,)


@pytest.mark.parametrize("text", ["", "ü€😀", "' OR 1=1 --"])
async def test_every_field_comes_back_as_it_was_stored(store: AttemptStore, text: str) -> None:
    made = draft(proofs=(proof("b"), proof("a")), payer=None, valid_before=None, payment_id=text, amount=2**53 + 1)
    row = await reserved(store, made)
    await store.move(row.claim, Submit(SETTLE_LEASE))
    step = await store.move(row.claim, RecordSettled(text, TX, text or None))
    assert step.attempt is not None
    assert step.attempt.payment_id == step.attempt.receipt == text
    assert await store.find(row.claim) == step.attempt


async def test_another_store_on_the_same_place_sees_what_was_committed(store: AttemptStore, another: OpenStore) -> None:
    row = await settled(store, draft())
    assert await (await another()).find(row.claim) == row


async def test_a_key_is_reserved_once_while_the_lease_runs(store: AttemptStore, clock: FixedClock) -> None:
    await reserved(store, draft("first"))
    clock.advance(VERIFY_LEASE - 0.001)
    assert await tried(store, draft("second")) is None
    assert await store.find("claim of second") is None


async def test_a_proof_is_reserved_once_under_any_key(store: AttemptStore) -> None:
    await reserved(store, draft("first", proofs=(proof("a"), proof("b"))))
    other = draft("second", key=OTHER_KEY, proofs=(proof("b"), proof("c")))
    assert await tried(store, other) is None
    assert (await store.read(OTHER_KEY, other.proofs)).recorded == {proof("b")}
    assert (await store.read(OTHER_KEY)).rows == ()


async def test_the_transaction_decides_again_on_what_it_finds(store: AttemptStore) -> None:
    made = draft("second")
    seen = await store.read(KEY, made.proofs)
    await settled(store, draft("first"))
    assert await store.reserve(made, asks(made), seen) is None


async def test_a_reservation_takes_the_n_that_was_read_or_none(store: AttemptStore) -> None:
    made = draft("second")
    seen = await store.read(KEY, made.proofs)
    await failed(store)
    assert await store.reserve(made, asks(made), seen) is None
    assert (await reserved(store, made)).n == 2


async def test_an_n_that_was_read_before_it_was_used_and_purged_is_not_taken_again(
    store: AttemptStore, clock: FixedClock
) -> None:
    made = draft("second")
    seen = await store.read(KEY, made.proofs)
    await failed(store)
    clock.advance(DAY)
    await store.purge()
    assert await store.reserve(made, asks(made), seen) is None
    assert (await reserved(store, made)).n == 2


async def test_a_reservation_that_meets_a_unique_violation_leaves_everything_as_it_was(
    store: AttemptStore, clock: FixedClock
) -> None:
    lapsed = await reserved(store, draft("lapsed", key=OTHER_KEY))
    clock.advance(VERIFY_LEASE)
    await reserved(store, draft("first"))
    assert await tried(store, draft("second", key=OTHER_KEY, claim="claim of first")) is None
    assert await store.find(lapsed.claim) == lapsed


async def test_an_attempt_without_a_proof_is_a_mistake_of_the_caller(store: AttemptStore) -> None:
    with pytest.raises(ValueError, match="proof"):
        await tried(store, draft(proofs=()))


# Leases.


async def test_a_lapsed_reservation_counts_as_absent_and_its_proofs_as_unused(
    store: AttemptStore, clock: FixedClock
) -> None:
    await reserved(store, draft())
    assert await decision(store, asks(draft())) == InProgress()
    assert (await store.read(KEY, [proof("first")])).recorded == {proof("first")}
    clock.advance(VERIFY_LEASE)
    assert await decision(store, asks(draft())) == Reserve()
    assert (await store.read(KEY, [proof("first")])).recorded == frozenset()


async def test_a_lapsed_reservation_is_replaced_at_its_own_n(store: AttemptStore, clock: FixedClock) -> None:
    lost = await reserved(store, draft("first"))
    clock.advance(VERIFY_LEASE)
    taken = await reserved(store, draft("first", claim="claim of the second owner"))
    assert taken.n == 1
    assert (await store.read(KEY)).rows == (taken,)
    assert await store.move(lost.claim, Submit(SETTLE_LEASE)) == LOST_AND_GONE
    assert await store.move(lost.claim, Withdraw()) == LOST_AND_GONE
    assert (await store.read(KEY, taken.proofs)).recorded == set(taken.proofs)


async def test_who_needs_a_proof_deletes_the_lapsed_reservation_that_holds_it_whole(
    store: AttemptStore, clock: FixedClock
) -> None:
    lost = await reserved(store, draft("first", proofs=(proof("a"), proof("b"))))
    clock.advance(VERIFY_LEASE)
    await reserved(store, draft("second", key=OTHER_KEY, proofs=(proof("a"),)))
    assert await store.find(lost.claim) is None
    assert (await reserved(store, draft("third", proofs=(proof("b"),)))).n == 1


async def test_a_lapsed_reservation_above_a_failed_attempt_is_answered_as_the_failed_one(
    store: AttemptStore, clock: FixedClock
) -> None:
    await failed(store)
    await reserved(store, draft("second"))
    clock.advance(VERIFY_LEASE)
    assert isinstance(await decision(store, asks(draft("first"))), Reject)
    assert (await reserved(store, draft("third"))).n == 2


async def test_submit_is_refused_in_the_last_second_and_leaves_nothing(store: AttemptStore, clock: FixedClock) -> None:
    row = await reserved(store, draft())
    clock.advance(VERIFY_LEASE - 0.5)
    assert await store.move(row.claim, Submit(SETTLE_LEASE)) == LOST_AND_GONE
    assert await store.read(KEY, row.proofs) == Snapshot(clock.now())


async def test_a_settling_attempt_is_uncertain_once_its_lease_is_over_whoever_looks(
    store: AttemptStore, another: OpenStore, clock: FixedClock
) -> None:
    row = await settling(store, draft())
    assert await decision(store, asks(draft())) == InProgress()
    assert not (await store.move(row.claim, Lapse())).owned
    clock.advance(SETTLE_LEASE)
    reader = await another()
    assert isinstance(await decision(reader, asks(draft())), OutcomeUnknown)
    assert (await reader.move(row.claim, Lapse())).owned
    stored = await store.find(row.claim)
    assert stored is not None
    assert stored.state is State.UNCERTAIN


# Moves.


@pytest.mark.parametrize("event", [Withdraw(), RecordNotSent()], ids=["withdrawn", "not sent"])
async def test_what_came_to_nothing_leaves_the_credential_unused(store: AttemptStore, event: Event) -> None:
    row = await (reserved if isinstance(event, Withdraw) else settling)(store, draft())
    assert await store.move(row.claim, event) == Step(None)
    assert await store.read(KEY, row.proofs) == Snapshot(NOW)
    assert (await reserved(store, draft())).n == 1


async def test_what_came_to_nothing_takes_only_its_own_proofs_and_the_failed_row_stands_again(
    store: AttemptStore,
) -> None:
    await failed(store)
    before = await store.read(KEY)
    row = await reserved(store, draft("second"))
    await store.move(row.claim, Withdraw())
    assert await store.read(KEY) == before
    assert isinstance(await decision(store, asks(draft("first"))), Reject)
    assert await decision(store, asks(draft("first, again", proofs=(proof("first"),)))) == DuplicateProof()


async def test_a_claim_that_nobody_holds_moves_nothing(store: AttemptStore) -> None:
    row = await settling(store, draft())
    assert await store.move("claim of a stranger", RecordSettled("receipt", TX)) == LOST_AND_GONE
    assert await store.find(row.claim) == row


async def test_an_event_that_is_no_line_of_the_table_writes_nothing(store: AttemptStore, clock: FixedClock) -> None:
    row = await settled(store, draft())
    clock.advance(1)
    for event in (
        RecordSettled("another receipt", TX),
        RecordRefused("late"),
        RecordNotSent(),
        RecordUncertain("late"),
        OperatorRelease("ada", ""),
    ):
        assert await store.move(row.claim, event) == Step(row, owned=False)
    assert await store.find(row.claim) == row
    assert await store.audits(KEY) == []


async def test_an_authorization_used_by_somebody_else_leaves_the_attempt_uncertain(store: AttemptStore) -> None:
    row = await reserved(store, draft())
    assert (await store.move(row.claim, RecordSpent("nonce_already_used"))).owned
    assert isinstance(await decision(store, asks(draft())), OutcomeUnknown)


async def test_of_two_answers_for_one_attempt_the_first_stands(store: AttemptStore, another: OpenStore) -> None:
    row = await settling(store, draft())
    other = await another()
    steps = await asyncio.gather(
        store.move(row.claim, RecordSettled("receipt of one", TX)),
        other.move(row.claim, RecordSettled("receipt of two", TX)),
    )
    winner = next(step for step in steps if step.owned)
    assert [step.owned for step in steps].count(True) == 1
    assert {step.attempt for step in steps} == {winner.attempt}
    assert await store.find(row.claim) == winner.attempt


async def test_a_failed_attempt_makes_room_for_the_next_n_and_keeps_its_proofs(store: AttemptStore) -> None:
    await failed(store)
    assert (await reserved(store, draft("second"))).n == 2
    seen = await store.read(KEY, [proof("first")])
    assert [row.n for row in seen.rows] == [1, 2]
    assert seen.last_n == 1
    assert seen.recorded == {proof("first")}


NEW_KEY: Final = proof("of a new key")


def first_payment(credential: str = "first", **changes: Any) -> Draft:
    """Return a draft whose payment carries a new key's authorization."""
    return draft(credential, proofs=(proof(credential), NEW_KEY), new_key_proof=NEW_KEY, **changes)


@pytest.mark.parametrize("ends", ["failed", "released"])
async def test_what_came_to_nothing_gives_its_new_key_back_and_keeps_its_other_proofs(
    store: AttemptStore, ends: str
) -> None:
    row = await settling(store, first_payment())
    second = first_payment("second", key=OTHER_KEY)
    assert await tried(store, second) is None
    event = RecordRefused("no") if ends == "failed" else OperatorRelease("ada", "never landed")
    if ends == "released":
        await store.move(row.claim, RecordUncertain("timeout"))
    step = await store.move(row.claim, event)
    assert step.attempt is not None
    assert (step.attempt.proofs, step.attempt.new_key_proof) == ((proof("first"),), None)
    assert await store.find(row.claim) == step.attempt
    assert (await store.read(OTHER_KEY, second.proofs)).recorded == frozenset()
    assert (await store.read(OTHER_KEY, row.proofs)).recorded == {proof("first")}
    assert (await reserved(store, second)).new_key_proof == NEW_KEY
    # A late answer that the first one was made after all takes nothing from the second.
    await store.move(row.claim, RecordSettled("the receipt", TX))
    assert (await store.read(OTHER_KEY, second.proofs)).recorded == set(second.proofs)


async def test_a_payment_that_was_made_keeps_its_new_key(store: AttemptStore, clock: FixedClock) -> None:
    await settled(store, first_payment())
    assert await tried(store, first_payment("second", key=OTHER_KEY)) is None
    clock.advance(2 * DAY)
    await store.purge()
    assert await tried(store, first_payment("second", key=OTHER_KEY)) is None


# Operators.


async def test_an_operators_decision_is_audited_with_who_when_what_and_evidence(
    store: AttemptStore, clock: FixedClock
) -> None:
    await released(store)
    clock.advance(60)
    step = await store.move("claim of first", OperatorSettle("reconciled", TX, "grace", "transfer in block 7"))
    assert step.owned
    assert await store.audits(KEY) == [
        (NOW, 1, Audit("ada", "released", "nonce unused")),
        (NOW + 60, 1, Audit("grace", "settled", "transfer in block 7")),
    ]
    assert await store.audits(OTHER_KEY) == []


async def test_a_decision_whose_audit_cannot_be_written_is_not_taken(store: AttemptStore) -> None:
    row = await settling(store, draft())
    await store.move(row.claim, RecordUncertain("timeout"))
    with pytest.raises(StoreUnavailable):
        await store.move(row.claim, OperatorRelease("ada", "e" * 5000))
    assert isinstance(await decision(store, asks(draft())), OutcomeUnknown)


async def test_an_operator_decides_about_a_settling_attempt_past_its_lease_only(
    store: AttemptStore, clock: FixedClock
) -> None:
    row = await settling(store, draft())
    assert not (await store.move(row.claim, OperatorRelease("ada", "too early"))).owned
    clock.advance(SETTLE_LEASE)
    assert (await store.move(row.claim, OperatorRelease("ada", "nonce unused"))).owned


async def test_money_that_arrives_after_a_release_is_recorded_and_stands_in_the_audit(store: AttemptStore) -> None:
    await released(store)
    step = await store.move("claim of first", RecordSettled("receipt", TX))
    assert not step.owned
    assert step.audit == Audit("service", "settled after release", TX)
    assert await store.audits(KEY) == [
        (NOW, 1, Audit("ada", "released", "nonce unused")),
        (NOW, 1, Audit("service", "settled after release", TX)),
    ]
    assert isinstance(await decision(store, asks(draft())), Replay)


async def test_money_that_arrives_below_a_newer_attempt_is_marked_where_it_stands(
    store: AttemptStore, clock: FixedClock
) -> None:
    await released(store)
    clock.advance(100)
    newer = await settling(store, draft("second"))
    step = await store.move("claim of first", RecordSettled("receipt", TX))
    assert step.audit == Audit("service", "settled after release", TX)
    assert step.attempt is not None
    assert (step.attempt.state, step.attempt.expires_at) == (State.SETTLED, NOW + DAY)
    assert (await store.read(KEY)).rows == (step.attempt, newer)
    assert not (await store.move("claim of first", OperatorSettle("r", TX, "ada", "e"))).owned


async def test_a_lapsed_reservation_above_it_does_not_keep_a_released_attempt_from_being_settled(
    store: AttemptStore, clock: FixedClock
) -> None:
    await released(store)
    await reserved(store, draft("second"))
    settles = OperatorSettle("reconciled", TX, "ada", "block 7")
    assert not (await store.move("claim of first", settles)).owned
    clock.advance(VERIFY_LEASE)
    assert (await store.move("claim of first", settles)).owned


async def test_recent_lists_what_changed_last_first_as_an_operator_sees_the_states(
    store: AttemptStore, clock: FixedClock
) -> None:
    def key(n: int) -> str:
        return f"purchase-number-{n:04d}"

    await settling(store, draft("a", key=key(1)))
    clock.advance(SETTLE_LEASE)
    await settled(store, draft("b", key=key(2)))
    clock.advance(1)
    doubted = await settling(store, draft("c", key=key(3)))
    await store.move(doubted.claim, RecordUncertain("timeout"))
    clock.advance(1)
    await settling(store, draft("d", key=key(4)))
    clock.advance(1)
    await reserved(store, draft("e", key=key(5)))

    async def listed(state: State | None, limit: int = 100) -> list[str]:
        return [row.key for row in await store.recent(state, limit)]

    assert await listed(None) == [key(5), key(4), key(3), key(2), key(1)]
    assert await listed(None, 2) == [key(5), key(4)]
    assert await listed(State.UNCERTAIN) == [key(3), key(1)]
    assert await listed(State.SETTLING) == [key(4)]
    assert await listed(State.RESERVED) == [key(5)]
    assert await listed(State.SETTLED) == [key(2)]
    assert await listed(State.FAILED) == []
    assert await listed(State.RELEASED) == []


# Purge.


async def test_the_purge_takes_a_settled_attempt_after_its_day_and_its_proofs_say_paid(
    store: AttemptStore, clock: FixedClock
) -> None:
    row = await settled(store, draft())
    clock.advance(DAY - 1)
    assert await store.purge() == 0
    clock.advance(1)
    assert await store.purge() == 1
    assert await store.find(row.claim) is None
    seen = await store.read(KEY, row.proofs)
    assert seen == Snapshot(clock.now(), (), 1, True, frozenset(row.proofs))
    assert await decision(store, asks(draft("fresh"))) == Conflict(Cause.EXPIRED)
    assert await decision(store, asks(draft("fresh", key=OTHER_KEY, proofs=row.proofs))) == DuplicateProof()


@pytest.mark.parametrize("end", [failed, released])
async def test_after_the_purge_of_an_unpaid_attempt_n_counts_on_and_its_proofs_stay_used(
    store: AttemptStore, clock: FixedClock, end: Callable[[AttemptStore], Awaitable[None]]
) -> None:
    await end(store)
    clock.advance(DAY)
    assert await store.purge() == 1
    assert await decision(store, asks(draft("first"))) == DuplicateProof()
    row = await reserved(store, draft("second"))
    assert row.n == 2
    await store.move(row.claim, Withdraw())
    assert (await store.read(KEY, [proof("first")])).recorded == {proof("first")}
    assert (await reserved(store, draft("third"))).n == 2


async def test_the_purge_never_takes_an_attempt_whose_outcome_is_unknown(
    store: AttemptStore, clock: FixedClock
) -> None:
    await settling(store, draft("first"))
    doubted = await settling(store, draft("second", key=OTHER_KEY))
    await store.move(doubted.claim, RecordUncertain("timeout"))
    clock.advance(365 * DAY)
    assert await store.purge() == 0
    assert len(await store.recent(State.UNCERTAIN)) == 2


async def test_the_purge_takes_a_lapsed_reservation_an_hour_later_with_its_proofs(
    store: AttemptStore, clock: FixedClock
) -> None:
    row = await reserved(store, draft())
    clock.advance(VERIFY_LEASE + 3599)
    assert await store.purge() == 0
    clock.advance(1)
    assert await store.purge() == 1
    assert await store.find(row.claim) is None
    assert await store.read(KEY, row.proofs) == Snapshot(clock.now())


async def test_the_purge_works_in_batches_until_nothing_is_left(store: AttemptStore, clock: FixedClock) -> None:
    for n in range(5):
        await settled(store, draft(f"paid {n}", key=f"purchase-paid-{n:06d}"))
        await reserved(store, draft(f"lapsed {n}", key=f"purchase-lapsed-{n:06d}"))
    clock.advance(DAY)
    assert [await store.purge(4) for _ in range(4)] == [4, 4, 2, 0]
    assert await store.recent() == []


async def test_a_submitted_n_never_comes_twice(store: AttemptStore, clock: FixedClock) -> None:
    seen = []
    for n in range(4):
        seen.append((await settling(store, draft(f"attempt {n}"))).n)
        await store.move(f"claim of attempt {n}", RecordRefused("insufficient_balance"))
        clock.advance(DAY)
        await store.purge()
    assert seen == [1, 2, 3, 4]


# Many at once.


async def test_of_fifty_copies_in_two_processes_one_gets_the_key(store: AttemptStore, another: OpenStore) -> None:
    other = await another()
    copies = [draft("first", claim=f"claim of copy {n}") for n in range(50)]
    got = await asyncio.gather(*(tried((store, other)[n % 2], copy) for n, copy in enumerate(copies)))
    winners = [row for row in got if row is not None]
    assert len(winners) == 1
    assert (await store.read(KEY)).rows == tuple(winners)


async def test_of_fifty_keys_in_two_processes_one_gets_the_proof(store: AttemptStore, another: OpenStore) -> None:
    other = await another()
    made = [
        draft(f"credential {n}", key=f"purchase-number-{n:04d}", proofs=(proof(f"own {n}"), proof("shared")))
        for n in range(50)
    ]
    got = await asyncio.gather(*(tried((store, other)[n % 2], one) for n, one in enumerate(made)))
    assert len([row for row in got if row is not None]) == 1
    assert len(await store.recent()) == 1


async def test_of_fifty_owners_of_a_lapsed_reservation_one_takes_its_place(
    store: AttemptStore, another: OpenStore, clock: FixedClock
) -> None:
    await reserved(store, draft("first"))
    clock.advance(VERIFY_LEASE)
    other = await another()
    copies = [draft("first", claim=f"claim of copy {n}") for n in range(50)]
    got = await asyncio.gather(*(tried((store, other)[n % 2], copy) for n, copy in enumerate(copies)))
    assert [row.n for row in got if row is not None] == [1]


async def test_more_purchases_at_once_than_a_batch_holds_all_settle(store: AttemptStore) -> None:
    rows = await asyncio.gather(
        *(settled(store, draft(f"credential {n}", key=f"purchase-number-{n:04d}")) for n in range(600))
    )
    assert {row.state for row in rows} == {State.SETTLED}
    assert len(await store.recent(State.SETTLED, 1000)) == 600


async def test_a_caller_that_goes_away_changes_nothing_for_the_others(store: AttemptStore, another: OpenStore) -> None:
    row = await settling(store, draft())
    leaving = asyncio.create_task(store.move(row.claim, RecordSettled("receipt", TX)))
    await asyncio.sleep(0)
    staying = asyncio.create_task(store.find(row.claim))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying is not None
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await store.close()
    found = await (await another()).find(row.claim)
    assert found is not None
    assert found.state is State.SETTLED


async def test_a_row_that_would_be_too_large_is_refused_alone(store: AttemptStore) -> None:
    row = await settling(store, draft("first"))
    other = await settling(store, draft("second", key=OTHER_KEY))
    refused, taken = await asyncio.gather(
        store.move(row.claim, RecordSettled("r" * 131_073, TX)),
        store.move(other.claim, RecordSettled("r" * 131_072, TX)),
        return_exceptions=True,
    )
    assert isinstance(refused, StoreUnavailable)
    assert isinstance(taken, Step)
    assert taken.owned
    assert await store.find(row.claim) == row


async def test_text_that_cannot_be_stored_fails_its_own_operation_only(store: AttemptStore) -> None:
    row = await settling(store, draft())
    await store.move(row.claim, RecordUncertain("timeout"))
    refused, read = await asyncio.gather(
        store.move(row.claim, OperatorRelease("ada", "\ud800")), store.find(row.claim), return_exceptions=True
    )
    assert isinstance(refused, UnicodeEncodeError)
    assert not isinstance(read, BaseException)
    assert isinstance(await decision(store, asks(draft())), OutcomeUnknown)


async def test_a_closed_store_is_unavailable(store: AttemptStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.read(KEY)
    await store.close()


# The books.


async def test_a_settlement_is_a_sale_with_all_that_the_books_keep(store: AttemptStore, clock: FixedClock) -> None:
    clock.advance(7)
    row = await settled(store, draft(recipient="0x" + "44" * 20))
    [sale] = await store.sales()
    assert sale == Sale(
        id=sale.id,
        at=NOW + 7,
        key_sha256=hashlib.sha256(KEY.encode()).hexdigest(),
        n=1,
        protocol="x402",
        operation="ranking.evaluate",
        release="0.29.0",
        amount=10_000,
        asset=row.asset,
        network="eip155:84532",
        recipient="0x" + "44" * 20,
        payer=row.payer,
        transaction=TX,
        reconciled=False,
    )
    assert await store.sales_of(KEY) == [sale]
    assert await store.sales_of(OTHER_KEY) == []


async def test_only_payments_received_are_sales_and_each_is_one(store: AttemptStore) -> None:
    await failed(store, "refused")
    await released(store, "late")
    assert await store.sales() == []
    await store.move("claim of late", RecordSettled("receipt", TX))
    await store.move("claim of late", RecordSettled("receipt", TX))
    [late] = await store.sales()
    assert (late.n, late.reconciled) == (2, False)
    row = await settling(store, draft("doubted", key=OTHER_KEY))
    await store.move(row.claim, RecordUncertain("timeout"))
    await store.move(row.claim, OperatorSettle("reconciled", TX, "ada", "block 7"))
    [_, decided] = await store.sales()
    assert (decided.reconciled, decided.id > late.id) == (True, True)


async def test_a_sale_that_cannot_be_written_undoes_the_settlement(store: AttemptStore) -> None:
    row = await settling(store, draft())
    with pytest.raises(StoreUnavailable):
        await store.move(row.claim, RecordSettled("receipt", "0x" + "a" * 300))
    assert await store.find(row.claim) == row
    assert await store.sales() == []


async def test_sales_outlive_the_purge_and_come_page_by_page(store: AttemptStore, clock: FixedClock) -> None:
    for n in range(5):
        await settled(store, draft(f"c{n}", key=f"purchase-number-{n:04d}"))
    clock.advance(DAY)
    assert await store.purge() == 5
    first = await store.sales(limit=3)
    rest = await store.sales(after=first[-1].id, limit=3)
    assert [len(first), len(rest)] == [3, 2]
    assert await store.sales(after=rest[-1].id) == []


async def test_a_refund_is_recorded_once_with_its_audit_row(store: AttemptStore, clock: FixedClock) -> None:
    await settled(store, draft())
    [sale] = await store.sales_of(KEY)
    clock.advance(60)
    back = "0x" + "cd" * 32
    assert await store.refund(sale, back, Audit("ada", "refunded", back), KEY)
    assert not await store.refund(sale, "0x" + "ef" * 32, Audit("ada", "refunded", "twice"), KEY)
    assert await store.sales() == [replace(sale, refunded_at=NOW + 60, refund_transaction=back)]
    assert await store.audits(KEY) == [(NOW + 60, 1, Audit("ada", "refunded", back))]


async def test_what_a_provider_says_is_kept_beside_the_reason(store: AttemptStore) -> None:
    row = await settling(store, draft())
    step = await store.move(row.claim, RecordUncertain("it is pending", "settlement_pending", "0xreported"))
    assert step.attempt is not None
    assert (step.attempt.reason_code, step.attempt.reported_transaction) == ("settlement_pending", "0xreported")
    assert (await store.find(row.claim)) == step.attempt
    assert step.attempt.transaction is None
    step = await store.move(row.claim, RecordSettled("receipt", TX))
    assert step.attempt is not None
    assert (step.attempt.transaction, step.attempt.reason_code) == (TX, None)
    assert step.attempt.reported_transaction == "0xreported"
