"""Reads on the event loop, on a connection of their own: in WAL mode a reader waits for nobody and holds up nobody.

Most reads are an unpaid request's and find nothing; the way to a thread and back would take longer than evaluating a
typical input.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import apsw

from ranking_evaluate.attempts.sqlite_file import StoreFile
from ranking_evaluate.attempts.store import StoreUnavailable

T = TypeVar("T")

LOOK_SECONDS: Final = 0.01
"""How often it is looked at whether the file was replaced; a look takes as long as a read."""


class Reader:
    """Runs reads, each in a transaction that ends with it.

    Args:
        connect: Opens the file; called again after an error, and when the file was replaced.
    """

    def __init__(self, connect: Callable[[], StoreFile]) -> None:
        self._connect = connect
        self._look_again = 0.0
        self._file: StoreFile | None = None

    def read(self, run: Callable[[apsw.Connection], T]) -> T:
        """Return what `run` returned of one instant of the store; raises `StoreUnavailable` when it cannot be read."""
        now = time.monotonic()
        if self._file is not None and now >= self._look_again:
            self._look_again = now + LOOK_SECONDS
            if self._file.is_moved():
                self.close()
        if self._file is None:
            self._file = self._connect()
        db = self._file.db
        try:
            db.execute("BEGIN")
            try:
                return run(db)
            finally:
                db.execute("COMMIT")
        except apsw.Error as error:
            self.close()
            raise StoreUnavailable(str(error)) from error

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
