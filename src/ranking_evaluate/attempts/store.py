"""The port of the stores: what a store of attempts promises, whatever keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ranking_evaluate.attempts.attempt import Attempt, Audit, Event, State, Step
from ranking_evaluate.attempts.decide import Request, Snapshot
from ranking_evaluate.attempts.sales import Sale


class StoreUnavailable(Exception):
    """The store could not be read or written; nothing of this call was committed."""


class CommitUnknown(StoreUnavailable):
    """The write may or may not have been committed: re-read by the claim before anything else is decided."""


class AttemptStore(Protocol):
    """Durable attempts, proofs and sales; every method raises `StoreUnavailable` when the store cannot be reached.

    Each writing method is one committed transaction before it returns, visible to every process. The events of
    `attempt.DURABLE` and a refund are on the disk by then; the others may be lost with the machine's power. One `now()`
    of the store decides leases and expiry. Two processes may share a store: uniqueness by (key, n) and by proof is the
    whole argument, no lock of this process is part of it.
    """

    async def open(self) -> None:
        """Create or check the schema; raises `StoreUnavailable` with the reason when that is impossible."""

    async def close(self) -> None:
        """Finish what is queued and let go of the store."""

    async def read(self, key: str, proofs: Sequence[bytes] = ()) -> Snapshot:
        """Return all that the decision table needs, in one read."""

    async def reserve(self, draft: Attempt, request: Request, seen: Snapshot) -> Attempt | None:
        """Insert the draft and its proofs at `seen.next_n`, or return None when the caller must read and decide again.

        The transaction decides again on what it finds; lapsed reservations that hold the key or one of the proofs are
        deleted whole. What is inserted is `draft.begun(n, now)`.
        """

    async def move(self, claim: str, event: Event) -> Step:
        """Apply the event to the row with this claim, compare-and-set; a row that is gone gives a lost step.

        A row that becomes settled is written into the books in the same transaction.
        """

    async def find(self, claim: str) -> Attempt | None:
        """Return the row with this claim: how a write whose commit is unknown is looked up."""

    async def recent(self, state: State | None = None, limit: int = 100) -> list[Attempt]:
        """Return attempts, the ones that changed last first; `UNCERTAIN` includes settling ones past their lease."""

    async def audits(self, key: str) -> list[tuple[float, int, Audit]]:
        """Return (when, n, decision) of the key's audit rows, oldest first."""

    async def purge(self, limit: int = 500) -> int:
        """Delete at most `limit` rows whose window is over, keeping their proofs, and lapsed reservations after 1 h."""

    async def sales(self, after: int = 0, limit: int = 10_000) -> list[Sale]:
        """Return at most `limit` sales with a higher id than `after`, by rising id: the books, page by page."""

    async def sales_of(self, key: str) -> list[Sale]:
        """Return the sales of a key, by rising n; more than one only where a released attempt was paid after all."""

    async def refund(self, sale: Sale, transaction: str, audit: Audit, key: str) -> bool:
        """Record, with its audit row, that a sale was paid back; False when a refund is recorded already."""

    async def check_writable(self) -> None:
        """Raise `StoreUnavailable` when nothing can be written: tries it, or tells of the last try."""
