"""One thread that runs operations on one SQLite connection, many to a commit.

An operation's future is resolved only after the COMMIT of its batch. What the batch rests on is SQLite's own locking:
another process may write the same file between any two batches.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable

BATCH: Final = 256
"""Operations that share a commit, at most."""

PAUSE: Final = 0.001
"""Seconds of rest after a full batch, in which the event loop and other processes come to their turn."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job:
    """An operation on its way: afterwards it holds its result or its error."""

    run: Callable[[sqlite3.Connection], Any]
    writes: bool
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class Writer:
    """Runs what it is given in the order in which it comes.

    Args:
        connect: Opens the connection, in the thread that uses it; called again after a failed transaction.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="attempt-store", daemon=True)
        self._stopped = False

    def start(self) -> None:
        """Start the thread; the connection is opened by the first operation."""
        self._thread.start()

    async def stop(self) -> None:
        """Finish what is queued, close the connection and end the thread; further operations are refused."""
        if not self._stopped:
            self._stopped = True
            self._queue.put(None)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    async def do(self, run: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        """Return what `run` returned, once its transaction is committed.

        Cancelling the caller does not cancel the operation.

        Args:
            run: Called with the connection, inside a transaction and, if it writes, a savepoint of its own.
            writes: Whether the operation needs the write lock.

        Raises:
            CommitUnknown: The operation writes, and its COMMIT failed.
            StoreUnavailable: Nothing of the operation was committed.
        """
        if self._stopped:
            raise StoreUnavailable("the attempt store is closed")
        job = _Job(run, writes, asyncio.get_running_loop().create_future())
        self._queue.put(job)
        return cast("T", await job.future)

    def _work(self) -> None:
        going = True
        while going:
            batch: list[_Job] = []
            job = self._queue.get()
            with suppress(Empty):
                while job is not None:
                    batch.append(job)
                    if len(batch) == BATCH:
                        break
                    job = self._queue.get_nowait()
            going = job is not None
            if batch:
                self._transact(batch)
                _deliver(batch)
            if len(batch) == BATCH:
                time.sleep(PAUSE)
        self._drop()

    def _transact(self, batch: list[_Job]) -> None:
        """Run the batch as one transaction; a batch of reads takes no write lock."""
        committing = False
        try:
            if self._connection is None:
                self._connection = self._connect()
            db = self._connection
            db.execute("BEGIN IMMEDIATE" if any(job.writes for job in batch) else "BEGIN")
            for job in batch:
                _run(job, db)
                if not db.in_transaction:  # A full disk, for one, undoes the jobs before this one too.
                    raise StoreUnavailable(f"the transaction was rolled back: {job.error}")  # noqa: TRY301
            committing = True
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 -- Whatever it is, every caller must hear of it and the thread live on.
            self._fail(batch, error, committing=committing)

    def _fail(self, batch: list[_Job], cause: Exception, *, committing: bool) -> None:
        """Let every job of the batch fail, and start the next one on a new connection."""
        self._drop()
        for job in batch:
            unknown = committing and job.writes
            job.error = CommitUnknown(f"COMMIT failed: {cause}") if unknown else StoreUnavailable(str(cause))
            job.error.__cause__ = cause

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.rollback()
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _run(job: _Job, db: sqlite3.Connection) -> None:
    """Run one job; an error leaves the jobs beside it as they are."""
    try:
        if not job.writes:
            job.result = job.run(db)
            return
        db.execute("SAVEPOINT job")
        job.result = job.run(db)
        db.execute("RELEASE job")
    except Exception as error:  # noqa: BLE001 -- Whatever it is, its caller must hear of it and the batch go on.
        job.error = error
        if isinstance(error, sqlite3.Error):
            job.error = StoreUnavailable(str(error))
            job.error.__cause__ = error
        if job.writes and db.in_transaction:
            db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")


def _deliver(batch: Iterable[_Job]) -> None:
    """Wake the callers: one callback for each event loop, not for each job."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in by_loop.items():
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # Its caller was cancelled.
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
