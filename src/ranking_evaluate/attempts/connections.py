"""Connections to one PostgreSQL server: made when they are needed, kept for the next one, no more than allowed.

A server that was restarted is used again by the next operation; nothing runs in the background, nothing backs off.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.deadline import Deadline, within

CONNECTIONS: Final = 8
"""How many at once: more than a server of a few cores works off, and ten replicas stay below its usual 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds to wait for a server.

    Attributes:
        connect: For a connection, and for a free place: a caller hears within them that there is no store.
        statement: For a statement, waiting for locks included, by the server's watch; one of ours takes milliseconds.
        use: For one operation by our own watch, after which the line is cut: a dead network says nothing.
    """

    connect: int = 3
    statement: float = 5.0
    use: float = 10.0


PATIENCE: Final = Patience()

IDLE_TIMEOUT: Final = 600.0
"""Seconds for which the server keeps an idle connection, also that of a process suspended between two statements.

Far below a day: what such a process has read must not outlive the rows that it read.
"""

SESSION: Final = """
    SELECT set_config('search_path', 'ranking_evaluate', false),
           set_config('statement_timeout', %(timeout)s, false),
           set_config('lock_timeout', %(timeout)s, false),
           set_config('idle_in_transaction_session_timeout', %(timeout)s, false),
           set_config('idle_session_timeout', %(idle)s, false),
           set_config('default_transaction_isolation', 'read committed', false),
           CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
                THEN set_config('synchronous_commit', 'on', false) END
"""
"""What every connection is set to, whatever the server's or the role's defaults are: a commit is on disk, for one."""

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class Connections:
    """At most `size` connections to the server that a conninfo string or URL names; for one event loop."""

    def __init__(self, dsn: str, size: int = CONNECTIONS, patience: Patience = PATIENCE) -> None:
        self._dsn = dsn
        self._patience = patience
        self._places = asyncio.Semaphore(size)
        self._idle: list[Connection] = []

    async def close(self) -> None:
        """Close the connections; the caller has seen to it that none is in use."""
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def one(self, seconds: float | None = None) -> AsyncIterator[Connection]:
        """Lend a connection in autocommit mode; one that comes back broken or in a transaction is thrown away.

        Args:
            seconds: After so many the line is cut; `Patience.use` unless given.

        Raises:
            StoreUnavailable: The server cannot be reached, or every connection stays in use.
        """
        await self._take_place()
        try:
            connection = await self._idle_one() or await self._connect()
            deadline = Deadline(asyncio.get_running_loop(), partial(_hang_up, connection))
            deadline.set(seconds or self._patience.use)
            try:
                yield connection
            finally:
                deadline.cancel()
                if connection.info.transaction_status is TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    await connection.close()
        finally:
            self._places.release()

    async def _take_place(self) -> None:
        try:
            async with within(self._patience.connect):
                await self._places.acquire()
        except TimeoutError:
            raise StoreUnavailable("every connection to the database is in use") from None

    async def _idle_one(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _is_readable(connection):
                return connection
            await connection.close()
        return None

    async def _connect(self) -> Connection:
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=self._patience.connect,
                application_name="ranking-evaluate",
            )
        except psycopg.Error as error:
            raise StoreUnavailable(f"cannot reach the database: {first_line(error)}") from error
        try:
            timeouts = {"timeout": f"{self._patience.statement}s", "idle": f"{IDLE_TIMEOUT}s"}
            await connection.execute(SESSION, timeouts)
        except BaseException as error:
            await connection.close()
            if isinstance(error, psycopg.Error):
                raise StoreUnavailable(f"cannot use the database: {first_line(error)}") from error
            raise
        return connection


def first_line(error: psycopg.Error) -> str:
    """Return what an error says, without the lines that quote statements and rows."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _is_readable(connection: Connection) -> bool:
    """Whether something came on an idle connection: of a server that has nothing to say, its farewell."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _hang_up(connection: Connection) -> None:
    """Cut the line, so that whoever waits for an answer hears that there will be none.

    Cancelling the waiting task instead would let psycopg ask the server to cancel, and wait for that.
    """
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
