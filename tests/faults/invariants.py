"""The invariants of docs/lifecycle.md, section 8, held against what a history left behind.

A history is what was observed from outside: what callers were answered, what reached the provider and what moved, and
the database's own journal of its rows (see `witness.py`). `violations` knows nothing of how the service works.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class Holder(NamedTuple):
    """A row that another connection read, with what counts about it."""

    claim: str
    state: str
    credential_digest: str
    receipt: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request was answered, whole.

    Attributes:
        proof: What moves the money of the credential that was sent; None when none was, or none that can be read.
        digest: The digest of that credential.
        rows: The key's settled rows that another connection read when a 200 had come.
        allowed: What the decision table says, where nothing else happened to the key at that time.
    """

    key: str
    proof: str | None
    digest: str | None
    sent_at: float
    status: int
    code: str | None
    content: bytes = b""
    receipt: str | None = None
    rows: tuple[Holder, ...] = ()
    allowed: tuple[tuple[int, str | None], ...] | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A settle call that reached the provider, with the rows that hold its proof as another connection read them then.

    A reader that had to wait for a stopped database may see what became of the row meanwhile; never `reserved`.
    """

    key: str
    proof: str
    rows: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """Money that moved."""

    key: str
    proof: str
    at: float


class Change(NamedTuple):
    """A line of the journal: one row, inserted (`old` is None), moved, or deleted (`new` is None)."""

    key: str
    n: int
    claim: str
    old: str | None
    new: str | None
    proof: str
    expires_at: float | None


class Decision(NamedTuple):
    """A row of the audit."""

    key: str
    n: int
    who: str
    what: str


@dataclass
class History:
    """All that was observed; `now` is the store's clock at the end of it.

    Attributes:
        freed: The claims whose proofs were deleted.
        last: By key and proof, the answer to the last identical resend of what moved money, when all was over.
        strays: Requests of the service for what no provider has.
        canaries: Files in which something was found of what callers sent.
    """

    answers: list[Answer] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    last: dict[tuple[str, str], Answer] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)
    canaries: list[str] = field(default_factory=list)
    now: float = 0.0


LINES: Final = frozenset(
    {
        (None, "reserved"),
        ("reserved", None),
        ("reserved", "settling"),
        ("reserved", "uncertain"),
        ("settling", None),
        ("settling", "settled"),
        ("settling", "failed"),
        ("settling", "uncertain"),
        ("uncertain", None),
        ("uncertain", "settled"),
        ("uncertain", "failed"),
        ("uncertain", "released"),
        ("released", "settled"),
        ("settled", None),
        ("failed", None),
        ("released", None),
    }
)
"""The table of docs/lifecycle.md, section 3, as one row goes through it; the rest of each line is looked at below."""

ENDED: Final = frozenset({"settled", "failed", "released"})
HOLDS_MONEY: Final = frozenset({"settling", "uncertain", "settled"})


def violations(history: History) -> list[str]:
    """Return every invariant that the history breaks, with where it does."""
    checks = (_i1, _i2, _i3, _i4, _i5, _i6, _i7_and_i9, _i8, _i10, _table, _receipts)
    return [text for check in checks for text in check(history)]


def _i1(history: History) -> Iterator[str]:
    for proof, times in Counter(move.proof for move in history.moves).items():
        if times > 1:
            yield f"I1: {proof} moved money {times} times"


def _i2(history: History) -> Iterator[str]:
    released = _released(history)
    for key, times in Counter(move.key for move in history.moves).items():
        if times > 1 and key not in released:
            yield f"I2: {key} moved money {times} times"


def _i3(history: History) -> Iterator[str]:
    for answer in history.answers:
        if answer.status != 200:
            continue
        held = [row for row in answer.rows if row.receipt == answer.receipt]
        if not held:
            yield f"I3: a 200 for {answer.key} without a settled row of its receipt"
        elif answer.digest not in {row.credential_digest for row in held}:
            yield f"I3: a 200 for {answer.key} to another credential than the one that paid"


def _i4(history: History) -> Iterator[str]:
    late = {decision.key for decision in history.decisions if decision.what == "settled after release"}
    states: dict[tuple[str, str], set[str]] = defaultdict(set)
    for changes in _by_claim(history).values():
        end = changes[-1]
        # A row that was purged ended as what it was.
        state = end.new or (end.old if end.old in ENDED else None)
        if state is not None:
            states[end.key, end.proof].add(state)
    for move in history.moves:
        found = states[move.key, move.proof]
        if not found & HOLDS_MONEY and move.key not in late:
            yield f"I4: money moved for {move.key}, whose attempt is {', '.join(sorted(found)) or 'not there'}"
        if "failed" in found:
            yield f"I4: money moved for {move.key}, and its attempt counts as failed"


def _i5(history: History) -> Iterator[str]:
    for proof, times in Counter(call.proof for call in history.calls).items():
        if times > 1:
            yield f"I5: {proof} was sent to be settled {times} times"
    submitted = {change.claim for change in history.changes if change.new == "settling"}
    for call in history.calls:
        if not any(row.claim in submitted and row.state != "reserved" for row in call.rows):
            seen = ", ".join(row.state for row in call.rows) or "nothing"
            yield f"I5: a settle call for {call.key} left while the store held {seen} of its proof"


def _i6(history: History) -> Iterator[str]:
    said: dict[str, set[tuple[bytes, str | None]]] = defaultdict(set)
    for answer in history.answers:
        if answer.status == 200:
            said[answer.key].add((answer.content, answer.receipt))
    for key, different in said.items():
        if len(different) > 1:
            yield f"I6: {len(different)} different 200s for {key}"


def _i7_and_i9(history: History) -> Iterator[str]:
    called = {row.claim for call in history.calls for row in call.rows if row.state != "reserved"}
    released = {(decision.key, decision.n) for decision in history.decisions if decision.what == "released"}
    given_back: set[str] = set()
    for claim, changes in _by_claim(history).items():
        before: str | None = None
        for change in changes:
            line = (change.old, change.new)
            if change.old != before or line not in LINES:
                yield f"I9: a move outside the table: {change.key} went from {before} ({change.old}) to {change.new}"
            if change.old in {"settling", "uncertain"} and change.new is None and claim in called:
                yield f"I7: {change.key} was {change.old} and its payment sent, and it is gone"
            if change.old in ENDED and change.new is None and (change.expires_at or 0.0) > history.now:
                yield f"I9: {change.key} was {change.old}, its window open, and it is gone"
            if change.new == "released" and (change.key, change.n) not in released:
                yield f"I7: {change.key} was released by nobody"
            if change.new is None and change.old not in ENDED:
                given_back.add(claim)
            before = change.new
    for claim in history.freed:
        if claim not in given_back:
            yield f"I9: a proof of an attempt that was submitted is gone (claim {claim})"
    yield from (f"I9: the service asked for {path}" for path in history.strays)


def _i8(history: History) -> Iterator[str]:
    released = _released(history)
    first_move: dict[str, Move] = {}
    moved_under: dict[str, float] = {}
    for move in history.moves:
        first_move.setdefault(move.proof, move)
        moved_under[move.key] = min(move.at, moved_under.get(move.key, move.at))
    for answer in history.answers:
        if answer.status != 402 or answer.key in released:
            continue
        move_of_proof = first_move.get(answer.proof or "")
        if move_of_proof and move_of_proof.at < answer.sent_at and move_of_proof.key not in released:
            yield f"I8: a 402 on {answer.key} for a credential whose money had moved"
        if moved_under.get(answer.key, answer.sent_at) < answer.sent_at:
            yield f"I8: a 402 on {answer.key} after its money had moved ({answer.what})"


def _i10(history: History) -> Iterator[str]:
    yield from (f"I10: what callers sent is in {where}" for where in history.canaries)


def _table(history: History) -> Iterator[str]:
    for answer in history.answers:
        if answer.allowed is not None and (answer.status, answer.code) not in answer.allowed:
            got, allowed = (answer.status, answer.code), " or ".join(map(str, answer.allowed))
            yield f"table: {answer.key} asked {answer.what} was answered {got} instead of {allowed}"


def _receipts(history: History) -> Iterator[str]:
    """Whoever paid gets what was paid for: nothing that moved stays without its 200."""
    for move in history.moves:
        last = history.last.get((move.key, move.proof))
        if last is not None and last.status != 200:
            yield f"lost receipt: {move.key} paid, and its identical resend is answered {last.status} {last.code}"


def _released(history: History) -> set[str]:
    return {decision.key for decision in history.decisions if decision.what == "released"}


def _by_claim(history: History) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = defaultdict(list)
    for change in history.changes:
        found[change.claim].append(change)
    return found
