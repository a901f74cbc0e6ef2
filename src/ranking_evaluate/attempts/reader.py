"""Reads on the spot: a connection for the event loop's own thread, which never waits.

Most reads are an unpaid request's and find nothing; the way to the writer's thread and back would take longer than
evaluating a typical input.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Reader:
    """Runs reads; those of one turn of the event loop share a transaction.

    While it lasts nobody commits, so what it shows is never old, and who wants to commit waits for the turn's end.

    Args:
        connect: Opens a connection that does not wait for locks; called again after an error.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None

    def read(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `run` returned.

        Raises:
            sqlite3.Error: The file cannot be read now; SQLITE_BUSY while somebody commits.
        """
        if self._connection is None:
            self._connection = self._connect()
        try:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN")
                asyncio.get_running_loop().call_soon(self.end)
            return run(self._connection)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
                self.close()
            raise

    def end(self) -> None:
        """End the turn's transaction: before a write of our own it would make the commit sleep a millisecond."""
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error:
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
