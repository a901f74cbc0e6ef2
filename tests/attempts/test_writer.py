"""The group commit: what shares a transaction, and who hears of its failure."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable
from ranking_evaluate.attempts.writer import Writer

pytestmark = pytest.mark.anyio

Operation = Callable[[sqlite3.Connection], Any]


class Bench:
    """A writer whose statements are recorded, and whose first batch is what was queued before it is started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statements: list[str] = []
        self.connected = 0
        self.factory: type[sqlite3.Connection] = sqlite3.Connection
        self.writer = Writer(self._connect)

    def _connect(self) -> sqlite3.Connection:
        self.connected += 1
        db = sqlite3.connect(self.path, isolation_level=None, factory=self.factory)
        db.execute("CREATE TABLE IF NOT EXISTS t (v UNIQUE)")
        db.set_trace_callback(self.statements.append)
        return db

    async def together(self, *operations: tuple[Operation, bool]) -> list[Any]:
        tasks = [asyncio.create_task(self.writer.do(run, writes=writes)) for run, writes in operations]
        await asyncio.sleep(0)
        self.writer.start()
        return await asyncio.gather(*tasks, return_exceptions=True)

    def commits(self) -> int:
        return self.statements.count("COMMIT")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "t.db")
    yield made
    await made.writer.stop()


def put(value: object) -> tuple[Operation, bool]:
    return lambda db: db.execute("INSERT INTO t VALUES (?)", (value,)).rowcount, True


def count() -> tuple[Operation, bool]:
    return lambda db: db.execute("SELECT count(*) FROM t").fetchone()[0], False


async def test_what_waits_together_is_committed_together(bench: Bench) -> None:
    assert await bench.together(*(put(n) for n in range(50))) == [1] * 50
    assert bench.commits() == 1


async def test_a_batch_holds_256_operations(bench: Bench) -> None:
    await bench.together(*(put(n) for n in range(600)))
    assert bench.commits() == 3


async def test_a_batch_wakes_its_callers_by_one_callback(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    wake, calls = loop.call_soon_threadsafe, []

    def counted(callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        calls.append(callback)
        return wake(callback, *args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    await bench.together(*(put(n) for n in range(50)))
    assert len(calls) == 1


async def test_a_read_sees_the_writes_before_it_in_its_batch(bench: Bench) -> None:
    assert await bench.together(put(1), count(), put(2), count()) == [1, 1, 1, 2]


async def test_reads_alone_take_no_write_lock(bench: Bench) -> None:
    await bench.together(count(), count())
    assert bench.statements[0] == "BEGIN"


async def test_an_error_fails_its_own_operation_only(bench: Bench) -> None:
    def half(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO t VALUES ('half')")
        db.execute("INSERT INTO t VALUES (1)")

    first, failed, last = await bench.together(put(1), (half, True), put(2))
    assert (first, last) == (1, 1)
    assert type(failed) is StoreUnavailable
    assert await bench.writer.do(count()[0], writes=False) == 2


async def test_a_bug_in_an_operation_reaches_its_caller_and_the_writer_lives_on(bench: Bench) -> None:
    def bug(db: sqlite3.Connection) -> None:
        raise KeyError("bug")

    failed, read = await bench.together((bug, True), count())
    assert isinstance(failed, KeyError)
    assert read == 0


async def test_an_error_that_undoes_the_transaction_fails_all_that_shared_it(bench: Bench) -> None:
    def full(db: sqlite3.Connection) -> None:
        db.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    got = await bench.together(put(1), (full, True), put(2), count())
    assert [type(error) for error in got] == [StoreUnavailable] * 4
    assert "full" in str(got[0])
    assert await bench.writer.do(count()[0], writes=False) == 0


async def test_a_failed_commit_is_unknown_to_who_wrote_and_unavailable_to_who_read(bench: Bench) -> None:
    class Broken(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return super().execute(sql, *args)

    bench.factory = Broken
    got = await bench.together(put(1), count(), put(2))
    assert [type(error) for error in got] == [CommitUnknown, StoreUnavailable, CommitUnknown]
    bench.factory = sqlite3.Connection
    assert await bench.writer.do(count()[0], writes=False) == 0
    assert bench.connected == 2


async def test_a_connection_that_cannot_be_made_is_tried_again_by_the_next_batch(bench: Bench) -> None:
    path, bench.path = bench.path, bench.path / "no folder"
    assert [type(error) for error in await bench.together(put(1))] == [StoreUnavailable]
    bench.path = path
    assert await bench.writer.do(put(1)[0], writes=True) == 1


async def test_stopping_finishes_what_is_queued(bench: Bench) -> None:
    waiting = [asyncio.create_task(bench.writer.do(put(n)[0], writes=True)) for n in range(300)]
    await asyncio.sleep(0)
    bench.writer.start()
    await bench.writer.stop()
    assert await asyncio.gather(*waiting) == [1] * 300
    with pytest.raises(StoreUnavailable, match="closed"):
        await bench.writer.do(count()[0], writes=False)
