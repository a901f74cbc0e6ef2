"""The embedded store: attempts and sales in one SQLite file, which several processes may share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import apsw

from ranking_evaluate.attempts.attempt import LOST_AND_GONE, Attempt, Audit, Draft, State, Step
from ranking_evaluate.attempts.decide import Request, Reserve, Snapshot, decide
from ranking_evaluate.attempts.events import DURABLE, Event
from ranking_evaluate.attempts.migrations import back_up
from ranking_evaluate.attempts.reader import Reader
from ranking_evaluate.attempts.rows import (
    COLUMNS,
    LAPSED_KEPT,
    MOVED,
    UNDER_WAY,
    Kept,
    from_row,
    names,
    seen_as,
    snapshot_of,
    to_row,
)
from ranking_evaluate.attempts.sales import (
    NEW_SALE,
    SALE_COLUMNS,
    Sale,
    from_sale_row,
    sale_of,
    sha256_hex,
    to_sale_row,
)
from ranking_evaluate.attempts.sqlite_file import OlderCopy, StoreFile, touch
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.attempts.writer import Writer

BUSY_TIMEOUT: Final = 10.0
"""Seconds to wait for another process's transaction; one of ours takes milliseconds."""

READ_TIMEOUT: Final = 0.2
"""Seconds that a read on the event loop waits; only where a log is recovered after a crash does it wait at all."""

_KEY: Final = COLUMNS.index("key")
_CLAIM: Final = COLUMNS.index("claim")

_SELECT: Final = f"SELECT {names(COLUMNS)} FROM attempts"  # noqa: S608 -- The columns are ours.
_INSERT: Final = f"INSERT INTO attempts ({names(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_UPDATE: Final = f"UPDATE attempts SET ({names(MOVED)}) = ({', '.join('?' * len(MOVED))}) WHERE claim = ? AND state = ?"  # noqa: S608
_SELL: Final = f"INSERT INTO sales ({names(NEW_SALE)}) VALUES ({', '.join('?' * len(NEW_SALE))})"  # noqa: S608
_SALES: Final = f"SELECT {names(SALE_COLUMNS)} FROM sales"  # noqa: S608
_AUDIT: Final = "INSERT INTO audit (at, key, n, who, what, evidence) VALUES (?, ?, ?, ?, ?, ?)"

T = TypeVar("T")
_UNDER_WAY: Final = UNDER_WAY.format(payer="?1", network="?2", asset="?3", claim="?4", now="?5", created="?6")


