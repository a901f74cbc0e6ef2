"""The group commit: what shares a transaction, and who hears of its failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from ranking_evaluate.attempts.sqlite_file import StoreFile
from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable
from ranking_evaluate.attempts.writer import LIMITS, Limits, Writer

pytestmark = pytest.mark.anyio

NORMAL, FULL = 1, 2

Operation = Callable[[apsw.Connection], Any]


class Bench:
    """A writer whose statements are recorded, and whose first batch is what was queued before it is started."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self.statements: list[str] = []
        self.levels: list[int] = []
        self.file: StoreFile | None = None
        self.connected = 0
        self.breaks: str | None = None
        self.writer = Writer(self._connect, limits)

    def _connect(self) -> StoreFile:
        self.connected += 1
        try:
            file = StoreFile(self.path, 1.0, create=True)
        except OSError as error:
            raise StoreUnavailable(str(error)) from error
        file.db.execute("CREATE TABLE IF NOT EXISTS t (v UNIQUE)")
        file.db.set_exec_trace(self._trace)
        self.file = file
        return file

    def _trace(self, cursor: object, statement: str, values: object) -> bool:
        self.statements.append(statement)
        if statement == "COMMIT" and self.file is not None:
            self.levels.append(self.file.db.pragma("synchronous"))
        if statement == self.breaks:
            raise apsw.IOError("disk I/O error")
        return True

    async def together(self, *operations: tuple[Operation, bool]) -> list[Any]:
        tasks = [asyncio.create_task(self.writer.do(run, durable=durable)) for run, durable in operations]
        await asyncio.sleep(0)
        self.writer.start()
        return await asyncio.gather(*tasks, return_exceptions=True)

    def commits(self) -> int:
        return self.statements.count("COMMIT")


@pytest.fixture
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "t.db", getattr(request, "param", LIMITS))
    yield made
    await made.writer.stop()


def put(value: object, *, durable: bool = True) -> tuple[Operation, bool]:
    def put(db: apsw.Connection) -> int:
        db.execute("INSERT INTO t VALUES (?)", (value,))
        return db.changes()

    return put, durable


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


async def test_one_durable_operation_makes_its_batch_wait_for_the_disk(bench: Bench) -> None:
    await bench.together(put(1, durable=False), put(2, durable=False))
    await bench.writer.do(put(3)[0], durable=True)
    await bench.writer.do(put(4)[0], durable=False)
    assert bench.levels == [NORMAL, FULL, NORMAL]


async def test_a_mixed_batch_is_durable_as_a_whole(bench: Bench) -> None:
    await bench.together(put(1, durable=False), put(2), put(3, durable=False))
    assert bench.levels == [FULL]


@pytest.mark.parametrize("bench", [Limits(rest=0.01)], indirect=True, ids=["short rest"])
async def test_the_log_is_brought_into_the_file_once_nobody_waits(bench: Bench) -> None:
    await bench.together(*(put(f"{n} {'x' * 500}") for n in range(50)))
    before = bench.path.read_bytes()
    async with asyncio.timeout(5):
        while bench.path.read_bytes() == before:  # noqa: ASYNC110 - A file has no event.
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("bench", [Limits(batch=1, pause=0, longest_log=50)], indirect=True, ids=["small limits"])
async def test_a_long_log_is_brought_in_under_load_too(bench: Bench) -> None:
    await bench.together(*(put(f"{n} {'x' * 500}") for n in range(400)))
    log = bench.path.with_name("t.db-wal").stat().st_size / 4120
    assert log < 200, "400 commits of two pages or more, in a log that begins anew"


async def test_an_error_fails_its_own_operation_only(bench: Bench) -> None:
    def half(db: apsw.Connection) -> None:
        db.execute("INSERT INTO t VALUES ('half')")
        db.execute("INSERT INTO t VALUES (1)")

    first, failed, last = await bench.together(put(1), (half, True), put(2))
    assert (first, last) == (1, 1)
    assert type(failed) is StoreUnavailable
    assert await bench.writer.do(count()[0], durable=False) == 2


async def test_a_bug_in_an_operation_reaches_its_caller_and_the_writer_lives_on(bench: Bench) -> None:
    def bug(db: apsw.Connection) -> None:
        raise KeyError("bug")

    failed, read = await bench.together((bug, True), count())
    assert isinstance(failed, KeyError)
    assert read == 0


async def test_an_error_that_undoes_the_transaction_fails_all_that_shared_it(bench: Bench) -> None:
    def full(db: apsw.Connection) -> None:
        db.execute("ROLLBACK")
        raise apsw.FullError("database or disk is full")

    got = await bench.together(put(1), (full, True), put(2), count())
    assert [type(error) for error in got] == [StoreUnavailable] * 4
    assert "full" in str(got[0])
    assert await bench.writer.do(count()[0], durable=False) == 0


async def test_a_failed_commit_is_unknown_to_all_that_shared_it(bench: Bench) -> None:
    bench.breaks = "COMMIT"
    got = await bench.together(put(1), put(2, durable=False))
    assert [type(error) for error in got] == [CommitUnknown, CommitUnknown]
    bench.breaks = None
    assert await bench.writer.do(count()[0], durable=False) == 0
    assert bench.connected == 2


async def test_a_connection_that_cannot_be_made_is_tried_again_by_the_next_batch(bench: Bench) -> None:
    path, bench.path = bench.path, bench.path / "no folder"
    assert [type(error) for error in await bench.together(put(1))] == [StoreUnavailable]
    bench.path = path
    assert await bench.writer.do(put(1)[0], durable=True) == 1


async def test_stopping_finishes_what_is_queued(bench: Bench) -> None:
    waiting = [asyncio.create_task(bench.writer.do(put(n)[0], durable=True)) for n in range(300)]
    await asyncio.sleep(0)
    bench.writer.start()
    await bench.writer.stop()
    assert await asyncio.gather(*waiting) == [1] * 300
    with pytest.raises(StoreUnavailable, match="closed"):
        await bench.writer.do(count()[0], durable=False)
