"""One purchase under one key: its states and the moves between them, without clock or storage.

`Attempt.after` is the table of docs/lifecycle.md, section 3; nothing else moves a row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

from ranking_evaluate.attempts.events import (
    CHAIN,
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
from ranking_evaluate.contract.replay import REPLAY_WINDOW

SUBMIT_MARGIN: Final = 1.0
"""Seconds of the reservation's lease that must be left at SUBMIT.

A second is far more than one commit takes, so no other process can find the reservation lapsed, and take it over, while
this one is submitting.
"""

REASON_LIMIT: Final = 500
"""Characters kept of a reason, as many as the store's column holds.

A provider's text is of any length, and must not be what makes the write of an outcome fail.
"""


CODE_LIMIT: Final = 128
"""Characters kept of a provider's own code, and of a transaction that it names without proof."""


class State(StrEnum):
    """Where an attempt stands; the value is what the store and the wire hold."""

    RESERVED = "reserved"
    SETTLING = "settling"
    UNCERTAIN = "uncertain"
    SETTLED = "settled"
    FAILED = "failed"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """What a purchase is of, and the payment that is offered for it; never a body, a result or a signature.

    Attributes:
        claim: Random; whoever holds it owns the row, and nobody else moves it.
        credential_digest: SHA-256 (hex) of the decoded credential.
        proofs: 32-byte digests of what may be used once, ever.
        output_sha256: The digest of the answer, which every replay must reproduce.
        payment_id: The authorization's nonce (x402) or the challenge id (MPP).
        valid_before: Epoch seconds after which the credential moves no money any more.
        transaction: The transaction that the payment is in, or must be in; None while nobody knows.
        recipient: Who is paid; None in rows that schema 1 wrote.
        answer_sha256: The digest of the whole answer, which every replay must reproduce; None in rows of schema 1.
        schema_sha256: What the result means, as it was published; None in rows of schema 1.
        new_key_proof: The one of the proofs that is given back when the payment comes to nothing: of an authorization
            that one payment at a time may carry.
        request_id: The id of the request that brought the payment, which the log has; None in rows of schema 1.
    """

    key: str
    claim: str
    protocol: str
    operation: str
    release: str
    fingerprint: str
    credential_digest: str
    proofs: tuple[bytes, ...]
    output_sha256: str
    amount: int
    asset: str
    network: str
    payer: str | None
    payment_id: str
    valid_before: int | None
    transaction: str | None = None
    recipient: str | None = None
    answer_sha256: str | None = None
    schema_sha256: str | None = None
    new_key_proof: bytes | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Bought):
    """What RESERVE is asked to insert; `lease_seconds` is how long the verification may take."""

    lease_seconds: float

    def begun(self, n: int, now: float) -> Attempt:
        """Return the row to insert at `n`: reserved from `now` until its lease is over, its proofs sorted."""
        bought: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Bought)}
        return Attempt(
            **{**bought, "proofs": tuple(sorted(self.proofs))},
            n=n,
            state=State.RESERVED,
            lease=now + self.lease_seconds,
            created_at=now,
            updated_at=now,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Bought):
    """The stored record of one purchase; times are seconds since the epoch by the store's clock.

    Attributes:
        n: Counts the attempts under the key from 1, purged ones included.
        state: As it was written; `state_at` says what it counts as.
        lease: The instant at which the owner's time is over; None when no owner is at work.
        reason: Why it failed, was released or is uncertain.
        receipt: The receipt header of every 200, or of the refusal.
        expires_at: The end of the replay window of a settled, failed or released attempt.
        reason_code: The provider's own word for what went wrong.
        reported_transaction: What a provider named without proof: shown as reported, never taken for evidence.
    """

    n: int
    state: State
    lease: float | None
    reason: str | None = None
    receipt: str | None = None
    created_at: float
    updated_at: float
    expires_at: float | None = None
    reason_code: str | None = None
    reported_transaction: str | None = None

    def state_at(self, now: float) -> State:
        """Return the state that counts: a settling attempt whose lease is over is uncertain, whoever is alive."""
        over = self.state is State.SETTLING and self._lease_over(now)
        return State.UNCERTAIN if over else self.state

    def lapsed(self, now: float) -> bool:
        """Return whether this is a reservation whose lease is over: it counts as absent."""
        return self.state is State.RESERVED and self._lease_over(now)

    def expired(self, now: float) -> bool:
        """Return whether the replay window of a settled, failed or released attempt is over."""
        return self.expires_at is not None and self.expires_at <= now

    def _lease_over(self, now: float) -> bool:
        return self.lease is not None and self.lease <= now

    def after(self, event: Event, now: float, *, current: bool = True) -> Step:
        """Return what the event makes of this attempt; `owned` is False when the event's sender decides nothing.

        A case is a line of docs/lifecycle.md, section 3.

        Args:
            event: What happened.
            now: The store's clock.
            current: Whether no newer attempt of the key exists that is not a lapsed reservation.
        """
        state, uncertain = self.state, self.state_at(now) is State.UNCERTAIN
        match event:
            case Submit(lease_seconds=seconds) if state is State.RESERVED:
                if self.lease is None or self.lease - now < SUBMIT_MARGIN:
                    return LOST_AND_GONE
                return Step(self._to(State.SETTLING, now, lease=now + seconds))
            case Withdraw() if state is State.RESERVED:
                return LOST_AND_GONE if self._lease_over(now) else GONE
            case RecordSpent(reason=reason, code=code) if state is State.RESERVED:
                if self._lease_over(now):
                    return LOST_AND_GONE
                return Step(self._to(State.UNCERTAIN, now, reason=reason, reason_code=code))
            case RecordSettled() if state in _OPEN:
                return Step(self._settled(event.receipt, event.transaction, now, event.payer), sold=True)
            case RecordSettled() if state is State.RELEASED:
                settled = self._settled(event.receipt, event.transaction, now, event.payer)
                if not current or self.expired(now):
                    # Marked where it stands: the operator refunds it, so it opens no window of its own.
                    settled = replace(settled, expires_at=self.expires_at)
                # The owner expected another state: it re-reads, for a newer attempt may have the key by now.
                audit = Audit("service", "settled after release", event.transaction)
                return Step(settled, owned=False, audit=audit, sold=True)
            case RecordRefused(reason=reason, receipt=receipt, code=code) if state in _OPEN:
                until = now + REPLAY_WINDOW
                failed = self._to(State.FAILED, now, reason=reason, receipt=receipt, expires_at=until, reason_code=code)
                return Step(failed._without_new_key())
            case RecordNotSent() if state in _OPEN:
                return GONE
            case RecordUncertain(reason=reason, code=code, transaction=reported) if state is State.SETTLING:
                return Step(self._to(State.UNCERTAIN, now, reason=reason, reason_code=code, reported=reported))
            case Lapse() if state is State.SETTLING and self._lease_over(now):
                return Step(self._to(State.UNCERTAIN, now, reason="the settle call's outcome was never recorded"))
            case OperatorSettle() if uncertain or (state is State.RELEASED and current and not self.expired(now)):
                settled = self._settled(event.receipt, event.transaction, now)
                return Step(settled, audit=Audit(event.who, "settled", event.evidence), sold=True)
            case OperatorRelease(who=who, grounds=grounds, transaction=transaction) if uncertain:
                reason = "released by the chain" if who == CHAIN else grounds.value
                until = now + REPLAY_WINDOW
                released = self._to(State.RELEASED, now, reason=reason, transaction=transaction, expires_at=until)
                return Step(released._without_new_key(), audit=Audit(event.who, "released", event.evidence))
            # No other event moves an attempt in this state. The list is written out so that mypy finds a new event.
            case (
                Submit()
                | Withdraw()
                | RecordSpent()
                | RecordSettled()
                | RecordRefused()
                | RecordNotSent()
                | RecordUncertain()
                | Lapse()
                | OperatorSettle()
                | OperatorRelease()
            ):
                return Step(self, owned=False)

    def _without_new_key(self) -> Attempt:
        """Return this attempt with the proof given back that another payment may use: this one came to nothing."""
        kept = tuple(proof for proof in self.proofs if proof != self.new_key_proof)
        return replace(self, proofs=kept, new_key_proof=None)

    def _settled(self, receipt: str, transaction: str, now: float, payer: str | None = None) -> Attempt:
        return self._to(
            State.SETTLED, now, receipt=receipt, transaction=transaction, payer=payer, expires_at=now + REPLAY_WINDOW
        )

    def _to(
        self,
        state: State,
        now: float,
        *,
        lease: float | None = None,
        reason: str | None = None,
        receipt: str | None = None,
        transaction: str | None = None,
        payer: str | None = None,
        expires_at: float | None = None,
        reason_code: str | None = None,
        reported: str | None = None,
    ) -> Attempt:
        """Return this attempt in another state: what is not named is cleared, but for payer and transactions."""
        return replace(
            self,
            state=state,
            lease=lease,
            reason=None if reason is None else _storable(reason),
            receipt=receipt,
            transaction=transaction or self.transaction,
            payer=payer or self.payer,
            expires_at=expires_at,
            updated_at=now,
            reason_code=None if reason_code is None else _storable(reason_code, CODE_LIMIT),
            reported_transaction=self.reported_transaction if reported is None else _storable(reported, CODE_LIMIT),
        )


def _storable(text: str, limit: int = REASON_LIMIT) -> str:
    """Return a provider's text as any store can hold it: bounded, without NUL or a lone surrogate."""
    return text[:limit].replace("\0", "?").encode("utf-8", "replace").decode()


_OPEN: Final = (State.SETTLING, State.UNCERTAIN)


@dataclass(frozen=True, slots=True)
class Audit:
    """One decision that the table left to somebody: who took it, what, and on which evidence."""

    who: str
    what: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Step:
    """What became of an attempt: `attempt` is the row afterwards, None when it and its proofs are deleted.

    `owned` False means that the sender of the event lost its claim: it re-reads and answers by the decision table,
    never from its own outcome.
    `sold` says that a payment was received, which belongs into the books.
    """

    attempt: Attempt | None
    owned: bool = True
    audit: Audit | None = None
    sold: bool = False


GONE: Final = Step(None)
LOST_AND_GONE: Final = Step(None, owned=False)
