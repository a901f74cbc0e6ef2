"""The port of the stores: what every store of attempts promises (docs/lifecycle.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ranking_evaluate.attempts.attempt import Attempt, Audit, Draft, State, Step
from ranking_evaluate.attempts.decide import Request, Snapshot
from ranking_evaluate.attempts.events import Event
from ranking_evaluate.attempts.sales import Sale


class StoreUnavailable(Exception):
    """The store could not be read or written; nothing of this call was committed."""


class NotMade(StoreUnavailable):
    """There is no store yet, or one of an older release: a start of the service makes it, or brings it up."""


class CommitUnknown(StoreUnavailable):
    """The write may or may not have been committed; its caller looks the claim up before it decides anything else."""


class AttemptStore(Protocol):
    """Durable attempts, proofs and sales; every method raises `StoreUnavailable` when the store cannot be reached.

    A method that writes returns after its one transaction is committed, visible to every process. The events of
    `events.DURABLE` and a refund are on the disk by then; the others may be lost with the machine's power. One clock
    of the store decides leases and expiry. Several processes may share a store; unique (key, n) and unique proofs keep
    them apart, no lock does.
    """

    async def open(self) -> None:
        """Create or check the schema; raises `StoreUnavailable` with the reason when that is impossible."""

    async def close(self) -> None:
        """Finish what is queued and close the store."""

    async def read(self, key: str, proofs: Sequence[bytes] = ()) -> Snapshot:
        """Return all that the decision table needs, in one read."""

    async def reserve(self, draft: Draft, request: Request, seen: Snapshot) -> Attempt | None:
        """Return the inserted row, or None when the caller must read and decide again.

        The row is `draft.begun(seen.next_n, now)`, inserted with its proofs. The transaction decides again on what it
        finds. It deletes lapsed reservations that hold the key or one of the proofs, with all their proofs.
        """

    async def move(self, claim: str, event: Event) -> Step:
        """Apply the event to the row with this claim, by compare-and-set, and return the step.

        A row that is gone gives a step that its sender does not own. A row that becomes settled is written into the
        books in the same transaction.
        """

    async def find(self, claim: str) -> Attempt | None:
        """Return the row with this claim, if any: so a write whose commit is unknown is looked up."""

    async def recent(self, state: State | None = None, limit: int = 100) -> list[Attempt]:
        """Return attempts by the state that counts now (`Attempt.state_at`), the ones that changed last first."""

    async def under_way(self, attempt: Attempt) -> int:
        """Return what the payer's other purchases may still take of the same token, in base units.

        Those that are submitted or uncertain count while their payment can land, reserved ones where they were reserved
        before this one: of several at once the first is not held up by the others.
        """

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
