"""The decision table: the current row and a request in, what to do out; pure (lifecycle specification, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ranking_evaluate.attempts.attempt import Attempt, State


@dataclass(frozen=True, slots=True)
class Request:
    """What the table looks at: whose purchase this is, what is bought, and with which credential.

    `credential_digest` is None when the request carries no readable credential; `proofs` is then empty.
    """

    key: str
    fingerprint: str
    release: str
    credential_digest: str | None = None
    proofs: tuple[bytes, ...] = ()


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


class Do(Enum):
    """What the table says."""

    CHALLENGE = auto()
    RESERVE = auto()
    REPLAY = auto()
    REJECT = auto()
    CONFLICT = auto()
    DUPLICATE_PROOF = auto()
    IN_PROGRESS = auto()
    UNCERTAIN = auto()


class Cause(Enum):
    """Why a key conflicts; the value is the `cause` member of the problem."""

    BODY = "body"
    RELEASE = "release"
    CREDENTIAL = "credential"
    PAID = "paid"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a request, the row on which that rests, and the cause of a conflict."""

    do: Do
    row: Attempt | None = None
    cause: Cause | None = None


def decide(seen: Snapshot, request: Request) -> Decision:
    """Return the cell of the table for what was read and what is asked."""
    row = seen.current
    if row is None:
        if seen.paid:
            return Decision(Do.CONFLICT, seen.standing, Cause.EXPIRED)
        return Decision(_unowned(seen, request))
    if row.fingerprint != request.fingerprint:
        other_release = row.release != request.release
        return Decision(Do.CONFLICT, row, Cause.RELEASE if other_release else Cause.BODY)
    if row.doubtful(seen.now):
        return Decision(Do.UNCERTAIN, row)
    same = request.credential_digest == row.credential_digest
    match row.state:
        case State.RESERVED | State.SETTLING:
            if request.credential_digest is None or same:
                return Decision(Do.IN_PROGRESS, row)
            return _other_credential(seen, request, row, Decision(Do.CONFLICT, row, Cause.CREDENTIAL))
        case State.SETTLED:
            if same:
                return Decision(Do.REPLAY, row)
            return _other_credential(seen, request, row, Decision(Do.CONFLICT, row, Cause.PAID))
        case State.FAILED | State.RELEASED:
            if same:
                return Decision(Do.REJECT, row)
            return Decision(_unowned(seen, request), row)
        case State.UNCERTAIN:  # An uncertain row is doubtful; the branch above has answered.
            return Decision(Do.UNCERTAIN, row)


def _unowned(seen: Snapshot, request: Request) -> Do:
    """No attempt stands in the way: a challenge without a credential, else a reservation unless a proof was used."""
    if request.credential_digest is None:
        return Do.CHALLENGE
    return Do.DUPLICATE_PROOF if seen.recorded.intersection(request.proofs) else Do.RESERVE


def _other_credential(seen: Snapshot, request: Request, row: Attempt, otherwise: Decision) -> Decision:
    return Decision(Do.DUPLICATE_PROOF, row) if seen.recorded.intersection(request.proofs) else otherwise
