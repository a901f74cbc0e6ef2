"""The walk of one paid request, cell by cell, with a scripted protocol over the real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import apsw
import pytest
import structlog

from ranking_evaluate import order as ordering
from ranking_evaluate.attempts.attempt import State, Step
from ranking_evaluate.attempts.decide import Request, Snapshot
from ranking_evaluate.attempts.events import Event, OperatorRelease, RecordSettled, Submit
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract import answer as answering
from ranking_evaluate.contract.errors import RETRY_AFTER, ServiceError
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.operations.registry import find
from ranking_evaluate.order import Delivery, Order, consider
from ranking_evaluate.payments.protocol import (
    NotSent,
    Offer,
    Readiness,
    Refused,
    Rejected,
    Settled,
    Settlement,
    Spent,
    Uncertain,
    Unreachable,
    Verification,
)
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from ranking_evaluate.release import VERSION
from ranking_evaluate.telemetry.metrics import REGISTRY
from tests.fakes import VALID_SECONDS, FixedClock, ScriptedProtocol, Signed

pytestmark = pytest.mark.anyio

KEY: Final = "purchase-of-monday-0001"
OTHER_KEY: Final = "purchase-of-tuesday-002"
BODY: Final = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'
SAME_INPUT: Final = (
    b' {"k":10,"queries":[{"judgments":[{"grade":1.0,"id":"\\u0061"}],"retrieved":["a"],"id":"q"}],"relevantAtLeast":1}'
)
OTHER_BODY: Final = b'{"queries":[{"id":"q","retrieved":["b"],"judgments":[{"id":"b","grade":1}]}]}'
DAY: Final = 24 * 3600
UNREADABLE: Final = {"x-scripted-payment": "{"}


class OtherProtocol(ScriptedProtocol):
    """The protocol of another route."""

    wire = Wire(
        name="other",
        title="other",
        credential_header="X-Other-Payment",
        challenge_header="X-Other-Challenge",
        receipt_header="X-Other-Receipt",
    )


class FlakyStore(SqliteStore):
    """The real store; `trouble` may raise before or after a write, as a store that fails does."""

    def __init__(self, path: Path, clock: FixedClock) -> None:
        super().__init__(path, clock)
        self.before: Callable[[str, object], None] = lambda name, event: None
        self.after: Callable[[str, object], None] = lambda name, event: None
        self.calls: list[str] = []

    async def read(self, key: str, proofs: Any = ()) -> Snapshot:
        self.calls.append("read")
        self.before("read", None)
        return await super().read(key, proofs)

    async def reserve(self, draft: Any, request: Request, seen: Snapshot) -> Any:
        self.calls.append("reserve")
        self.before("reserve", draft)
        made = await super().reserve(draft, request, seen)
        self.after("reserve", draft)
        return made

    async def move(self, claim: str, event: Event) -> Step:
        self.calls.append(type(event).__name__)
        self.before("move", event)
        step = await super().move(claim, event)
        self.after("move", event)
        return step

    async def find(self, claim: str) -> Any:
        self.before("find", None)
        return await super().find(claim)


def settled(signed: Signed, offer: Offer) -> Settlement:
    return Settled(f"receipt of {signed.proof}", f"tx of {signed.proof}", "payer")


class Shop:
    """A walk with everything it needs in the test's hands."""

    def __init__(self, path: Path, *, payment_rate: str | None = None) -> None:
        self.path = path
        self.clock = FixedClock()
        self.store = FlakyStore(path, self.clock)
        self.protocol = ScriptedProtocol()
        self.protocol.settler = self.settle
        self.outcome: Callable[[Signed, Offer], Any] = settled
        self.settlements = 0
        self.purchases = self.new_purchases(payment_rate)

    def new_purchases(self, payment_rate: str | None = None, **named: Any) -> Purchases:
        return Purchases(
            self.store,
            Rates("memory://", None, payment_rate),
            Evaluations(1, None),
            (self.protocol.wire, OtherProtocol.wire),
            **{"chains": Chains(()), **named},
            verify_timeout=1.0,
            settle_timeout=1.0,
            clock=self.clock,
        )

    def settle(self, signed: Signed, offer: Offer) -> Any:
        self.settlements += 1
        return self.outcome(signed, offer)

    def signed(self, proof: str = "first", *, key: str = KEY, seconds: float = VALID_SECONDS) -> Signed:
        return Signed(key, proof, self.clock.now() + seconds)

    def order(
        self,
        signed: Signed | None = None,
        *,
        key: str = KEY,
        body: bytes = BODY,
        headers: dict[str, str] | None = None,
        client: str = "caller",
    ) -> Order:
        return Order(
            operation=find("ranking-evaluate"),
            wire=self.protocol.wire,
            protocol=self.protocol,
            key=key,
            url="http://service.test/v1/scripted/ranking-evaluate",
            body=body,
            headers=(signed.header() if signed else {}) | (headers or {}),
            client=client,
        )

    async def buy(self, signed: Signed | None = None, **order: Any) -> Delivery:
        return await self.purchases.buy(self.order(signed, **order))

    async def refused(self, signed: Signed | None = None, **order: Any) -> ServiceError:
        with pytest.raises(ServiceError) as error:
            await self.buy(signed, **order)
        return error.value

    async def answer(self, order: Order) -> Delivery | ServiceError:
        try:
            return await self.purchases.buy(order)
        except ServiceError as error:
            return error

    async def state(self, key: str = KEY) -> State | None:
        row = (await SqliteStore.read(self.store, key)).standing
        return None if row is None else row.state

    async def until(self, state: State) -> None:
        while await self.state() is not state:  # noqa: ASYNC110 - A row has no event.
            await asyncio.sleep(0.001)

    async def put(self, state: str, signed: Signed) -> None:
        """Bring the key into a state by what can happen to a purchase."""
        match state:
            case "none":
                return
            case "reserved" | "settling":
                held: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                if state == "reserved":
                    self.protocol.verifier = lambda signed: held
                else:
                    self.outcome = lambda signed, offer: held
                # The owner is another process, which has died meanwhile.
                owner = asyncio.create_task(self.new_purchases().buy(self.order(signed)))
                await self.until(State(state))
                owner.cancel()
                for task in [task for task in asyncio.all_tasks() if task.get_name() == "settle"]:
                    task.cancel()
                    await asyncio.wait([task])
                self.protocol.verifier = ScriptedProtocol().verifier
                self.outcome = settled
            case "settling, lease over":
                await self.put("settling", signed)
                self.clock.advance(12)
            case "reserved, lease over":
                await self.put("reserved", signed)
                self.clock.advance(22)
            case "uncertain":
                self.outcome = lambda signed, offer: Uncertain("script")
                assert (await self.refused(signed)).code == "PAYMENT_UNCERTAIN"
            case "settled":
                await self.buy(signed)
            case "settled, 24 h over":
                await self.buy(signed)
                self.clock.advance(DAY)
            case "failed":
                self.outcome = lambda signed, offer: Refused("the script refuses", "refused receipt")
                assert (await self.refused(signed)).code == "PAYMENT_REJECTED"
            case "failed, 24 h over":
                await self.put("failed", signed)
                self.clock.advance(DAY)
            case "released":
                await self.put("uncertain", signed)
                row = (await SqliteStore.read(self.store, KEY)).standing
                assert row is not None
                await self.store.move(row.claim, OperatorRelease("operator", "never landed"))
            case _:
                raise AssertionError(state)
        self.outcome = settled
        self.settlements = 0
        self.protocol.challenges = 0
        self.store.calls.clear()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path / "attempts.db")
    await made.store.open()
    yield made
    await made.purchases.drain()
    await made.store.close()


