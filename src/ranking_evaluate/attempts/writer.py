"""One thread that writes to one SQLite file, many operations to a commit.

An operation's future is resolved only after the COMMIT of its batch. What a batch rests on is SQLite's own locking:
another process may write the same file between any two batches. A batch with a durable operation is on the disk before
its callers hear of it; one without is written, and may be lost with the machine's power.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

import apsw

from ranking_evaluate.attempts.sqlite_file import Newest, StoreFile, check_version, newest
from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable

SHORT_LOG: Final = 250
"""Pages (1 MB) from which the log is brought into the file in a short pause.

A log that begins anew is written over what is there, and syncs in two thirds of the time of one that grows.
"""

PAUSE_FOR_LOG: Final = 0.005
"""Seconds without an operation that are such a pause."""

LONG_LOG: Final = 4_000
"""Pages (16 MB) from which the log is brought in as soon as no operation waits, idle or not."""

SYNCHRONOUS: Final = {True: "PRAGMA synchronous = FULL", False: "PRAGMA synchronous = NORMAL"}
"""How a batch is committed, by whether an operation in it is durable."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a writer goes on before it rests.

    Attributes:
        batch: Operations that share a commit, at most.
        pause: Seconds of rest after a full batch, in which the event loop and other processes come to their turn.
        rest: Seconds without an operation after which any log is brought into the file.
        longest_log: Pages from which the log is brought in although operations wait: the disk is finite.
    """

    batch: int = 256
    pause: float = 0.001
    rest: float = 1.0
    longest_log: int = 40_000


LIMITS: Final = Limits()


@dataclass(slots=True, eq=False)
class _Job:
    """An operation on its way: afterwards it holds its result or its error."""

    run: Callable[[apsw.Connection], Any]
    durable: bool
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class Writer:
    """Runs what it is given in the order in which it comes.

    Attributes:
        newest: What this process has committed or found: a file without it is an older copy.

    Args:
        connect: Opens the file, in the thread that uses it; called again after a failed transaction.
        limits: How long it goes on before it rests.
    """

    def __init__(self, connect: Callable[[], StoreFile], limits: Limits = LIMITS) -> None:
        self.newest: Newest | None = None
        self._connect = connect
        self._limits = limits
        self._file: StoreFile | None = None
        self._durable: bool | None = None
        self._log_pages = 0
        self._pages_kept = 0
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="attempt-store", daemon=True)
        self._stopped = False

    def start(self) -> None:
        """Start the thread; the file is opened by the first operation."""
        self._thread.start()

    async def stop(self) -> None:
        """Finish what is queued, close the file and end the thread; further operations are refused."""
        if not self._stopped:
            self._stopped = True
            self._queue.put(None)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    async def do(self, run: Callable[[apsw.Connection], T], *, durable: bool) -> T:
        """Return what `run` returned, once its transaction is committed.

        Cancelling the caller does not cancel the operation.

        Args:
            run: Called with the connection, inside a transaction and a savepoint of its own.
            durable: Whether a loss of power may not take it back.

        Raises:
            CommitUnknown: Its COMMIT failed.
            StoreUnavailable: Nothing of the operation was committed.
        """
        if self._stopped:
            raise StoreUnavailable("the attempt store is closed")
        job = _Job(run, durable, asyncio.get_running_loop().create_future())
        self._queue.put(job)
        return cast("T", await job.future)

    def _work(self) -> None:
        going = True
        while going:
            batch: list[_Job] = []
            job = self._next_job()
            with suppress(Empty):
                while job is not None:
                    batch.append(job)
                    if len(batch) == self._limits.batch:
                        break
                    job = self._queue.get_nowait()
            going = job is not None
            if batch:
                self._transact(batch)
                _deliver(batch)
            if len(batch) == self._limits.batch:
                time.sleep(self._limits.pause)
            if self._new_pages >= (LONG_LOG if self._queue.empty() else self._limits.longest_log):
                self._checkpoint()
        if self._file is not None:
            self._file.close(tidy=not self._file.is_moved())
            self._file = None

    def _next_job(self) -> _Job | None:
        """Wait for an operation, or for the end; what the log holds is brought in when none comes for a while."""
        for pages, seconds in ((SHORT_LOG, PAUSE_FOR_LOG), (1, self._limits.rest)):
            if self._new_pages >= pages:
                try:
                    return self._queue.get(timeout=seconds)
                except Empty:
                    self._checkpoint()
        return self._queue.get()

    @property
    def _new_pages(self) -> int:
        """How much longer the log is than what a reader kept the last checkpoint from bringing in."""
        return max(0, self._log_pages - self._pages_kept)

    def _transact(self, batch: list[_Job]) -> None:
        """Run the batch as one transaction."""
        committing = False
        try:
            file = self._open()
            db = file.db
            durable = any(job.durable for job in batch)
            if durable is not self._durable:
                db.execute(SYNCHRONOUS[durable])
                self._durable = durable
            db.execute("BEGIN IMMEDIATE")
            check_version(db)
            for job in batch:
                _run(job, db)
                if not db.in_transaction:  # A full disk, for one, undoes the jobs before this one too.
                    raise StoreUnavailable(f"the transaction was rolled back: {job.error}")  # noqa: TRY301
            known = newest(db) if durable else self.newest
            committing = True
            db.execute("COMMIT")
            if file.is_moved():
                raise StoreUnavailable("the store's file was replaced meanwhile")  # noqa: TRY301
            self.newest = known
        except Exception as error:  # noqa: BLE001 -- Whatever it is, every caller must hear of it and the thread live on.
            self._fail(batch, error, committing=committing)

    def _open(self) -> StoreFile:
        """Return the file, opened again where it was replaced."""
        if self._file is not None and self._file.is_moved():
            self._drop()
        if self._file is None:
            self._file = self._connect()
            self._durable = None
            self._file.db.set_wal_hook(self._count_log)
            if self.newest is None:
                self.newest = newest(self._file.db)
        return self._file

    def _count_log(self, db: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Bring the log into the file, as far as no reader still needs it; a failure is the next write's to find."""
        pages, brought_in = self._log_pages, 0
        if self._file is not None and not self._file.is_moved():
            with suppress(apsw.Error):
                pages, brought_in = self._file.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._log_pages = self._pages_kept = 0 if brought_in == pages else pages

    def _fail(self, batch: list[_Job], cause: Exception, *, committing: bool) -> None:
        """Let every job of the batch fail, and start the next one on a new connection."""
        self._drop()
        for job in batch:
            job.error = CommitUnknown(f"COMMIT failed: {cause}") if committing else StoreUnavailable(str(cause))
            job.error.__cause__ = cause

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _run(job: _Job, db: apsw.Connection) -> None:
    """Run one job; an error leaves the jobs beside it as they are."""
    try:
        db.execute("SAVEPOINT job")
        job.result = job.run(db)
        db.execute("RELEASE job")
    except Exception as error:  # noqa: BLE001 -- Whatever it is, its caller must hear of it and the batch go on.
        job.error = error
        if isinstance(error, apsw.Error):
            job.error = StoreUnavailable(str(error))
            job.error.__cause__ = error
        if db.in_transaction:
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
