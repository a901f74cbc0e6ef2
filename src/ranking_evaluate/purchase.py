"""The walk of one paid request: evaluate, decide, reserve, verify, submit, settle once, record, deliver.

Steps 2 and 3 stand in order.py, the others here. Between any two steps a crash is safe (docs/lifecycle.md, section 6):
what is committed before a call says all that has to be known after it, and a `settling` row that nobody explains is
uncertain without any code having to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, assert_never
from urllib.parse import urlsplit

from ranking_evaluate import telemetry
from ranking_evaluate.affording import TOO_POOR, affords, is_in_company
from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.decide import (
    Answerable,
    Cause,
    Challenge,
    Conflict,
    DuplicateProof,
    InProgress,
    OutcomeUnknown,
    Reject,
    Replay,
    Reserve,
    Snapshot,
    decide,
)
from ranking_evaluate.attempts.events import (
    Event,
    Lapse,
    RecordNotSent,
    RecordRefused,
    RecordSettled,
    RecordSpent,
    RecordUncertain,
    Submit,
    Withdraw,
)
from ranking_evaluate.attempts.store import AttemptStore, CommitUnknown, StoreUnavailable
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.answer import Answer
from ranking_evaluate.contract.errors import (
    RETRY_AFTER,
    AttemptConflict,
    PaymentRequired,
    PaymentUncertain,
    Unavailable,
    refusal,
)
from ranking_evaluate.contract.problems import HEALING_WORDS
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.core.instants import written
from ranking_evaluate.deadline import within
from ranking_evaluate.evaluations.evaluations import Caller, Evaluations, Standing
from ranking_evaluate.order import Delivery, Order, Purchase, consider, draft, ended, not_ready, readable_credential
from ranking_evaluate.payments.protocol import (
    NotSent,
    Refused,
    Rejected,
    Settled,
    Settlement,
    Spent,
    Uncertain,
    Unreachable,
    Unreadable,
    Verification,
    Verified,
)
from ranking_evaluate.payments.required import payment_required
from ranking_evaluate.rates import Rates
from ranking_evaluate.recording import RECORD_AGAIN, RECORD_FOR, Recorder
from ranking_evaluate.release import VERSION

RESERVE_MARGIN: Final = 20.0
"""Seconds that a reservation outlives the verification, so that SUBMIT still finds its lease running.

A store gives up a write after about ten seconds; the reservation's own and SUBMIT's may both take that long.
"""

SETTLE_MARGIN: Final = 10.0
"""Seconds that a settling row outlives the settle call, so that its outcome is recorded before others give it up.

A store gives up a write after about ten seconds. A later record still counts (docs/lifecycle.md, section 3).
"""

START_WITHIN: Final = 2.0
"""Seconds after SUBMIT within which the settle call starts, or is not made.

It starts within milliseconds unless the process was suspended; then the lease may be over, and an operator may be
deciding about the row.
"""

READ_AGAIN: Final = 5
"""How often a reservation that met another one is decided again before the caller is asked to come back.