# The table.

CHALLENGE = (402, "PAYMENT_REQUIRED", None)
REJECTED = (402, "PAYMENT_REJECTED", None)
BOUGHT = (200, "", None)
REPLAY = (200, "replayed", None)
IN_PROGRESS = (409, "PAYMENT_IN_PROGRESS", None)
UNCERTAIN = (409, "PAYMENT_UNCERTAIN", None)
DUPLICATE = (409, "DUPLICATE_PROOF", None)


def conflict(cause: str) -> tuple[int, str, str]:
    return (409, "IDEMPOTENCY_CONFLICT", cause)


COLUMNS = ("other body", "none", "unreadable", "same credential", "another credential", "same proof, other credential")
TABLE = {
    "none": (None, CHALLENGE, REJECTED, None, BOUGHT, None),
    "reserved": (
        conflict("body"),
        IN_PROGRESS,
        IN_PROGRESS,
        IN_PROGRESS,
        conflict("credential"),
        DUPLICATE,
    ),
    "settling": (
        conflict("body"),
        IN_PROGRESS,
        IN_PROGRESS,
        IN_PROGRESS,
        conflict("credential"),
        DUPLICATE,
    ),
    "settling, lease over": (conflict("body"), UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN),
    "uncertain": (conflict("body"), UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN),
    "settled": (conflict("body"), conflict("paid"), conflict("paid"), REPLAY, conflict("paid"), DUPLICATE),
    "failed": (conflict("body"), CHALLENGE, REJECTED, REJECTED, BOUGHT, DUPLICATE),
    "released": (conflict("body"), CHALLENGE, REJECTED, REJECTED, BOUGHT, DUPLICATE),
    "settled, 24 h over": (conflict("expired"),) * 6,
    # A lapsed reservation is answered as the row before it, here none, and its proofs do not count.
    "reserved, lease over": (CHALLENGE, CHALLENGE, REJECTED, BOUGHT, BOUGHT, BOUGHT),
    # A failed key is free again after a day, its proof is not.
    "failed, 24 h over": (CHALLENGE, CHALLENGE, REJECTED, DUPLICATE, BOUGHT, DUPLICATE),
}
CELLS = [
    pytest.param(state, column, cell, id=f"{state} x {column}")
    for state, cells in TABLE.items()
    for column, cell in zip(COLUMNS, cells, strict=True)
    if cell is not None
]


