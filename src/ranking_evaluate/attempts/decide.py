"""The decision table of docs/lifecycle.md, section 4: the current row and a request in, what to do out.

It is pure. Each kind of cell is a class with what its answer needs, so a `match` over a `Decision` is complete or does
not type-check.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ranking_evaluate.attempts.attempt import Attempt, State


@dataclass(frozen=True, slots=True)
class Request:
    """What the table knows of a request: its key, what it buys, and with which credential.

    Attributes:
        key: Its Idempotency-Key.
        fingerprint: What it buys.
        release: Which release sells that.
        credential_digest: None when the request carries no readable credential; `proofs` is then empty.
        proofs: What its credential uses up.
        schema_sha256: What the result means, which is a part of the fingerprint.
        former_fingerprint: What it buys in the form of rows that were written before that was a part of it.
    """

    key: str
    fingerprint: str
    release: str
    credential_digest: str | None = None
    proofs: tuple[bytes, ...] = ()
    schema_sha256: str | None = None
    former_fingerprint: str | None = None

    def buys(self, row: Attempt) -> bool:
        """Return whether it is for what this row is of."""
        return row.fingerprint in {self.fingerprint, self.former_fingerprint}

    def is_of_the_release_of(self, row: Attempt) -> bool:
        """Return whether the release is the row's, and still means the same by a result, as far as the row tells."""
        return row.release == self.release and row.schema_sha256 in {None, self.schema_sha256}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One read of the store for one request.

    Attributes:
        now: The store's clock at the read.
        rows: Every row of the key, by rising n.
        last_n: The highest n that a submitted attempt of the key ever had, purged ones included; 0 when none.
        paid_and_purged: Whether a purged attempt of the key was settled.
        recorded: Those of the request's proofs that anything but a lapsed reservation holds, under any key.
    """

    now: float
    rows: tuple[Attempt, ...] = ()
    last_n: int = 0
    paid_and_purged: bool = False
    recorded: frozenset[bytes] = frozenset()

    @property
    def standing(self) -> Attempt | None:
        """The row with the highest n that is no lapsed reservation, expired or not."""
        return next((row for row in reversed(self.rows) if not row.lapsed(self.now)), None)

    @property
    def current(self) -> Attempt | None:
        """The row that decides: the standing one, or None when its replay window is over."""
        row = self.standing
        return None if row is None or row.expired(self.now) else row

    @property
    def paid(self) -> bool:
        """Whether any attempt of the key was ever settled, purged ones included: such a key is never sold again."""
        return self.paid_and_purged or any(row.state is State.SETTLED for row in self.rows)

    @property
    def next_n(self) -> int:
        """The n that a reservation made on this read takes: a lapsed one's own, else one more than any before."""
        top = self.rows[-1] if self.rows else None
        if top is not None and top.lapsed(self.now):
            return top.n
        return max(self.last_n, top.n if top else 0) + 1


class Cause(Enum):
    """Why a key conflicts; the value is the `cause` member of the problem."""

    BODY = "body"
    RELEASE = "release"
    CREDENTIAL = "credential"
    PAID = "paid"
    EXPIRED = "expired"


# What the table may say: one class for each kind of cell.


@dataclass(frozen=True, slots=True)
class Challenge:
    """Ask for a payment: no attempt stands in the way, and the request carries no credential."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Take the credential: no attempt stands in the way, and none of its proofs was used."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Deliver again what this row has paid for."""

    row: Attempt


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse the credential again, for the reason in this row, without asking anybody."""

    row: Attempt


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key stands for something else; `release` is the one that it was used under, where that is the cause."""

    cause: Cause
    release: str | None = None


@dataclass(frozen=True, slots=True)
class DuplicateProof:
    """The payment was used for another credential or another key."""


@dataclass(frozen=True, slots=True)
class InProgress:
    """The payment under this key is being verified or settled."""


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """Nobody knows whether the payment of this row moved; until that is decided nothing is sold under its key."""

    row: Attempt


Answerable = Challenge | Replay | Reject | Conflict | DuplicateProof | InProgress | OutcomeUnknown
"""A decision that answers the request; `Reserve` alone goes on with it."""

Decision = Answerable | Reserve


def decide(seen: Snapshot, request: Request) -> Decision:
    """Return the cell of the table for what was read and what is asked."""
    row = seen.current
    if row is None:
        return Conflict(Cause.EXPIRED) if seen.paid else _for_sale(seen, request)
    if not request.buys(row):
        return Conflict(Cause.BODY) if request.is_of_the_release_of(row) else Conflict(Cause.RELEASE, row.release)
    same_credential = request.credential_digest == row.credential_digest
    match row.state_at(seen.now):
        case State.UNCERTAIN:
            return OutcomeUnknown(row)
        case State.RESERVED | State.SETTLING:
            if request.credential_digest is None or same_credential:
                return InProgress()
            return _other_credential(seen, request, Cause.CREDENTIAL)
        case State.SETTLED:
            return Replay(row) if same_credential else _other_credential(seen, request, Cause.PAID)
        case State.FAILED | State.RELEASED:
            return Reject(row) if same_credential else _for_sale(seen, request)


def _for_sale(seen: Snapshot, request: Request) -> Challenge | Reserve | DuplicateProof:
    """No attempt stands in the way: a challenge without a credential, else a reservation unless a proof was used."""
    if request.credential_digest is None:
        return Challenge()
    return DuplicateProof() if _proof_was_used(seen, request) else Reserve()


def _other_credential(seen: Snapshot, request: Request, cause: Cause) -> Conflict | DuplicateProof:
    """The key is taken, and not by this credential."""
    return DuplicateProof() if _proof_was_used(seen, request) else Conflict(cause)


def _proof_was_used(seen: Snapshot, request: Request) -> bool:
    return not seen.recorded.isdisjoint(request.proofs)