Twice is enough unless reservations of the same key or proof come and go all the while.
"""


def boot_clock() -> float:
    """Return seconds by a clock that goes on while the machine is suspended, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Purchases:
    """Sells answers: every paid request of every protocol and operation takes this walk.

    Args:
        store: Where attempts are kept.
        rates: The payment-attempt window.
        evaluations: Evaluates what is asked for.
        wires: Every protocol, to tell whose credential a request carries.
        chains: What the service itself asks about uncertain payments.
        verify_timeout: Seconds in all for a verification.
        settle_timeout: Seconds in all for a settlement.
        clock: Epoch seconds, against which a credential's own times are held.
        boot_clock: Seconds that go on while the machine is suspended.
        record_for: Seconds that a caller, or a shutdown, waits for the record of money that moved.
        record_again: Seconds before that record is tried a second time.
        release: What is sold: a key bought under another release is a conflict.
        previous_origin: Where the release before this one still answers what it sold.
    """

    def __init__(
        self,
        store: AttemptStore,
        rates: Rates,
        evaluations: Evaluations,
        wires: tuple[Wire, ...],
        *,
        chains: Chains,
        verify_timeout: float,
        settle_timeout: float,
        clock: Callable[[], float] = time.time,
        boot_clock: Callable[[], float] = boot_clock,
        record_for: float = RECORD_FOR,
        record_again: float = RECORD_AGAIN,
        release: str = VERSION,
        previous_origin: str | None = None,
    ) -> None:
        self._store = store
        self._rates = rates
        self._evaluations = evaluations
        self._wires = wires
        self._chains = chains
        self._verify_timeout = verify_timeout
        self._settle_timeout = settle_timeout
        self._clock = clock
        self._boot_clock = boot_clock
        self._recorder = Recorder(store, record_for, record_again)
        self._release = release
        self._previous_origin = previous_origin
        self._running: set[asyncio.Task[Delivery]] = set()
        self._closing = False

    async def buy(self, order: Order) -> Delivery:
        """Return the paid answer, first or replayed; every other outcome is raised as a `ServiceError`."""
        answered = await self._evaluate(order)
        purchase = consider(order, answered, self._wires, self._clock(), self._release)
        try:
            return await self._decide(purchase)
        except StoreUnavailable as error:
            telemetry.logger().error("store unavailable", reason=str(error))
            raise _state_unavailable("The record of purchases cannot be used.") from error

    async def drain(self) -> None:
        """Take no new payments, wait for the settlements under way, and a minute at most for records of money."""
        self._closing = True
        while self._running:
            await asyncio.wait(self._running)
        await self._recorder.drain()

    # 1: evaluate. What cannot be delivered is never charged.

    async def _evaluate(self, order: Order) -> Answer:
        caller = Caller(order.client, partial(self._standing, order), order.hung_up)
        try:
            return await self._evaluations.answer(order.operation, order.body, caller)
        except OperationError as error:
            raise refusal(error) from error

    async def _standing(self, order: Order) -> Standing:
        """Return what an order has to do with a payment, before anything else is known of it."""
        credential = readable_credential(order, self._wires, self._release)
        if credential is None:
            return Standing.UNPAID
        # A store that cannot be read is told of where the table needs it.
        with contextlib.suppress(StoreUnavailable):
            current = (await self._store.read(order.key)).current
            if current is not None and current.credential_digest == credential.digest:
                return Standing.KNOWN
        return Standing.PAYING

    # 4 and 5: decide by the table, and reserve.

    async def _decide(self, purchase: Purchase) -> Delivery:
        admitted = False
        for _ in range(READ_AGAIN):
            seen = await self._store.read(purchase.request.key, purchase.request.proofs)
            decision = decide(seen, purchase.request)
            if not isinstance(decision, Reserve):
                return await self._follow(decision, purchase)
            if not admitted:
                await self._admit(purchase)
                admitted = True
            attempt = await self._reserve(purchase, seen)
            if attempt is not None:
                return await self._in_own_task(attempt, purchase)
        raise _state_unavailable("Another request for the same purchase was faster, again and again.")

    async def _follow(self, decision: Answerable, purchase: Purchase) -> Delivery:
        """Answer the request as the table says."""
        match decision:
            case Replay(row=row):
                return _delivery(purchase, row, replayed=True)
            case Challenge():
                self._check_protocol(purchase)
                await self._store.check_writable()
                if isinstance(purchase.credential, Unreadable):
                    raise await self._rejected(purchase, purchase.credential.reason)
                raise await _unpaid(purchase)
            case Reject(row=row):
                self._check_protocol(purchase)
                raise await self._rejected(purchase, row.reason or "it was refused before", row.receipt)
            case Conflict(cause=Cause.RELEASE, release=release):
                same = release == self._release
                here = "whose results have changed since" if same else f"and this is release {self._release}"
                detail = f"This key was used under release {release}, {here}."
                if self._previous_origin is not None:
                    path = urlsplit(purchase.order.url).path
                    detail += f" {self._previous_origin}{path} answers what was sold before."
                raise AttemptConflict("IDEMPOTENCY_CONFLICT", detail, cause=Cause.RELEASE.value)
            case Conflict(cause=cause):
                raise AttemptConflict("IDEMPOTENCY_CONFLICT", _CONFLICTS[cause], cause=cause.value)
            case DuplicateProof(of_new_key=True):
                detail = "The key authorization in this transaction belongs to another payment."
                raise AttemptConflict("DUPLICATE_PROOF", detail, cause="key-authorization")
            case DuplicateProof():
                raise AttemptConflict("DUPLICATE_PROOF", "This payment was used for another purchase before.")
            case InProgress():
                raise AttemptConflict(
                    "PAYMENT_IN_PROGRESS", "The payment under this key is being settled.", retry_after=RETRY_AFTER
                )
            case OutcomeUnknown(row=row):
                if row.state is State.SETTLING:
                    # This changes what is written down, not the answer.
                    with contextlib.suppress(StoreUnavailable):
                        await self._store.move(row.claim, Lapse())
                raise self._uncertain(row, row.reason_code, row.reported_transaction)
            case _:
                assert_never(decision)

    async def _admit(self, purchase: Purchase) -> None:
        """Let a payment attempt through: the protocol is ready, the client's window is open, our terms are met."""
        self._check_protocol(purchase)
        await self._store.check_writable()
        await self._rates.count_payment(purchase.order.client)
        if purchase.objection is not None:
            raise await self._rejected(purchase, purchase.objection)

    def _check_protocol(self, purchase: Purchase) -> None:
        if self._rates.sales_ended:
            raise ended()
        ready, reason = purchase.order.payee.ready()
        if not ready or self._closing:
            raise not_ready("the service is shutting down" if self._closing else reason)

    async def _reserve(self, purchase: Purchase, seen: Snapshot) -> Attempt | None:
        reservation = draft(purchase, lease_seconds=self._verify_timeout + RESERVE_MARGIN)
        try:
            return await self._store.reserve(reservation, purchase.request, seen)
        except CommitUnknown:
            found = await self._store.find(reservation.claim)
            if found is None:
                raise
            return found

    async def _in_own_task(self, attempt: Attempt, purchase: Purchase) -> Delivery:
        """Go on in a task of its own: a client that disconnects from here on changes nothing."""
        task = asyncio.create_task(self._pay(attempt, purchase), name="settle")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    # 6 to 9: verify, submit, settle once, record.

    async def _pay(self, attempt: Attempt, purchase: Purchase) -> Delivery:
        verification = await self._verify(attempt, purchase)
        telemetry.count_verification(attempt.protocol, type(verification).__name__)
        if not isinstance(verification, Verified):
            telemetry.logger().info(
                "verification outcome",
                outcome=type(verification).__name__,
                protocol=attempt.protocol,
                key_digest=telemetry.key_digest(attempt.key),
                reason_code=verification.code,
            )
        if self._closing and isinstance(verification, Verified):
            verification = Unreachable("the service is shutting down")
        match verification:
            case Verified():
                return await self._submit(attempt, purchase)
            case Rejected(reason=reason):
                if await self._moved(attempt, Withdraw()):
                    raise await self._rejected(purchase, reason)
            case Spent(reason=reason, code=code):
                if await self._moved(attempt, RecordSpent(reason, code)):
                    raise self._uncertain(attempt, code)
            case Unreachable(reason=reason, retry_after=retry_after):
                if await self._moved(attempt, Withdraw()):
                    raise not_ready(reason, retry_after)
            case _:
                assert_never(verification)
        return await self._lost(purchase)

    async def _verify(self, attempt: Attempt, purchase: Purchase) -> Verification:
        payee = purchase.order.payee
        try:
            async with within(self._verify_timeout):
                in_company = await is_in_company(self._store, payee, attempt)
                verification = await payee.verify(purchase.payment, purchase.offer)
                if not in_company or not isinstance(verification, Verified):
                    return verification
                can_pay = await affords(self._store, payee, attempt, purchase.payment.facts)
                return verification if can_pay else Rejected(TOO_POOR)
        except TimeoutError:
            return Unreachable("the provider did not answer in time")
        except Exception as error:  # noqa: BLE001 - nothing was sent: whatever broke, the caller may come again.
            telemetry.logger().warning("verification broke", error=type(error).__name__)
            return Unreachable("the provider could not be asked")

    async def _submit(self, attempt: Attempt, purchase: Purchase) -> Delivery:
        before = self._boot_clock()
        try:
            submitted = await self._store.move(attempt.claim, Submit(self._settle_timeout + SETTLE_MARGIN))
        except CommitUnknown:
            found = await self._store.find(attempt.claim)
            if found is not None and found.state is State.SETTLING:
                await self._store.move(attempt.claim, RecordNotSent())
            raise
        if not submitted.owned:
            return await self._lost(purchase)
        started = time.perf_counter()
        outcome = await self._settle(purchase, before)
        telemetry.count_settlement(attempt.protocol, type(outcome).__name__, time.perf_counter() - started)
        log = telemetry.logger().warning if isinstance(outcome, Uncertain) else telemetry.logger().info
        log(
            "settle outcome",
            outcome=type(outcome).__name__,
            reason=None if isinstance(outcome, Settled) else outcome.reason,
            protocol=attempt.protocol,
            key_digest=telemetry.key_digest(attempt.key),
            reason_code=outcome.code if isinstance(outcome, Refused | Uncertain) else None,
            transaction=outcome.transaction if isinstance(outcome, Settled) else None,
            reported_transaction=outcome.transaction if isinstance(outcome, Uncertain) else None,
        )
        return await self._record(attempt, purchase, outcome)

    async def _settle(self, purchase: Purchase, submitted_at: float) -> Settlement:
        """Make the one settle call of this attempt; whatever is not a definite outcome is `Uncertain`."""
        if self._boot_clock() - submitted_at > START_WITHIN:
            return NotSent("the process was held up between the record and the call")
        try:
            async with within(self._settle_timeout):
                return await purchase.order.payee.settle(purchase.payment, purchase.offer)
        except TimeoutError:
            return Uncertain("the provider did not answer in time")
        except Exception as error:  # noqa: BLE001 - from here on money may have moved, whatever broke.
            telemetry.logger().error("settlement broke", error=type(error).__name__)
            return Uncertain(f"the settle call broke ({type(error).__name__})")

    async def _record(self, attempt: Attempt, purchase: Purchase, outcome: Settlement) -> Delivery:
        match outcome:
            case Settled(receipt=receipt, transaction=transaction, payer=payer):
                step = await self._recorder.record(attempt, RecordSettled(receipt, transaction, payer))
                if step is None:
                    raise self._uncertain(attempt)
                if step.audit is not None:
                    telemetry.alarm(
                        "settled_after_release",
                        "settled after release",
                        key_digest=telemetry.key_digest(attempt.key),
                    )
                elif step.owned and step.attempt is not None:
                    return _delivery(purchase, step.attempt, replayed=False)
            case Refused(reason=reason, receipt=receipt, code=code):
                if await self._moved(attempt, RecordRefused(reason, receipt, code)):
                    raise await self._rejected(purchase, reason, receipt)
            case NotSent(reason=reason):
                if await self._moved(attempt, RecordNotSent()):
                    raise not_ready(reason)
            case Uncertain(reason=reason, code=code, transaction=reported):
                if await self._moved(attempt, RecordUncertain(reason, code, reported)):
                    raise self._uncertain(attempt, code, reported)
            case _:
                assert_never(outcome)
        return await self._lost(purchase)

    async def _moved(self, attempt: Attempt, event: Event) -> bool:
        """Return whether the event took effect; otherwise this walk has lost its claim and decides nothing."""
        return (await self._store.move(attempt.claim, event)).owned

    async def _lost(self, purchase: Purchase) -> Delivery:
        """Answer by the table, since somebody else decided meanwhile."""
        seen = await self._store.read(purchase.request.key, purchase.request.proofs)
        decision = decide(seen, purchase.request)
        if isinstance(decision, Reserve):
            raise _state_unavailable("The reservation of this payment ran out before it was submitted.")
        return await self._follow(decision, purchase)

    # Refusals with a challenge.

    def _uncertain(self, row: Attempt, code: str | None = None, reported: str | None = None) -> PaymentUncertain:
        """Return the conflict, with what the provider said: as its words, since nothing proves them."""
        words = ["The payment may have been made: it was submitted, and its outcome is not known."]
        if code is not None:
            words.append(f"The provider says {code}.")
        if reported is not None:
            words.append(f"It names the transaction {reported}, without proof.")
        told_by = self._chains.promise(row, self._clock())
        if told_by is None:
            return PaymentUncertain("PAYMENT_UNCERTAIN", " ".join(words))
        words.append(HEALING_WORDS.format(time=written(told_by)))
        return PaymentUncertain("PAYMENT_UNCERTAIN", " ".join(words), cause="chain")

    async def _rejected(self, purchase: Purchase, reason: str, receipt: str | None = None) -> PaymentRequired:
        protocol = purchase.order.payee
        remark = protocol.remark(reason, self._clock())
        detail = f"The payment was refused: {reason}." + (f" {remark}" if remark else "")
        return await payment_required(
            protocol, purchase.offer, "PAYMENT_REJECTED", detail, reason=reason, receipt=receipt
        )