@pytest.mark.parametrize(("state", "column", "cell"), CELLS)
async def test_every_cell_of_the_table(shop: Shop, state: str, column: str, cell: tuple[int, str, str | None]) -> None:
    first = shop.signed(seconds=2 * DAY)
    await shop.put(state, first)
    expected = cell
    match column:
        case "other body":
            order = shop.order(body=OTHER_BODY)
            # Whatever comes with it, a key stands for one input.
            if cell[0] == 409:
                with_credential = await shop.refused(first, body=OTHER_BODY)
                assert (with_credential.status, with_credential.code, with_credential.cause) == expected
        case "none":
            order = shop.order()
        case "unreadable":
            order = shop.order(headers=UNREADABLE)
        case "same credential":
            order = shop.order(first)
        case "another credential":
            order = shop.order(shop.signed("second"))
        case _:
            order = shop.order(Signed(KEY, first.proof, first.valid_before, dressing=1))
    answer = await shop.answer(order)
    if isinstance(answer, ServiceError):
        assert (answer.status, answer.code, answer.cause) == expected
        assert shop.settlements == 0
        is_402 = answer.status == 402
        assert ("x-scripted-challenge" in answer.headers) is is_402
        assert shop.protocol.challenges == (1 if is_402 else 0)
        assert answer.retry_after == (RETRY_AFTER if answer.code == "PAYMENT_IN_PROGRESS" else None)
        assert "reserve" not in shop.store.calls
    else:
        assert (200, "replayed" if answer.replayed else "", None) == expected
        assert shop.settlements == (0 if answer.replayed else 1)
        row = (await shop.store.read(KEY)).standing
        assert row is not None
        assert answer.receipt == row.receipt
        if answer.replayed:
            assert answer.receipt == "receipt of first"


@pytest.mark.parametrize("state", ["failed", "released"])
async def test_a_refused_credential_is_answered_from_the_row_without_a_call(shop: Shop, state: str) -> None:
    first = shop.signed()
    await shop.put(state, first)
    shop.protocol.verifier = lambda signed: pytest.fail("a refused credential was verified again")
    error = await shop.refused(first)
    reason = {"failed": "the script refuses", "released": "released by an operator"}[state]
    assert reason in error.detail
    assert error.members["reason"] == reason
    assert error.headers.get("x-scripted-receipt") == {"failed": "refused receipt", "released": None}[state]


@pytest.mark.parametrize("state", ["settling", "uncertain", "settled", "failed"])
async def test_a_proof_stays_used_under_every_other_key(shop: Shop, state: str) -> None:
    first = shop.signed()
    await shop.put(state, first)
    relabelled = Signed(OTHER_KEY, first.proof, first.valid_before)
    for body in (BODY, OTHER_BODY):
        assert (await shop.refused(relabelled, key=OTHER_KEY, body=body)).code == "DUPLICATE_PROOF"
    assert shop.settlements == 0
    assert await shop.state(OTHER_KEY) is None


async def test_the_same_input_written_otherwise_is_the_same_purchase(shop: Shop) -> None:
    first = shop.signed()
    bought = await shop.buy(first)
    again = await shop.buy(first, body=SAME_INPUT)
    assert (again.body, again.receipt, again.replayed) == (bought.body, bought.receipt, True)
    assert shop.settlements == 1


