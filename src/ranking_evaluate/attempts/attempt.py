"""One purchase under one key: its states and the moves between them, without clock or storage.

The table is section 3 of the lifecycle specification; `Attempt.after` is that table and nothing else moves a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

REPLAY_WINDOW: Final = 24 * 3600.0
"""Seconds for which a paid answer is delivered again, and a failed one is remembered."""

SUBMIT_MARGIN: Final = 1.0
"""Seconds of the reservation's lease that must be left at SUBMIT, so that nobody takes it over meanwhile."""

REASON_LIMIT: Final = 500
"""Characters kept of a reason: a provider's text must not be what makes the write of an outcome fail."""


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


@dataclass(frozen=True, slots=True)
class Submit:
    """The credential is about to be sent to be settled; `lease` is how many seconds that may take."""

    lease: float


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Verification came to nothing; nothing was submitted."""


@dataclass(frozen=True, slots=True)
class AlreadyUsed:
    """Verification found the authorization spent: somebody submitted it first, and the money may be ours."""

    reason: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """The money moved; `receipt` is the receipt header that every 200 of this attempt carries."""

    receipt: str
    transaction: str
    payer: str | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The money definitely did not move and never will by this credential."""

    reason: str
    receipt: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Unsend:
    """The settle call was definitely not sent."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Nobody can tell whether the money moved; `code` and `transaction` are what the provider said, unproved."""

    reason: str
    code: str | None = None
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Lapse:
    """Somebody saw that the lease of a settling attempt is over."""


@dataclass(frozen=True, slots=True)
class OperatorSettle:
    """An operator found the payment on the chain."""

    receipt: str
    transaction: str
    who: str
    evidence: str


@dataclass(frozen=True, slots=True)
class OperatorRelease:
    """An operator found that the payment never landed."""

    who: str
    evidence: str


Event = Submit | Withdraw | AlreadyUsed | Settle | Refuse | Unsend | Doubt | Lapse | OperatorSettle | OperatorRelease

DURABLE: Final = (Submit, AlreadyUsed, Settle, Refuse, Unsend, OperatorSettle, OperatorRelease)
"""The events that reach the disk before anything is answered or called.

What the others write is visible to every process at once, but a loss of power may take it back: losing it loses
nothing that anybody was told (docs/lifecycle.md, "Crash points").
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The stored record of one purchase; it never holds a body, a result, a credential or a signature.

    Times are seconds since the epoch by the store's clock. `claim` is random and names the owner: only who holds it
    moves the row. `proofs` are 32-byte digests of what may be used once, ever. `payment_id` is the authorization's
    nonce (x402) or the challenge id (MPP). `reported_transaction` is what a provider named without proof, and never
    evidence; `reason_code` is its own word for what went wrong. `recipient` and `answer_sha256` are None in rows that
    schema 1 wrote.
    """

    key: str
    n: int
    claim: str
    state: State
    lease: float | None
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
    reason: str | None = None
    receipt: str | None = None
    created_at: float
    updated_at: float
    expires_at: float | None = None
    recipient: str | None = None
    reason_code: str | None = None
    reported_transaction: str | None = None
    answer_sha256: str | None = None

    def begun(self, n: int, now: float) -> Attempt:
        """Return this draft, whose lease counts seconds from now, as the row to insert at `n`; proofs are sorted."""
        lease = None if self.lease is None else now + self.lease
        return replace(self, n=n, lease=lease, proofs=tuple(sorted(self.proofs)), created_at=now, updated_at=now)

    def lapsed(self, now: float) -> bool:
        """Whether this is a reservation whose owner let its lease run out: it counts as absent."""
        return self.state is State.RESERVED and self._lease_over(now)

    def doubtful(self, now: float) -> bool:
        """Whether the outcome is unknown: uncertain, or settling with its lease over."""
        return self.state is State.UNCERTAIN or (self.state is State.SETTLING and self._lease_over(now))

    def expired(self, now: float) -> bool:
        """Whether the replay window of a settled, failed or released attempt is over."""
        return self.expires_at is not None and self.expires_at <= now

    def _lease_over(self, now: float) -> bool:
        return self.lease is not None and self.lease <= now

    def after(self, event: Event, now: float, *, current: bool = True) -> Step:
        """Return what the event makes of this attempt; `owned` is False when the event's sender decides nothing.

        Args:
            event: What happened.
            now: The store's clock.
            current: Whether no newer attempt of the key exists that is not a lapsed reservation.
        """
        state = self.state
        match event:
            case Submit(lease=lease) if state is State.RESERVED:
                if self.lease is None or self.lease - now < SUBMIT_MARGIN:
                    return LOST_AND_GONE
                return Step(self._to(State.SETTLING, now, lease=now + lease))
            case Withdraw() if state is State.RESERVED:
                return LOST_AND_GONE if self._lease_over(now) else GONE
            case AlreadyUsed(reason=reason, code=code) if state is State.RESERVED:
                if self._lease_over(now):
                    return LOST_AND_GONE
                return Step(self._to(State.UNCERTAIN, now, reason=reason, reason_code=code))
            case Settle() if state in _OPEN:
                return Step(self._settled(event.receipt, event.transaction, now, event.payer), sold=True)
            case Settle() if state is State.RELEASED:
                settled = self._settled(event.receipt, event.transaction, now, event.payer)
                if not current or self.expired(now):
                    # Marked where it stands: the operator refunds it, so it opens no window of its own.
                    settled = replace(settled, expires_at=self.expires_at)
                # The owner expected another state: it re-reads, for a newer attempt may have the key by now.
                audit = Audit("service", "settled after release", event.transaction)
                return Step(settled, owned=False, audit=audit, sold=True)
            case Refuse(reason=reason, receipt=receipt, code=code) if state in _OPEN:
                until = now + REPLAY_WINDOW
                refused = self._to(
                    State.FAILED, now, reason=reason, receipt=receipt, expires_at=until, reason_code=code
                )
                return Step(refused)
            case Unsend() if state in _OPEN:
                return GONE
            case Doubt(reason=reason, code=code, transaction=reported) if state is State.SETTLING:
                return Step(self._to(State.UNCERTAIN, now, reason=reason, reason_code=code, reported=reported))
            case Lapse() if state is State.SETTLING and self._lease_over(now):
                return Step(self._to(State.UNCERTAIN, now, reason="the settle call's outcome was never recorded"))
            case OperatorSettle() if self.doubtful(now) or (
                state is State.RELEASED and current and not self.expired(now)
            ):
                settled = self._settled(event.receipt, event.transaction, now, None)
                return Step(settled, audit=Audit(event.who, "settled", event.evidence), sold=True)
            case OperatorRelease() if self.doubtful(now):
                released = self._to(
                    State.RELEASED, now, reason="released by an operator", expires_at=now + REPLAY_WINDOW
                )
                return Step(released, audit=Audit(event.who, "released", event.evidence))
            case _:
                return Step(self, owned=False)

    def _settled(self, receipt: str, transaction: str, now: float, payer: str | None) -> Attempt:
        return self._to(
            State.SETTLED,
            now,
            receipt=receipt,
            transaction=transaction,
            payer=payer or self.payer,
            reason=None,
            expires_at=now + REPLAY_WINDOW,
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
    never from its own outcome. `sold` says that a payment was received, which belongs into the books.
    """

    attempt: Attempt | None
    owned: bool = True
    audit: Audit | None = None
    sold: bool = False


GONE: Final = Step(None)
LOST_AND_GONE: Final = Step(None, owned=False)
