"""Reads on the event loop: one transaction a turn, never in the way for longer, and never old."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from ranking_evaluate.attempts.attempt import State, Submit
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import StoreUnavailable
from tests.attempts.samples import KEY, NOW, OTHER_KEY, draft, reserved
from tests.fakes import FixedClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "attempts.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path, FixedClock(NOW))
    await made.open()
    yield made
    await made.close()


async def turn() -> None:
    """Let the event loop finish its turn, and the callbacks of the next one."""
    for _ in range(2):
        await asyncio.sleep(0)


def may_write(path: Path) -> bool:
    """Return whether somebody else could commit at this moment."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return False
        other.execute("ROLLBACK")
        return True


async def test_a_turns_reads_share_a_lock_that_ends_with_the_turn(path: Path, store: SqliteStore) -> None:
    await turn()
    assert may_write(path)
    for key in (KEY, OTHER_KEY):
        assert (await store.read(key)).rows == ()
        assert not may_write(path)
    await turn()
    assert may_write(path)


async def test_a_read_in_the_same_turn_sees_what_was_just_committed(store: SqliteStore) -> None:
    assert (await store.read(KEY)).rows == ()
    row = await reserved(store, draft())
    assert (await store.read(KEY)).rows == (row,)
    await store.move(row.claim, Submit(70.0))
    [seen] = (await store.read(KEY)).rows
    assert seen.state is State.SETTLING


async def test_a_read_waits_for_another_processes_commit_and_the_loop_goes_on(path: Path, store: SqliteStore) -> None:
    row = await reserved(store, draft())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        waiting = asyncio.create_task(store.read(KEY))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        other.execute("ROLLBACK")
        assert (await waiting).rows == (row,)


async def test_a_broken_connection_is_made_again(store: SqliteStore) -> None:
    row = await reserved(store, draft())
    connection = store._reader._connection
    assert connection is not None
    connection.close()
    for _ in range(2):
        assert (await store.read(KEY)).rows == (row,)
    assert store._reader._connection not in (None, connection)


async def test_a_proof_of_another_key_is_found_where_the_key_is_new(store: SqliteStore) -> None:
    row = await reserved(store, draft())
    assert (await store.read(OTHER_KEY, row.proofs)).recorded == set(row.proofs)


async def test_a_store_serves_other_event_loops_than_its_own(path: Path, store: SqliteStore) -> None:
    def buy(name: str) -> State:
        async def purchase() -> State:
            row = await reserved(store, draft(f"proof of {name}", key=f"purchase-number-{name}"))
            await store.move(row.claim, Submit(70.0))
            [seen] = (await store.read(row.key, row.proofs)).rows
            return seen.state

        return asyncio.run(purchase())

    names = [f"{number:04d}" for number in range(20)]
    elsewhere = asyncio.gather(*(asyncio.to_thread(buy, name) for name in names))
    while not elsewhere.done():
        await store.read(KEY)
        await asyncio.sleep(0.001)
    assert await elsewhere == [State.SETTLING] * len(names)


async def test_a_closed_store_cannot_be_read(path: Path) -> None:
    store = SqliteStore(path, FixedClock(NOW))
    await store.open()
    await store.read(KEY)
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read(KEY)
