"""The embedded store: attempts in one SQLite file, which several processes may share."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from ranking_evaluate.attempts.attempt import LOST_AND_GONE, Attempt, Audit, Draft, Event, State, Step
from ranking_evaluate.attempts.decide import Request, Reserve, Snapshot, decide
from ranking_evaluate.attempts.reader import Reader
from ranking_evaluate.attempts.rows import (
    COLUMNS,
    LAPSED_KEPT,
    MOVED,
    Kept,
    from_row,
    names,
    seen_as,
    snapshot_of,
    to_row,
)
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.attempts.writer import Writer

SCHEMA_VERSION: Final = 1

APPLICATION_ID: Final = 0x52414E4B
"""Marks a file as ours ("RANK"), so that another program's database is left alone."""

BUSY_TIMEOUT: Final = 10.0
"""Seconds to wait for another process's transaction; one of ours takes milliseconds."""

_KEY: Final = COLUMNS.index("key")
_CLAIM: Final = COLUMNS.index("claim")

_SELECT: Final = f"SELECT {names(COLUMNS)} FROM attempts"  # noqa: S608 -- The columns are ours.
_INSERT: Final = f"INSERT INTO attempts ({names(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_UPDATE: Final = f"UPDATE attempts SET ({names(MOVED)}) = ({', '.join('?' * len(MOVED))}) WHERE claim = ? AND state = ?"  # noqa: S608


T = TypeVar("T")


class SqliteStore:
    """An `AttemptStore` in one file.

    Args:
        path: The file; it is created with mode 0600, its directory must exist.
        clock: Seconds since the epoch; every lease and expiry is decided by it.
        busy_timeout: Seconds to wait for a lock that another process holds.
        create: Whether a missing file is made; an operator's command would only make an empty one beside the service's.
    """

    def __init__(
        self,
        path: str | Path,
        clock: Callable[[], float] = time.time,
        *,
        busy_timeout: float = BUSY_TIMEOUT,
        create: bool = True,
    ) -> None:
        self._path = Path(path).absolute()
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._writer = Writer(self._connect)
        self._reader = Reader(partial(_open, self._path, 0, create=False))
        # The event loop that opened the store; it alone has the reader.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._create = create

    async def open(self) -> None:
        """Create or check the file; raises `StoreUnavailable` with the reason when that is impossible."""
        self._writer.start()
        try:
            await self._writer.do(lambda db: None, writes=False)
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
        if self._loop is None:
            raise StoreUnavailable("the attempt store is closed")
        if self._loop is asyncio.get_running_loop():
            # Where somebody is committing, or something is wrong, the writer waits for the one and tells of the other.
            with suppress(sqlite3.Error):
                return self._reader.read(lambda db: _look(db, key, proofs, self._clock()))
        return await self._writer.do(lambda db: _look(db, key, proofs, self._clock()), writes=False)

    async def _write(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `run` returned, committed."""
        if self._loop is asyncio.get_running_loop():
            self._reader.end()
        return await self._writer.do(run, writes=True)

    async def reserve(self, draft: Draft, request: Request, seen: Snapshot) -> Attempt | None:
        """Insert the draft and its proofs at `seen.next_n`, or return None: read and decide again."""
        if not draft.proofs:
            raise ValueError("an attempt without a proof could be paid for twice")

        def reserve(db: sqlite3.Connection) -> Attempt | None:
            now = self._clock()
            found = _snapshot(db, draft.key, draft.proofs, now)
            if found.next_n != seen.next_n or not isinstance(decide(found, request), Reserve):
                return None
            for row in found.rows:
                if row.lapsed(now):
                    _erase(db, row.key, row.claim)
            for holder in _holders(db, draft.proofs, now):
                if holder.lapsed:
                    _erase(db, holder.key, holder.claim)
            row = draft.begun(seen.next_n, now)
            try:
                db.execute(_INSERT, to_row(row))
                db.executemany(
                    "INSERT INTO proofs (proof, key, n, claim) VALUES (?, ?, ?, ?)",
                    [(proof, row.key, row.n, row.claim) for proof in row.proofs],
                )
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorcode in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE):
                    raise _Taken from error
                raise
            return row

        try:
            return await self._write(reserve)
        except _Taken:
            return None

    async def move(self, claim: str, event: Event) -> Step:
        """Apply the event to the row with this claim, compare-and-set; a row that is gone gives a lost step."""

        def move(db: sqlite3.Connection) -> Step:
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
                moved = db.execute(_UPDATE, (*to_row(step.attempt, MOVED), claim, row.state.value))
                if moved.rowcount != 1:
                    raise StoreUnavailable("the attempt changed inside its own transaction")
            if step.audit is not None:
                audit = step.audit
                db.execute(
                    "INSERT INTO audit (at, key, n, who, what, evidence) VALUES (?, ?, ?, ?, ?, ?)",
                    (now, row.key, row.n, audit.who, audit.what, audit.evidence),
                )
            return step

        return await self._write(move)

    async def find(self, claim: str) -> Attempt | None:
        """Return the row with this claim: how a write whose commit is unknown is looked up."""
        return await self._writer.do(lambda db: _by_claim(db, claim), writes=False)

    async def recent(self, state: State | None = None, limit: int = 100) -> list[Attempt]:
        """Return attempts, the ones that changed last first; `UNCERTAIN` includes settling ones past their lease."""

        def recent(db: sqlite3.Connection) -> list[Attempt]:
            where = seen_as(state).format(now="?1")
            query = f"{_SELECT} WHERE {where} ORDER BY updated_at DESC, key, n LIMIT ?2"
            return _attempts(db, query, (self._clock(), limit))

        return await self._writer.do(recent, writes=False)

    async def audits(self, key: str) -> list[tuple[float, int, Audit]]:
        """Return (when, n, decision) of the key's audit rows, oldest first."""

        def audits(db: sqlite3.Connection) -> list[tuple[float, int, Audit]]:
            rows = db.execute("SELECT at, n, who, what, evidence FROM audit WHERE key = ? ORDER BY at, rowid", (key,))
            return [(at, n, Audit(*decision)) for at, n, *decision in rows]

        return await self._writer.do(audits, writes=False)

    async def purge(self, limit: int = 500) -> int:
        """Delete at most `limit` rows whose window is over, keeping their proofs, and lapsed reservations after 1 h."""

        def purge(db: sqlite3.Connection) -> int:
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

        return await self._write(purge)

    def _connect(self) -> sqlite3.Connection:
        """Open the file; one that vanishes while we serve is not replaced by an empty one."""
        try:
            db = _open(self._path, self._busy_timeout, create=self._create)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"cannot open the attempt store {self._path}: {error}") from error
        self._create = False
        return db