async def test_results_that_changed_within_a_release_are_a_conflict_as_another_release_is(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shop.signed()
    await shop.put("settled", first)
    monkeypatch.setattr(ordering, "published_sha256", lambda operation: "ab" * 32)
    error = await shop.refused(first)
    assert (error.code, error.cause) == ("IDEMPOTENCY_CONFLICT", "release")
    assert error.detail == "This key was used under release 0.29.0, whose results have changed since."


async def test_a_row_from_before_results_were_part_of_the_fingerprint_is_replayed(shop: Shop) -> None:
    first = shop.signed()
    await shop.put("settled", first)
    order = shop.order(first)
    answered = answering.answer(order.operation, order.body)
    former = consider(order, answered, (shop.protocol.wire,), shop.clock(), VERSION).request.former_fingerprint
    with closing(apsw.Connection(str(shop.path))) as db:
        db.execute("UPDATE attempts SET fingerprint = ?, schema_sha256 = NULL", (former,))
    assert (await shop.buy(first)).replayed
    error = await shop.refused(first, body=OTHER_BODY)
    assert error.cause == "body"


async def test_another_release_is_a_conflict_with_its_cause(shop: Shop) -> None:
    first = shop.signed()
    await shop.buy(first)
    shop.purchases = shop.new_purchases(release="0.30.0")
    assert (await shop.refused(first)).cause == "release"


# The order of the checks.


async def test_input_is_refused_before_any_payment_is_looked_at(shop: Shop) -> None:
    for headers in ({}, UNREADABLE, {"x-other-payment": "x"}, shop.signed(key=OTHER_KEY).header()):
        error = await shop.refused(body=b"{", headers=headers)
        assert (error.status, error.code) == (400, "MALFORMED_JSON")
        error = await shop.refused(body=b'{"queries":[]}', headers=headers)
        assert (error.status, error.code) == (422, "INVALID_INPUT")
    assert shop.store.calls == []


@pytest.mark.parametrize("headers", [{"x-other-payment": "x"}, {"x-other-payment": "x", **UNREADABLE}])
async def test_another_protocols_credential_is_refused_before_the_table(shop: Shop, headers: dict[str, str]) -> None:
    await shop.put("settled", shop.signed())
    error = await shop.refused(headers=headers)
    assert (error.status, error.code) == (400, "PAYMENT_PROTOCOL_MISMATCH")
    assert shop.store.calls == []


async def test_an_identifier_that_is_not_the_key_is_refused_before_the_table(shop: Shop) -> None:
    error = await shop.refused(shop.signed(key=OTHER_KEY))
    assert (error.status, error.code) == (400, "PAYMENT_IDENTIFIER_MISMATCH")
    assert shop.store.calls == []


async def test_the_discovery_key_gets_its_challenge_and_buys_nothing(shop: Shop) -> None:
    key = "discovery_example_never_pay_0001"
    assert (await shop.refused(key=key)).code == "PAYMENT_REQUIRED"
    for headers in (shop.signed(key=key).header(), UNREADABLE):
        error = await shop.refused(key=key, headers=headers)
        assert (error.status, error.code) == (400, "DISCOVERY_KEY")
    assert shop.settlements == 0


async def test_our_terms_are_held_before_anything_is_written_or_asked(shop: Shop) -> None:
    shop.protocol.verifier = lambda signed: pytest.fail("an expired credential was verified")
    error = await shop.refused(shop.signed(seconds=5))
    assert (error.status, error.code) == (402, "PAYMENT_REJECTED")
    assert error.members["reason"] == "expired"
    assert "reserve" not in shop.store.calls


@pytest.mark.parametrize("state", ["settling", "uncertain", "settled", "settled, 24 h over"])
async def test_an_expired_credential_gets_no_challenge_once_money_may_have_moved(shop: Shop, state: str) -> None:
    """A 402 would make a paying client sign again."""
    first = shop.signed()
    await shop.put(state, first)
    for _ in range(2):
        answer = await shop.answer(shop.order(first))
        assert answer.replayed if isinstance(answer, Delivery) else answer.status == 409
        shop.clock.advance(VALID_SECONDS)


# Whether the protocol is ready.


@pytest.mark.parametrize(
    ("state", "column", "status", "code"),
    [
        ("none", "none", 503, "PAYMENT_UNAVAILABLE"),
        ("none", "first", 503, "PAYMENT_UNAVAILABLE"),
        ("failed", "none", 503, "PAYMENT_UNAVAILABLE"),
        ("failed", "second", 503, "PAYMENT_UNAVAILABLE"),
        ("settling", "none", 409, "PAYMENT_IN_PROGRESS"),
        ("settling", "first", 409, "PAYMENT_IN_PROGRESS"),
        ("uncertain", "second", 409, "PAYMENT_UNCERTAIN"),
        ("settled", "none", 409, "IDEMPOTENCY_CONFLICT"),
        ("settled", "second", 409, "IDEMPOTENCY_CONFLICT"),
        ("settled", "first", 200, ""),
    ],
)
async def test_a_protocol_that_is_not_ready_is_told_only_where_it_is_needed(
    shop: Shop, state: str, column: str, status: int, code: str
) -> None:
    first = shop.signed()
    await shop.put(state, first)
    shop.protocol.readiness = Readiness(False, "it is down")
    signed = {"none": None, "first": first, "second": shop.signed("second")}[column]
    if status == 200:
        assert (await shop.buy(signed)).replayed
        return
    error = await shop.refused(signed)
    assert (error.status, error.code) == (status, code)
    if status == 503:
        assert "it is down" in error.detail
        assert error.retry_after == RETRY_AFTER
        assert error.headers == {}
    assert "reserve" not in shop.store.calls


async def test_a_wrong_input_is_told_by_a_protocol_that_is_not_ready(shop: Shop) -> None:
    shop.protocol.readiness = Readiness(False, "it is down")
    assert (await shop.refused(body=b"{")).status == 400


# Verification.


@pytest.mark.parametrize(("asked", "told"), [(None, RETRY_AFTER), (1, RETRY_AFTER), (7, 7)])
async def test_a_provider_that_asks_to_wait_longer_is_heeded(shop: Shop, asked: int | None, told: int) -> None:
    shop.protocol.verifier = lambda signed: Unreachable("it is busy", "rate_limit_exceeded", asked)
    error = await shop.refused(shop.signed())
    assert (error.code, error.retry_after) == ("PAYMENT_UNAVAILABLE", told)


@pytest.mark.parametrize(
    "said",
    [Rejected("no", "its_code"), Unreachable("no", "its_code"), Spent("no", "its_code")],
    ids=lambda said: type(said).__name__,
)
async def test_the_providers_code_stands_in_the_log(
    shop: Shop, said: Verification, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.protocol.verifier = lambda signed: said
    with structlog.testing.capture_logs() as lines:
        await shop.refused(shop.signed())
    [line] = [line for line in lines if line["event"] == "verification outcome"]
    assert (line["outcome"], line["reason_code"]) == (type(said).__name__, "its_code")


async def test_what_may_help_to_mend_a_refused_payment_is_in_the_detail_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop.protocol, "remark", lambda reason, now: f"It is {now:.0f} here.")
    error = await shop.refused(shop.signed(seconds=5))
    assert error.detail == "The payment was refused: expired. It is 1800000000 here."
    assert error.members["reason"] == "expired"


@pytest.mark.parametrize(
    ("said", "status", "code", "state"),
    [
        (Rejected("no money"), 402, "PAYMENT_REJECTED", None),
        (Unreachable("down"), 503, "PAYMENT_UNAVAILABLE", None),
        (Spent("used"), 409, "PAYMENT_UNCERTAIN", State.UNCERTAIN),
    ],
)
async def test_what_verification_says_decides_and_nothing_is_settled(
    shop: Shop, said: Verification, status: int, code: str, state: State | None
) -> None:
    shop.protocol.verifier = lambda signed: said
    first = shop.signed()
    error = await shop.refused(first)
    assert (error.status, error.code) == (status, code)
    assert ("x-scripted-challenge" in error.headers) is (status == 402)
    assert error.retry_after == (RETRY_AFTER if status == 503 else None)
    assert (await shop.state(), shop.settlements) == (state, 0)
    if state is None:
        # The reservation went whole, its proof too: the identical request may come again, under any key.
        shop.protocol.verifier = ScriptedProtocol().verifier
        assert not (await shop.buy(first)).replayed


async def test_a_verification_that_breaks_or_hangs_moves_nothing(shop: Shop) -> None:
    def broken(signed: Signed) -> Verification:
        raise RuntimeError("bug")

    silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    for verifier in (broken, lambda signed: silent):
        shop.protocol.verifier = verifier
        error = await shop.refused(shop.signed())
        assert (error.status, error.code) == (503, "PAYMENT_UNAVAILABLE")
        assert await shop.state() is None
    assert shop.settlements == 0


async def test_a_failed_row_stands_again_after_a_later_credential_was_refused(shop: Shop) -> None:
    first = shop.signed()
    await shop.put("failed", first)
    shop.protocol.verifier = lambda signed: Rejected("no money")
    assert (await shop.refused(shop.signed("second"))).code == "PAYMENT_REJECTED"
    assert "the script refuses" in (await shop.refused(first)).detail


# Settlement.


@pytest.mark.parametrize(
    ("outcome", "status", "code", "state"),
    [
        (Refused("no money", "refused receipt"), 402, "PAYMENT_REJECTED", State.FAILED),
        (NotSent("no connection"), 503, "PAYMENT_UNAVAILABLE", None),
        (Uncertain("no answer"), 409, "PAYMENT_UNCERTAIN", State.UNCERTAIN),
    ],
)
async def test_each_outcome_has_its_answer_and_its_row(
    shop: Shop, outcome: Settlement, status: int, code: str, state: State | None
) -> None:
    shop.outcome = lambda signed, offer: outcome
    error = await shop.refused(shop.signed())
    assert (error.status, error.code) == (status, code)
    assert error.headers.get("x-scripted-receipt") == ("refused receipt" if status == 402 else None)
    assert error.retry_after == (RETRY_AFTER if status == 503 else None)
    assert (await shop.state(), shop.settlements) == (state, 1)


async def test_a_settlement_that_breaks_or_hangs_is_uncertain(shop: Shop) -> None:
    def broken(signed: Signed, offer: Offer) -> Settlement:
        raise RuntimeError("bug")

    silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    for number, outcome in enumerate((broken, lambda signed, offer: silent)):
        key = f"purchase-number-000{number}"
        shop.outcome = outcome
        signed = shop.signed(f"proof {number}", key=key)
        assert (await shop.refused(signed, key=key)).code == "PAYMENT_UNCERTAIN"
        assert await shop.state(key) is State.UNCERTAIN


async def test_a_process_that_was_suspended_after_submit_sends_nothing(shop: Shop) -> None:
    ticks = iter((100.0, 102.1, 103.0, 103.0))
    shop.purchases = shop.new_purchases(boot_clock=lambda: next(ticks))
    first = shop.signed()
    error = await shop.refused(first)
    assert (error.status, error.code) == (503, "PAYMENT_UNAVAILABLE")
    assert (await shop.state(), shop.settlements) == (None, 0)
    assert not (await shop.buy(first)).replayed


async def test_a_reservation_that_lapsed_before_submit_is_not_settled(shop: Shop) -> None:
    def slow(signed: Signed) -> Verification:
        shop.clock.advance(20.5)
        return ScriptedProtocol().verifier(signed)  # type: ignore[return-value]

    shop.protocol.verifier = slow
    error = await shop.refused(shop.signed())
    assert (error.status, error.code, error.retry_after) == (503, "STATE_UNAVAILABLE", RETRY_AFTER)
    assert (await shop.state(), shop.settlements) == (None, 0)


async def test_an_owner_whose_lease_ran_out_still_records_what_it_learns(shop: Shop) -> None:
    def late(signed: Signed, offer: Offer) -> Settlement:
        shop.clock.advance(30)
        return settled(signed, offer)

    shop.outcome = late
    first = shop.signed()
    assert (await shop.buy(first)).receipt == "receipt of first"
    assert (await shop.buy(first)).replayed


async def test_a_late_refusal_does_not_touch_what_an_operator_settled(shop: Shop) -> None:
    first = shop.signed()
    held: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    shop.outcome = lambda signed, offer: held
    owner = asyncio.create_task(shop.buy(first))
    await shop.until(State.SETTLING)
    row = (await shop.store.read(KEY)).standing
    assert row is not None
    await shop.store.move(row.claim, RecordSettled("the row's receipt", "tx"))
    held.set_result(Refused("too late"))
    delivery = await owner
    assert (delivery.receipt, delivery.replayed) == ("the row's receipt", True)


# Clients that go away, and shutting down.


async def test_a_client_that_is_cancelled_mid_settle_gets_its_answer_on_resend(shop: Shop) -> None:
    held: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    shop.outcome = lambda signed, offer: held
    first = shop.signed()
    client = asyncio.create_task(shop.buy(first))
    await shop.until(State.SETTLING)
    client.cancel()
    await asyncio.wait([client])
    assert client.cancelled()
    assert (await shop.refused(first)).code == "PAYMENT_IN_PROGRESS"
    held.set_result(settled(first, None))  # type: ignore[arg-type]
    await shop.until(State.SETTLED)
    assert (await shop.buy(first)).replayed
    assert shop.settlements == 1


async def test_shutting_down_waits_for_the_settlement_and_takes_no_new_payment(shop: Shop) -> None:
    held: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    shop.outcome = lambda signed, offer: held
    first = shop.signed()
    buyer = asyncio.create_task(shop.buy(first))
    await shop.until(State.SETTLING)
    drained = asyncio.create_task(shop.purchases.drain())
    await asyncio.sleep(0.01)
    assert not drained.done()
    late = await shop.refused(shop.signed("second", key=OTHER_KEY), key=OTHER_KEY)
    assert (late.status, late.code, late.retry_after) == (503, "PAYMENT_UNAVAILABLE", RETRY_AFTER)
    assert "shutting down" in late.detail
    held.set_result(settled(first, None))  # type: ignore[arg-type]
    assert (await buyer).receipt == "receipt of first"
    await asyncio.wait_for(drained, 1)
    # What was paid can be fetched to the last moment.
    assert (await shop.buy(first)).replayed


async def test_a_purchase_that_is_being_verified_at_shutdown_is_not_submitted(shop: Shop) -> None:
    held: asyncio.Future[Verification] = asyncio.get_running_loop().create_future()
    shop.protocol.verifier = lambda signed: held
    buyer = asyncio.create_task(shop.refused(shop.signed()))
    await shop.until(State.RESERVED)
    drained = asyncio.create_task(shop.purchases.drain())
    await asyncio.sleep(0)
    held.set_result(ScriptedProtocol().verifier(shop.signed()))  # type: ignore[arg-type]
    error = await buyer
    assert (error.status, error.code) == (503, "PAYMENT_UNAVAILABLE")
    await drained
    assert (await shop.state(), shop.settlements) == (None, 0)


# The store.


async def test_a_store_that_cannot_be_read_is_never_a_402(shop: Shop) -> None:
    def unreadable(name: str, event: object) -> None:
        raise StoreUnavailable("disk on fire")

    shop.store.before = unreadable
    for signed in (None, shop.signed()):
        error = await shop.refused(signed)
        assert (error.status, error.code, error.retry_after) == (503, "STATE_UNAVAILABLE", RETRY_AFTER)
        assert "disk" not in error.detail
    assert (shop.settlements, shop.protocol.challenges) == (0, 0)


async def test_a_reservation_whose_commit_is_unknown_goes_on_when_it_is_found(shop: Shop) -> None:
    shop.store.after = failing_once("reserve", CommitUnknown("lost"))
    assert not (await shop.buy(shop.signed())).replayed
    assert shop.settlements == 1


async def test_a_reservation_that_was_not_committed_is_503_and_calls_nobody(shop: Shop) -> None:
    shop.store.before = failing_once("reserve", CommitUnknown("lost"))
    shop.protocol.verifier = lambda signed: pytest.fail("verified without a reservation")
    error = await shop.refused(shop.signed())
    assert (error.status, error.code) == (503, "STATE_UNAVAILABLE")
    assert await shop.state() is None


async def test_a_submit_whose_commit_is_unknown_is_taken_back_unsent(shop: Shop) -> None:
    shop.store.after = failing_once(Submit, CommitUnknown("lost"))
    first = shop.signed()
    error = await shop.refused(first)
    assert (error.status, error.code) == (503, "STATE_UNAVAILABLE")
    assert (await shop.state(), shop.settlements) == (None, 0)
    assert not (await shop.buy(first)).replayed


async def test_a_submit_that_was_not_committed_is_not_settled(shop: Shop) -> None:
    shop.store.before = failing_once(Submit, CommitUnknown("lost"))
    first = shop.signed()
    assert (await shop.refused(first)).code == "STATE_UNAVAILABLE"
    assert (await shop.state(), shop.settlements) == (State.RESERVED, 0)
    assert (await shop.refused(first)).code == "PAYMENT_IN_PROGRESS"
    shop.clock.advance(22)
    assert not (await shop.buy(first)).replayed


async def test_a_submit_that_cannot_be_read_again_is_not_settled_and_becomes_uncertain(shop: Shop) -> None:
    shop.store.after = failing_once(Submit, CommitUnknown("lost"))
    shop.store.before = failing_once("find", StoreUnavailable("gone"))
    first = shop.signed()
    assert (await shop.refused(first)).code == "STATE_UNAVAILABLE"
    assert (await shop.state(), shop.settlements) == (State.SETTLING, 0)
    shop.clock.advance(12)
    assert (await shop.refused(first)).code == "PAYMENT_UNCERTAIN"


@pytest.mark.parametrize("error", [StoreUnavailable("busy"), CommitUnknown("lost"), OSError("a bug of the store")])
async def test_money_that_moved_is_recorded_when_the_store_comes_back(shop: Shop, error: Exception) -> None:
    shop.store.before = failing_once(RecordSettled, error)
    delivery = await shop.buy(shop.signed())
    assert (delivery.receipt, shop.settlements) == ("receipt of first", 1)
    assert await shop.state() is State.SETTLED


async def test_a_record_whose_commit_is_unknown_is_delivered_with_the_rows_receipt(shop: Shop) -> None:
    shop.store.after = failing_once(RecordSettled, CommitUnknown("lost"))
    delivery = await shop.buy(shop.signed())
    assert (delivery.receipt, shop.settlements) == ("receipt of first", 1)


async def test_money_that_cannot_be_recorded_is_uncertain_and_logged(
    shop: Shop, capfd: pytest.CaptureFixture[str]
) -> None:
    shop.purchases = shop.new_purchases(record_for=0.0)
    shop.store.before = failing_always(RecordSettled, StoreUnavailable("full"))
    first = shop.signed()
    assert (await shop.refused(first)).code == "PAYMENT_UNCERTAIN"
    assert await shop.state() is State.SETTLING
    logged = "".join(capfd.readouterr())
    assert "tx of first" in logged
    assert "receipt of first" in logged
    shop.clock.advance(12)
    assert (await shop.refused(first)).code == "PAYMENT_UNCERTAIN"
    shop.store.before = lambda name, event: None


async def test_money_that_could_not_be_recorded_in_a_minute_is_recorded_afterwards_and_replayed(shop: Shop) -> None:
    shop.purchases = shop.new_purchases(record_for=0.0, record_again=0.01)
    shop.store.before = failing_always(RecordSettled, StoreUnavailable("full"))
    first = shop.signed()
    assert (await shop.refused(first)).code == "PAYMENT_UNCERTAIN"
    shop.clock.advance(12)
    assert (await shop.refused(first)).code == "PAYMENT_UNCERTAIN"
    assert await shop.state() is State.UNCERTAIN
    shop.store.before = lambda name, event: None
    async with asyncio.timeout(5):
        while await shop.state() is not State.SETTLED:  # noqa: ASYNC110 - A row has no event.
            await asyncio.sleep(0.005)
    delivery = await shop.buy(first)
    assert (delivery.replayed, delivery.receipt, shop.settlements) == (True, "receipt of first", 1)


async def test_unrecorded_money_is_one_alarm_for_a_purchase_and_a_line_says_when_it_was_recorded(shop: Shop) -> None:
    tries = 0

    def fails_thrice(name: str, event: object) -> None:
        nonlocal tries
        if isinstance(event, RecordSettled):
            tries += 1
            if tries <= 3:
                raise StoreUnavailable("away")

    shop.purchases = shop.new_purchases(record_again=0.01)
    shop.store.before = fails_thrice
    with structlog.testing.capture_logs() as lines:
        assert (await shop.buy(shop.signed())).receipt == "receipt of first"
    assert tries == 4
    told = [line["event"] for line in lines]
    assert told.count("money moved and is not recorded yet") == told.count("money that moved is recorded at last") == 1


async def test_a_shutdown_waits_for_a_record_of_money_and_not_for_ever(shop: Shop) -> None:
    shop.purchases = shop.new_purchases(record_for=0.05)
    shop.store.before = failing_always(RecordSettled, StoreUnavailable("full"))
    assert (await shop.refused(shop.signed())).code == "PAYMENT_UNCERTAIN"
    async with asyncio.timeout(5):
        await shop.purchases.drain()


async def test_while_nothing_can_be_written_nobody_is_asked_to_pay_and_what_was_bought_is_delivered(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shop.signed()
    await shop.buy(first)

    async def full() -> None:
        raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(shop.store, "check_writable", full)
    for asked in (None, shop.signed("second", key="another-key-0123456789")):
        assert (await shop.refused(asked, key="another-key-0123456789")).code == "STATE_UNAVAILABLE"
    assert shop.protocol.challenges == 0
    assert (await shop.buy(first)).replayed


async def test_an_outcome_that_cannot_be_recorded_is_in_progress_and_then_uncertain(shop: Shop) -> None:
    shop.outcome = lambda signed, offer: Refused("no money")
    first = shop.signed()

    def full(name: str, event: object) -> None:
        if shop.settlements:
            raise StoreUnavailable("full")

    shop.store.before = full
    assert (await shop.refused(first)).code == "STATE_UNAVAILABLE"
    shop.store.before = lambda name, event: None
    assert (await shop.refused(first)).code == "PAYMENT_IN_PROGRESS"
    shop.clock.advance(12)
    assert (await shop.refused(first)).code == "PAYMENT_UNCERTAIN"
    assert shop.settlements == 1


async def test_a_lease_that_is_over_is_uncertain_even_where_nothing_can_be_written(shop: Shop) -> None:
    first = shop.signed()
    await shop.put("settling, lease over", first)
    shop.store.before = failing_always("move", StoreUnavailable("read-only"))
    assert (await shop.refused(first)).code == "PAYMENT_UNCERTAIN"


async def test_whoever_sees_a_lease_that_is_over_moves_the_row(shop: Shop) -> None:
    await shop.put("settling, lease over", shop.signed())
    assert await shop.state() is State.SETTLING
    assert (await shop.refused()).code == "PAYMENT_UNCERTAIN"
    assert await shop.state() is State.UNCERTAIN


class OtherEnvelope(answering.Answer):
    """The same result with one more member around it."""

    @cached_property
    def body(self) -> bytes:
        return super().body[:-1] + b',"notice":"new"}'


class OtherSpelling(answering.Answer):
    """The same JSON, written otherwise."""

    @cached_property
    def body(self) -> bytes:
        return super().body + b"\n"


OTHER_ANSWERS: Final[dict[str, Callable[[answering.Answer], answering.Answer]]] = {
    "another result": lambda made: answering.Answer(made.operation, made.input_sha256, made.result + b" "),
    "another envelope": lambda made: OtherEnvelope(made.operation, made.input_sha256, made.result),
    "another spelling": lambda made: OtherSpelling(made.operation, made.input_sha256, made.result),
}


@pytest.mark.parametrize("kind", OTHER_ANSWERS)
async def test_a_replay_that_would_differ_is_withheld(shop: Shop, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The bytes that were sold are what a replay is held against, not the result in them alone."""
    first = shop.signed()
    await shop.buy(first)
    real = answering.answer

    def alarms() -> float:
        return REGISTRY.get_sample_value("ranking_evaluate_alarms_total", {"what": "replay_differs"}) or 0

    def other(operation: Any, body: bytes) -> answering.Answer:
        return OTHER_ANSWERS[kind](real(operation, body))

    monkeypatch.setattr("ranking_evaluate.evaluations.evaluations.answer", other)
    before = alarms()
    error = await shop.refused(first)
    assert (error.status, error.code) == (503, "STATE_UNAVAILABLE")
    assert alarms() == before + 1
    # A row that 0.29.0 wrote holds the digest of the result alone: there is nothing else to hold its replay against.
    with closing(apsw.Connection(str(shop.path))) as db:
        kept = db.execute("SELECT answer_sha256 FROM attempts").fetchall()
        db.execute("UPDATE attempts SET answer_sha256 = NULL")
        if kind == "another result":
            assert (await shop.refused(first)).code == "STATE_UNAVAILABLE"
        else:
            assert (await shop.buy(first)).replayed
        db.execute("UPDATE attempts SET answer_sha256 = ?", kept[0])
    monkeypatch.undo()
    assert (await shop.buy(first)).replayed


async def test_two_credentials_that_race_for_a_key_are_decided_by_the_store(shop: Shop) -> None:
    held: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    shop.outcome = lambda signed, offer: held
    signed = [shop.signed(f"proof {number}") for number in range(10)]
    buyers = [asyncio.create_task(shop.buy(one)) for one in signed]
    done, (winner,) = await asyncio.wait(buyers, timeout=0.3)
    assert {getattr(task.exception(), "code", None) for task in done} == {"IDEMPOTENCY_CONFLICT"}
    held.set_result(settled(signed[buyers.index(winner)], None))  # type: ignore[arg-type]
    assert not (await winner).replayed
    assert shop.settlements == 1


# Rates.


async def test_payment_attempts_are_counted_and_nothing_else_is(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "attempts.db", payment_rate="2/minute")
    await shop.store.open()
    first = shop.signed()
    await shop.buy(first)
    for _ in range(5):
        assert (await shop.buy(first)).replayed
        assert (await shop.refused()).status == 409
        assert (await shop.refused(key=OTHER_KEY)).status == 402
    # A credential that does not meet our terms is an attempt as well.
    assert (await shop.refused(shop.signed("x", key=OTHER_KEY, seconds=1), key=OTHER_KEY)).code == "PAYMENT_REJECTED"
    error = await shop.refused(shop.signed("y", key=OTHER_KEY), key=OTHER_KEY)
    assert (error.status, error.code) == (429, "RATE_LIMITED")
    assert error.retry_after is not None
    assert 1 <= error.retry_after <= 60
    assert await shop.state(OTHER_KEY) is None
    assert (await shop.buy(first)).replayed
    assert not (await shop.buy(shop.signed("y", key=OTHER_KEY), key=OTHER_KEY, client="another")).replayed
    await shop.store.close()


def failing_always(what: str | type, error: Exception) -> Callable[[str, object], None]:
    """Return a hook that fails on a method's name or on an event's type."""

    def hook(name: str, event: object) -> None:
        if name == what or (isinstance(what, type) and isinstance(event, what)):
            raise error

    return hook


def failing_once(what: str | type, error: Exception) -> Callable[[str, object], None]:
    failing, left = failing_always(what, error), [error]

    def hook(name: str, event: object) -> None:
        if left:
            try:
                failing(name, event)
            except Exception:
                left.clear()
                raise

    return hook