class SqliteStore:
    """An `AttemptStore` in one file.

    Args:
        path: The file; it is created with mode 0600, its directory must exist.
        clock: Seconds since the epoch; every lease and expiry is decided by it.
        busy_timeout: Seconds to wait for a lock that another process holds.
        create: Whether a missing file is made and an older one brought up; an operator's command would only make an
            empty one beside the service's.
        vfs: The name of SQLite's file layer; tests have one of their own.
    """

    def __init__(
        self,
        path: str | Path,
        clock: Callable[[], float] = time.time,
        *,
        busy_timeout: float = BUSY_TIMEOUT,
        create: bool = True,
        vfs: str | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._create = create
        self._vfs = vfs
        self._writer = Writer(self._connect_writer)
        self._reader = Reader(lambda: self._connect(READ_TIMEOUT))
        # The event loop that opened the store; it alone has the reader.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refused: OlderCopy | None = None

    async def open(self) -> None:
        """Create or check the file; raises `StoreUnavailable` with the reason when that is impossible."""
        self._writer.start()
        try:
            await self._writer.do(lambda db: None, durable=False)
        except BaseException:
            await self._writer.stop()
            raise
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Finish what is queued and let go of the file."""
        self._loop = None
        self._reader.close()
        await self._writer.stop()

    async def read(self, key: str, proofs: Sequence[bytes] = ()) -> Snapshot:
        """Return all that the decision table needs, in one read."""

        def read(db: apsw.Connection) -> Snapshot:
            now = self._clock()
            return _snapshot(db, key, _holders(db, proofs, now), now)

        return await self._read(read)

    async def _write(self, run: Callable[[apsw.Connection], T], *, durable: bool) -> T:
        self._check_trusted()
        return await self._writer.do(run, durable=durable)

    def _check_trusted(self) -> None:
        if self._refused is not None:
            raise StoreUnavailable(str(self._refused))

    async def _read(self, run: Callable[[apsw.Connection], T]) -> T:
        """Return what `run` returned: at once on the event loop of the store, else as a long read."""
        self._check_trusted()
        if self._loop is asyncio.get_running_loop():
            return self._reader.read(run)
        return await self._read_long(run)

    async def _read_long(self, run: Callable[[apsw.Connection], T]) -> T:
        """Return what `run` returned, read in a thread and on a connection of its own: nobody waits for it."""
        if self._loop is None:
            raise StoreUnavailable("the attempt store is closed")

        def read() -> T:
            with closing(Reader(lambda: self._connect(self._busy_timeout))) as reader:
                return reader.read(run)

        return await asyncio.to_thread(read)

    async def reserve(self, draft: Draft, request: Request, seen: Snapshot) -> Attempt | None:
        """Insert the draft and its proofs at `seen.next_n`, or return None: read and decide again."""
        if not draft.proofs:
            raise ValueError("an attempt without a proof could be paid for twice")

        def reserve(db: apsw.Connection) -> Attempt | None:
            now = self._clock()
            holders = _holders(db, draft.proofs, now)
            found = _snapshot(db, draft.key, holders, now)
            if found.next_n != seen.next_n or not isinstance(decide(found, request), Reserve):
                return None
            for row in found.rows:
                if row.lapsed(now):
                    _erase(db, row.key, row.claim)
            for holder in holders:
                if holder.lapsed:
                    _erase(db, holder.key, holder.claim)
            row = draft.begun(seen.next_n, now)
            try:
                db.execute(_INSERT, to_row(row))
                db.executemany(
                    "INSERT INTO proofs (proof, key, n, claim) VALUES (?, ?, ?, ?)",
                    [(proof, row.key, row.n, row.claim) for proof in row.proofs],
                )
            except apsw.ConstraintError as error:
                if getattr(error, "extendedresult", None) in (
                    apsw.SQLITE_CONSTRAINT_PRIMARYKEY,
                    apsw.SQLITE_CONSTRAINT_UNIQUE,
                ):
                    raise _Taken from error
                raise
            return row

        try:
            return await self._write(reserve, durable=False)
        except _Taken:
            return None

    async def move(self, claim: str, event: Event) -> Step:
        """Apply the event to the row with this claim, compare-and-set; a row that is gone gives a lost step."""

        def move(db: apsw.Connection) -> Step:
            now = self._clock()
            row = _by_claim(db, claim)
            if row is None:
                return LOST_AND_GONE
            # Only a released row asks; any other either has no newer one above it or does not care.
            current = row.state is not State.RELEASED or row == _snapshot(db, row.key, (), now).standing
            step = row.after(event, now, current=current)
            if step.attempt is None:
                _erase(db, row.key, row.claim)
            elif step.attempt is not row:
                db.execute(_UPDATE, (*to_row(step.attempt, MOVED), claim, row.state.value))
                if db.changes() != 1:
                    raise StoreUnavailable("the attempt changed inside its own transaction")
                given_back = set(row.proofs).difference(step.attempt.proofs)
                db.executemany("DELETE FROM proofs WHERE proof = ?", [(proof,) for proof in given_back])
                if (sale := sale_of(event, step)) is not None:
                    db.execute(_SELL, to_sale_row(sale))
            if step.audit is not None:
                audit = step.audit
                db.execute(_AUDIT, (now, row.key, row.n, audit.who, audit.what, audit.evidence))
            return step

        return await self._write(move, durable=isinstance(event, DURABLE))

    async def find(self, claim: str) -> Attempt | None:
        """Return the row with this claim: how a write whose commit is unknown is looked up."""
        return await self._read(lambda db: _by_claim(db, claim))

    async def recent(self, state: State | None = None, limit: int = 100) -> list[Attempt]:
        """Return attempts, the ones that changed last first; `UNCERTAIN` includes settling ones past their lease."""
        where = seen_as(state).format(now="?1")
        query = f"{_SELECT} WHERE {where} ORDER BY updated_at DESC, key, n LIMIT ?2"
        return await self._read_long(lambda db: _attempts(db, query, (self._clock(), limit)))

    async def under_way(self, attempt: Attempt) -> int:
        """Return what the payer's other purchases may still take of the same token, in base units."""
        values = (attempt.payer, attempt.network, attempt.asset, attempt.claim, self._clock(), attempt.created_at)

        rows: list[Any] = await self._read(lambda db: db.execute(_UNDER_WAY, values).fetchall())
        return int(rows[0][0])

    async def audits(self, key: str) -> list[tuple[float, int, Audit]]:
        """Return (when, n, decision) of the key's audit rows, oldest first."""
        query = "SELECT at, n, who, what, evidence FROM audit WHERE key = ? ORDER BY at, rowid"
        rows: list[Any] = await self._read_long(lambda db: db.execute(query, (key,)).fetchall())
        return [(at, n, Audit(*decision)) for at, n, *decision in rows]

    async def sales(self, after: int = 0, limit: int = 10_000) -> list[Sale]:
        """Return at most `limit` sales with a higher id than `after`, by rising id: the books, page by page."""
        query = f"{_SALES} WHERE id > ? ORDER BY id LIMIT ?"
        return await self._read_long(lambda db: [from_sale_row(row) for row in db.execute(query, (after, limit))])

    async def sales_of(self, key: str) -> list[Sale]:
        """Return the sales of a key, by rising n; more than one only where a released attempt was paid after all."""
        query = f"{_SALES} WHERE key_sha256 = ? ORDER BY n"
        return await self._read_long(lambda db: [from_sale_row(row) for row in db.execute(query, (sha256_hex(key),))])

    async def refund(self, sale: Sale, transaction: str, audit: Audit, key: str) -> bool:
        """Record, with its audit row, that a sale was paid back; False when a refund is recorded already."""

        def refund(db: apsw.Connection) -> bool:
            now = self._clock()
            update = "UPDATE sales SET refunded_at = ?, refund_transaction = ? WHERE id = ? AND refunded_at IS NULL"
            db.execute(update, (now, transaction, sale.id))
            if db.changes() != 1:
                return False
            db.execute(_AUDIT, (now, key, sale.n, audit.who, audit.what, audit.evidence))
            return True

        return await self._write(refund, durable=True)

    async def check_writable(self) -> None:
        """Write something that changes nothing; raises `StoreUnavailable` when nothing can be written.

        The file is opened afresh first. A copy that was laid over it keeps its inode, and open connections go on seeing
        what they have in memory: only a new one finds that sales are missing. Until a good file is there again, nothing
        is read or written.
        """
        try:
            await asyncio.to_thread(lambda: self._connect(self._busy_timeout).close())
            self._refused = None
        except OlderCopy as error:
            self._refused = error
            self._reader.close()
        except StoreUnavailable:
            # Whatever else is wrong, the writer meets it too.
            pass
        await self._write(touch, durable=False)

    async def back_up(self, target: Path) -> None:
        """Copy the store, as it is at this moment, into one file that needs no log."""
        await self._read_long(lambda db: back_up(db, target))

    async def purge(self, limit: int = 500) -> int:
        """Delete at most `limit` rows whose window is over, keeping their proofs, and lapsed reservations after 1 h."""

        def purge(db: apsw.Connection) -> int:
            now = self._clock()
            ended = _attempts(db, f"{_SELECT} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?", (now, limit))
            for row in ended:
                db.execute(
                    "UPDATE proofs SET last_state = ? WHERE key = ? AND claim = ?",
                    (row.state.value, row.key, row.claim),
                )
                db.execute("DELETE FROM attempts WHERE claim = ?", (row.claim,))
            lapsed = _attempts(
                db,
                f"{_SELECT} WHERE expires_at IS NULL AND state = 'reserved' AND lease <= ? LIMIT ?",
                (now - LAPSED_KEPT, limit - len(ended)),
            )
            for row in lapsed:
                _erase(db, row.key, row.claim)
            return len(ended) + len(lapsed)

        return await self._write(purge, durable=False)

    def _connect_writer(self) -> StoreFile:
        """Open the file; one that vanishes while we serve is not replaced by an empty one."""
        file = self._connect(self._busy_timeout, create=self._create)
        self._create = False
        return file

    def _connect(self, busy_timeout: float, *, create: bool = False) -> StoreFile:
        try:
            return StoreFile(self._path, busy_timeout, create=create, newest=self._writer.newest, vfs=self._vfs)
        except (OSError, apsw.Error) as error:
            raise StoreUnavailable(f"cannot open the attempt store {self._path}: {error}") from error


class _Taken(Exception):
    """A key or proof was taken by somebody else: what was written so far is rolled back."""


class _Holder(NamedTuple):
    """Who holds a proof, and whether that is a lapsed reservation."""

    proof: bytes
    key: str
    claim: str
    lapsed: bool


def _snapshot(db: apsw.Connection, key: str, holders: Sequence[_Holder], now: float) -> Snapshot:
    proofs: list[Any] = db.execute(
        "SELECT proof, key, n, claim, last_state FROM proofs WHERE key = ?", (key,)
    ).fetchall()
    kept = [Kept(*row) for row in proofs]
    # Every attempt has a proof, which outlives it, so a key without any stands for nothing.
    found = db.execute(f"{_SELECT} WHERE key = ? ORDER BY n", (key,)).fetchall() if kept else []
    rows = tuple(from_row(row, (proof.proof for proof in kept if proof.claim == row[_CLAIM])) for row in found)
    recorded = (holder.proof for holder in holders if not holder.lapsed)
    return snapshot_of(now, rows, kept, recorded)


def _holders(db: apsw.Connection, proofs: Sequence[bytes], now: float) -> list[_Holder]:
    if not proofs:
        return []
    rows = db.execute(
        "SELECT proof, p.key, p.claim, ifnull(state = 'reserved' AND lease <= ?, 0)"  # noqa: S608 -- Only marks vary.
        f" FROM proofs p LEFT JOIN attempts a ON a.claim = p.claim WHERE proof IN ({', '.join('?' * len(proofs))})",
        (now, *proofs),
    )
    return [_Holder(proof, key, claim, bool(lapsed)) for proof, key, claim, lapsed in rows]


def _erase(db: apsw.Connection, key: str, claim: str) -> None:
    """Delete an attempt that came to nothing, with the proofs of its own claim: an earlier row stands again."""
    db.execute("DELETE FROM proofs WHERE key = ? AND claim = ?", (key, claim))
    db.execute("DELETE FROM attempts WHERE claim = ?", (claim,))


def _attempts(db: apsw.Connection, query: str, values: Sequence[object]) -> list[Attempt]:
    found = db.execute(query, values).fetchall()
    proofs = "SELECT proof FROM proofs WHERE key = ? AND claim = ?"
    return [from_row(row, (proof for (proof,) in db.execute(proofs, (row[_KEY], row[_CLAIM])))) for row in found]


def _by_claim(db: apsw.Connection, claim: str) -> Attempt | None:
    found = _attempts(db, f"{_SELECT} WHERE claim = ?", (claim,))
    return found[0] if found else None