class _Taken(Exception):
    """A key or proof was taken by somebody else: what was written so far is rolled back."""


class _Holder(NamedTuple):
    """Who holds a proof, and whether that is a lapsed reservation."""

    proof: bytes
    key: str
    claim: str
    lapsed: bool


def _look(db: sqlite3.Connection, key: str, proofs: Sequence[bytes], now: float) -> Snapshot:
    """Return the snapshot; every attempt has a proof, which outlives it, so a key without any stands for nothing."""
    [(known,)] = db.execute("SELECT EXISTS (SELECT 1 FROM proofs WHERE key = ?)", (key,))
    return _snapshot(db, key, proofs, now) if known or proofs else Snapshot(now)


def _snapshot(db: sqlite3.Connection, key: str, proofs: Sequence[bytes], now: float) -> Snapshot:
    found = db.execute("SELECT proof, key, n, claim, last_state FROM proofs WHERE key = ?", (key,))
    kept = [Kept(*row) for row in found]
    rows = tuple(
        from_row(row, (proof.proof for proof in kept if proof.claim == row[_CLAIM]))
        for row in db.execute(f"{_SELECT} WHERE key = ? ORDER BY n", (key,))
    )
    recorded = (holder.proof for holder in _holders(db, proofs, now) if not holder.lapsed)
    return snapshot_of(now, rows, kept, recorded)


def _holders(db: sqlite3.Connection, proofs: Sequence[bytes], now: float) -> list[_Holder]:
    if not proofs:
        return []
    rows = db.execute(
        "SELECT proof, p.key, p.claim, ifnull(state = 'reserved' AND lease <= ?, 0)"  # noqa: S608 -- Only marks vary.
        f" FROM proofs p LEFT JOIN attempts a ON a.claim = p.claim WHERE proof IN ({', '.join('?' * len(proofs))})",
        (now, *proofs),
    )
    return [_Holder(proof, key, claim, bool(lapsed)) for proof, key, claim, lapsed in rows]


def _erase(db: sqlite3.Connection, key: str, claim: str) -> None:
    """Delete an attempt that came to nothing, with the proofs of its own claim: an earlier row stands again."""
    db.execute("DELETE FROM proofs WHERE key = ? AND claim = ?", (key, claim))
    db.execute("DELETE FROM attempts WHERE claim = ?", (claim,))


def _attempts(db: sqlite3.Connection, query: str, values: Sequence[object]) -> list[Attempt]:
    found = db.execute(query, values).fetchall()
    proofs = "SELECT proof FROM proofs WHERE key = ? AND claim = ?"
    return [from_row(row, (proof for (proof,) in db.execute(proofs, (row[_KEY], row[_CLAIM])))) for row in found]


def _by_claim(db: sqlite3.Connection, claim: str) -> Attempt | None:
    found = _attempts(db, f"{_SELECT} WHERE claim = ?", (claim,))
    return found[0] if found else None


def _open(path: Path, busy_timeout: float, *, create: bool) -> sqlite3.Connection:
    """Return a connection to a file of our schema; `create` makes a missing one and tries to write it."""
    if create:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=busy_timeout, isolation_level=None)
    try:
        _set_journal(db, path)
        db.execute(f"PRAGMA synchronous = {'EXTRA' if create else 'FULL'}")
        db.execute("BEGIN IMMEDIATE" if create else "BEGIN")
        _check_schema(db, path, create=create)
        db.execute("COMMIT")
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db


def _set_journal(db: sqlite3.Connection, path: Path) -> None:
    """Choose a rollback journal; not WAL, which before SQLite 3.51.3 can be corrupted by several connections."""
    (mode,) = db.execute("PRAGMA journal_mode = TRUNCATE").fetchone()
    if mode != "truncate":
        raise StoreUnavailable(f"{path} stays in journal mode {mode}: another program is using it")


def _check_schema(db: sqlite3.Connection, path: Path, *, create: bool) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if create and (application, version, tables) == (0, 0, 0):
        schema = resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
        for statement in schema.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    elif application != APPLICATION_ID:
        raise StoreUnavailable(f"{path} is a database, but not an attempt store")
    elif version != SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{path} has schema version {version}, this release reads {SCHEMA_VERSION}: run the release that wrote it"
        )
    if create:
        # A write even when nothing changes: a file that cannot be written is found at start, not by a buyer.
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
