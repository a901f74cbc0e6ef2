"""One connection to the embedded store's file: how it is opened and checked, and whether it is still the file.

The file is in WAL mode: readers and the writer do not wait for each other. SQLite comes with the wheel `apsw`, so that
no host's library decides; two connections of one process must never use two libraries, whose locks undo each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from ranking_evaluate.attempts.migrations import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    bring_up_sqlite,
    check,
    sqlite_version,
    sync_folder,
)
from ranking_evaluate.attempts.store import StoreUnavailable

OLDEST_SQLITE: Final = (3, 51, 3)
"""Older ones can corrupt a write-ahead log that several connections use."""

BUSY_PAUSE: Final = 0.0005
"""Seconds between two tries for a lock; SQLite's own handler sleeps up to 100 ms, and then loses the next race too."""


_NEWEST: Final = """
    SELECT sale.id, sale.key_sha256, decision.id, decision.at, decision.key FROM (SELECT 1)
    LEFT JOIN (SELECT id, key_sha256 FROM sales ORDER BY id DESC LIMIT 1) AS sale
    LEFT JOIN (SELECT rowid AS id, at, key FROM audit ORDER BY rowid DESC LIMIT 1) AS decision
"""


class Newest(NamedTuple):
    """The last sale and the last audit row: a file without them is an older copy. None where there is none."""

    sale: tuple[Any, ...] | None
    audit: tuple[Any, ...] | None


class OlderCopy(StoreUnavailable):
    """The file lacks a sale or a decision that this process knows to be recorded."""


class StoreFile:
    """An open file.

    Args:
        path: The file.
        busy_timeout: Seconds to wait for a lock that another connection holds.
        create: Whether a missing file is made, and an older one brought up.
        newest: What this process knows the file to hold; a file without it is refused.
        vfs: The name of SQLite's file layer; tests have one of their own.

    Raises:
        StoreUnavailable: The file is not one of ours, or not the newest, or of a newer release.
        apsw.Error, OSError: The file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        busy_timeout: float,
        *,
        create: bool,
        newest: Newest | None = None,
        vfs: str | None = None,
    ) -> None:
        check_library(apsw.sqlite_lib_version())
        self._path = path
        if create:
            _create(path)
        self.db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        try:
            self._prepare(busy_timeout, newest, create=create)
            self._names = self._look()
        except BaseException:
            self.close()
            raise

    def is_moved(self) -> bool:
        """Whether the file or its log was deleted or replaced: what is written here would be lost."""
        try:
            return self._look() != self._names
        except OSError:
            return True

    def close(self, *, tidy: bool = False) -> None:
        """Let go of the file.

        Args:
            tidy: Whether the last connection brings the log into the file and deletes it. Never when the file was
                moved: a log of that name may by now be another file's.
        """
        with suppress(apsw.Error):
            if not tidy:
                self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        with suppress(apsw.Error):
            self.db.close(force=True)

    def _look(self) -> tuple[tuple[int, int], ...]:
        """Return device and inode of the file, its log and the log's index, by which processes see each other's."""
        names = (self._path, f"{self._path}-wal", f"{self._path}-shm")
        found = [os.stat(name) for name in names]  # noqa: PTH116 -- A Path's own is slower.
        return tuple((each.st_dev, each.st_ino) for each in found)

    def _prepare(self, busy_timeout: float, newest: Newest | None, *, create: bool) -> None:
        db = self.db
        db.set_busy_handler(_patience(busy_timeout))
        db.wal_autocheckpoint(0)  # The writer does it, when nobody waits.
        db.pragma("synchronous", "EXTRA" if create else "FULL")
        # One transaction, since another process may be making the file at this moment.
        db.execute("BEGIN")
        version, application = sqlite_version(db), db.pragma("application_id")
        [(tables,)] = db.execute("SELECT count(*) FROM sqlite_master")
        db.execute("COMMIT")
        is_empty = (version, application, tables) == (0, 0, 0)
        if application != APPLICATION_ID and not (create and is_empty):
            raise StoreUnavailable(f"{self._path} is a database, but not an attempt store")
        check(str(self._path), version, migrates=create)
        if newest is not None:
            self._check_newest(newest)
        _set_journal(db, self._path, busy_timeout)
        if create:
            bring_up_sqlite(db, self._path)
            # A write even when nothing changes: a file that cannot be written is found at start, not by a buyer.
            db.execute("BEGIN IMMEDIATE")
            touch(db)
            db.execute("COMMIT")
            with suppress(apsw.BusyError):  # Somebody else is doing it.
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            db.pragma("synchronous", "FULL")
        db.execute("SELECT 1 FROM attempts LIMIT 1").fetchall()  # From the first read on, the log exists.

    def _check_newest(self, newest: Newest) -> None:
        sale = (
            newest.sale is None
            or self.db.execute("SELECT 1 FROM sales WHERE id = ? AND key_sha256 = ?", newest.sale).fetchall()
        )
        audit = (
            newest.audit is None
            or self.db.execute("SELECT 1 FROM audit WHERE rowid = ? AND at = ? AND key = ?", newest.audit).fetchall()
        )
        if not (sale and audit):
            raise OlderCopy(
                f"{self._path} is an older copy of the store, without purchases that were recorded since: "
                "put the newest one back, or restart to go on without them"
            )


def touch(db: apsw.Connection) -> None:
    """Write something that changes nothing, in a transaction of the caller's; see `check_version`."""
    check_version(db)
    db.pragma("user_version", SCHEMA_VERSION)


def check_version(db: apsw.Connection) -> None:
    """Raise `StoreUnavailable` when a newer release has brought the file up beside this process."""
    if (version := sqlite_version(db)) != SCHEMA_VERSION:
        raise StoreUnavailable(f"a newer release has taken the store over (schema version {version}): end this process")


def newest(db: apsw.Connection) -> Newest:
    """Return what a copy of now would have to hold."""
    [(sale, key, audit, at, audited)] = db.execute(_NEWEST)
    return Newest(None if sale is None else (sale, key), None if audit is None else (audit, at, audited))


def check_library(version: str) -> None:
    """Raise `StoreUnavailable` for an SQLite that is too old for several connections to one log."""
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnavailable(
            f"apsw carries SQLite {version}, which can corrupt a store: install an apsw with {oldest} or newer"
        )


def _create(path: Path) -> None:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        sync_folder(path.parent)


def _set_journal(db: apsw.Connection, path: Path, busy_timeout: float) -> None:
    until = time.monotonic() + busy_timeout
    while True:
        try:
            mode = db.pragma("journal_mode", "wal")
            break
        except apsw.BusyError as error:
            # SQLite asks no busy handler here, and another process may be doing the same.
            if time.monotonic() > until:
                raise StoreUnavailable(f"{path} is in use by an older release: stop it first ({error})") from error
            time.sleep(BUSY_PAUSE)
    if mode != "wal":
        raise StoreUnavailable(
            f"{path} stays in journal mode {mode}: its file system or file layer has no shared memory"
        )


def _patience(seconds: float) -> Callable[[int], bool]:
    """Return a busy handler that tries again for so long."""
    began = 0.0

    def wait(tries: int) -> bool:
        nonlocal began
        now = time.monotonic()
        if tries == 0:
            began = now
        if now - began >= seconds:
            return False
        time.sleep(BUSY_PAUSE)
        return True

    return wait
