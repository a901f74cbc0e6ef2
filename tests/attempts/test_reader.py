"""Reads on the event loop: never in the way of a writer, never old, never waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.events import Submit
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


async def test_a_read_leaves_no_lock_behind(path: Path, store: SqliteStore) -> None:
    row = await reserved(store, draft())
    with closing(apsw.Connection(str(path))) as other:
        for key in (KEY, OTHER_KEY):
            assert (await store.read(key)).rows == ((row,) if key == KEY else ())
            # Only a log without a reader can be brought in whole and begun anew.
            pages, brought_in = other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            assert pages == brought_in


async def test_a_read_in_the_same_turn_sees_what_was_just_committed(store: SqliteStore) -> None:
    assert (await store.read(KEY)).rows == ()
    row = await reserved(store, draft())
    assert (await store.read(KEY)).rows == (row,)
    await store.move(row.claim, Submit(70.0))
    [seen] = (await store.read(KEY)).rows
    assert seen.state is State.SETTLING


async def test_a_read_does_not_wait_for_another_processes_write(path: Path, store: SqliteStore) -> None:
    row = await reserved(store, draft())
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM attempts")
        assert (await store.read(KEY)).rows == (row,)
        other.execute("ROLLBACK")


async def test_a_broken_connection_is_made_again(store: SqliteStore) -> None:
    row = await reserved(store, draft())
    await store.read(KEY)
    file = store._reader._file
    assert file is not None
    file.db.close()
    with pytest.raises(StoreUnavailable):
        await store.read(KEY)
    assert (await store.read(KEY)).rows == (row,)


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