_CONFLICTS: Final[Mapping[Cause, str]] = {
    Cause.BODY: "This key stands for another input, operation or protocol.",
    Cause.CREDENTIAL: "Another credential is being settled under this key.",
    Cause.PAID: "This key is already paid, by a credential that is not in this request.",
    Cause.EXPIRED: "This key was paid, and its replay window is over.",
}


async def _unpaid(purchase: Purchase) -> PaymentRequired:
    """Return the challenge to a request without a credential; one that pays in an outdated way is told."""
    order, detail, cause = purchase.order, "This call is paid for by the challenge.", None
    if (order.wire.outdated_header or "").lower() in order.headers:
        detail, cause = f"{detail} {order.wire.outdated_words}", "version"
    return await payment_required(order.payee, purchase.offer, "PAYMENT_REQUIRED", detail, cause=cause)


def _delivery(purchase: Purchase, row: Attempt, *, replayed: bool) -> Delivery:
    """Return the answer with the row's own receipt; it is recomputed from the body that was just sent."""
    sold = (purchase.answer.output_sha256, purchase.answer.sha256)
    # Schema 1 did not keep the whole answer's digest.
    if (row.output_sha256, row.answer_sha256 or sold[1]) != sold or row.receipt is None:
        telemetry.alarm("replay_differs", "replay differs from what was sold", key_digest=telemetry.key_digest(row.key))
        raise _state_unavailable("The stored answer cannot be reproduced.")
    return Delivery(purchase.answer.body, purchase.order.wire.receipt_header.lower(), row.receipt, replayed)


def _state_unavailable(detail: str) -> Unavailable:
    return Unavailable("STATE_UNAVAILABLE", detail, retry_after=RETRY_AFTER)
