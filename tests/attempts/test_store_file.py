"""The embedded store's file under a running service: deleted, replaced, an older copy, read only, a full disk."""

# ruff: noqa: ASYNC240 -- Nothing else runs on a test's loop that a short blocking call could hold up.

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.events import OperatorRelease, RecordSettled
from ranking_evaluate.attempts.migrations import SCHEMA_VERSION
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable
from tests.attempts.samples import KEY, NOW, OTHER_KEY, TX, draft, reserved, settled, settling, tried
from tests.fakes import FixedClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "attempts.db"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


@pytest.fixture
async def store(path: Path, clock: FixedClock) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path, clock, busy_timeout=1.0)
    await made.open()
    yield made
    await made.close()


def replace(path: Path, by: Path) -> None:
    """Put another file in the place of a live one, as `mv` does."""
    by.rename(path)


async def unusable(store: SqliteStore) -> list[str]:
    """Return what a read and a write say."""
    said = []
    for call in (store.read(KEY), store.check_writable()):
        with pytest.raises(StoreUnavailable) as caught:
            await call
        said.append(str(caught.value))
    return said


async def test_a_deleted_file_is_noticed_and_not_replaced_by_an_empty_one(path: Path, store: SqliteStore) -> None:
    await settled(store, draft())
    path.unlink()
    assert all("unable to open" in said for said in await unusable(store))
    assert not path.exists()


async def test_a_file_that_is_put_back_is_used_again_without_a_restart(path: Path, store: SqliteStore) -> None:
    row = await settled(store, draft())
    path.rename(path.with_name("moved.db"))
    path.with_name("attempts.db-wal").rename(path.with_name("moved.db-wal"))
    await unusable(store)
    path.with_name("moved.db-wal").rename(path.with_name("attempts.db-wal"))
    path.with_name("moved.db").rename(path)
    assert (await store.read(KEY)).rows == (row,)
    await settled(store, draft("second", key=OTHER_KEY))


async def test_a_log_that_is_deleted_is_noticed_before_anything_else_is_sold(path: Path, store: SqliteStore) -> None:
    await settled(store, draft())
    path.with_name("attempts.db-wal").unlink()
    # Without its log the file is an older copy: the sale stood in the log alone.
    for _ in range(3):
        said = await unusable(store)
    assert all("is an older copy" in each for each in said)


async def test_the_newest_copy_is_taken_over_without_a_restart(path: Path, store: SqliteStore) -> None:
    row = await settled(store, draft())
    copy = path.with_name("copy.db")
    await store.back_up(copy)
    for name in ("attempts.db-wal", "attempts.db-shm"):
        path.with_name(name).unlink()
    replace(path, copy)
    assert (await store.read(KEY)).rows == (row,)
    await settled(store, draft("second", key=OTHER_KEY))
    assert len(await store.sales()) == 2


async def sell(store: SqliteStore) -> None:
    await settled(store, draft("second", key=OTHER_KEY))


async def decide(store: SqliteStore) -> None:
    await store.move("claim of doubted", OperatorRelease("ada", "nonce unused"))


@pytest.mark.parametrize("since", [sell, decide])
async def test_an_older_copy_is_never_taken_over(
    path: Path, store: SqliteStore, clock: FixedClock, since: Callable[[SqliteStore], object]
) -> None:
    await settled(store, draft())
    await settling(store, draft("doubted", key="purchase-that-is-doubted"))
    clock.advance(1000)
    copy = path.with_name("copy.db")
    await store.back_up(copy)
    await since(store)  # type: ignore[misc]
    newest = path.with_name("newest.db")
    await store.back_up(newest)
    for name in ("attempts.db-wal", "attempts.db-shm"):
        path.with_name(name).unlink()
    replace(path, copy)
    for _ in range(2):
        said = await unusable(store)
        assert all(f"{path} is an older copy of the store" in each for each in said)
    with pytest.raises(StoreUnavailable):
        await tried(store, draft("third", key="purchase-number-three"))
    replace(path, newest)
    await store.check_writable()
    await reserved(store, draft("third", key="purchase-number-three"))
    # An operator who restarts takes the file as it is.


async def test_another_programs_database_in_its_place_is_left_alone(path: Path, store: SqliteStore) -> None:
    other = path.with_name("other.db")
    with closing(apsw.Connection(str(other))) as db:
        db.execute("CREATE TABLE attempts (id)")
    content = other.read_bytes()
    for name in ("attempts.db-wal", "attempts.db-shm"):
        path.with_name(name).unlink()
    replace(path, other)
    assert all("not an attempt store" in said for said in await unusable(store))
    assert path.read_bytes() == content


async def test_the_log_of_the_file_that_was_put_there_is_not_touched_by_the_old_connections(
    path: Path, store: SqliteStore
) -> None:
    await settled(store, draft())
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    await store.back_up(elsewhere / "attempts.db")
    for name in ("attempts.db", "attempts.db-wal", "attempts.db-shm"):
        path.with_name(name).unlink()
    # Another process brings the new file to its place, and has written to its log.
    replace(path, elsewhere / "attempts.db")
    with closing(apsw.Connection(str(path))) as other:
        other.pragma("journal_mode", "wal")
        other.execute("INSERT INTO audit (at, key, n, who, what, evidence) VALUES (1, 'k', 1, 'w', 'w', 'e')")
        log = path.with_name("attempts.db-wal")
        before = log.read_bytes()
        await store.check_writable()
        assert log.read_bytes().startswith(before)
        assert await store.audits("k") != []


async def test_a_commit_into_a_file_that_goes_away_meanwhile_is_not_believed(path: Path, store: SqliteStore) -> None:
    row = await settling(store, draft())
    file = store._writer._file
    assert file is not None
    safe = path.with_name("safe.db")
    await store.back_up(safe)

    def vanish(cursor: object, statement: str, values: object) -> bool:
        if statement == "COMMIT":
            path.unlink()
        return True

    file.db.set_exec_trace(vanish)
    with pytest.raises(CommitUnknown, match="replaced meanwhile"):
        await store.move(row.claim, RecordSettled("receipt", TX))
    for name in ("attempts.db-wal", "attempts.db-shm"):
        path.with_name(name).unlink()
    replace(path, safe)
    found = await store.find(row.claim)
    assert found is not None
    assert found.state is State.SETTLING
    assert (await store.move(row.claim, RecordSettled("receipt", TX))).owned


async def test_a_backup_is_one_file_that_opens_as_the_store_was(path: Path, store: SqliteStore) -> None:
    row = await settled(store, draft())
    copy = path.parent / "kept" / "copy.db"
    copy.parent.mkdir()
    await store.back_up(copy)
    await settled(store, draft("second", key=OTHER_KEY))
    assert [file.name for file in copy.parent.iterdir()] == ["copy.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    restored = SqliteStore(copy, FixedClock(NOW))
    await restored.open()
    assert (await restored.read(KEY)).rows == (row,)
    assert (await restored.read(OTHER_KEY)).rows == ()
    assert len(await restored.sales()) == 1
    await restored.close()


async def test_an_older_copy_that_is_laid_over_the_file_sells_nothing(path: Path, store: SqliteStore) -> None:
    await settled(store, draft())
    older, newest = path.with_name("older.db"), path.with_name("newest.db")
    await store.back_up(older)
    await sell(store)
    await store.back_up(newest)
    with closing(apsw.Connection(str(path))) as other:
        other.execute("SELECT count(*) FROM sales").fetchall()
        pages, brought_in = other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert pages == brought_in == 0
    # As `cp` does, which keeps the inode.
    path.write_bytes(older.read_bytes())
    with pytest.raises(StoreUnavailable, match="is an older copy"):
        await store.check_writable()
    assert all("is an older copy" in each for each in await unusable(store))
    with pytest.raises(StoreUnavailable):
        await tried(store, draft("third", key="purchase-number-three"))


async def test_a_store_that_a_newer_release_brought_up_is_written_no_more(path: Path, store: SqliteStore) -> None:
    await settled(store, draft())
    with closing(apsw.Connection(str(path))) as newer:
        newer.pragma("user_version", SCHEMA_VERSION + 1)
        for call in (store.check_writable(), tried(store, draft("second", key=OTHER_KEY))):
            with pytest.raises(StoreUnavailable, match=r"a newer release has taken|run the release that wrote it"):
                await call
        assert newer.pragma("user_version") == SCHEMA_VERSION + 1


async def test_an_index_of_the_log_that_is_deleted_is_noticed(path: Path, store: SqliteStore) -> None:
    await settled(store, draft())
    path.with_name("attempts.db-shm").unlink()
    for _ in range(3):
        # Every purchase reads before it writes; the reader and the writer each let go of what they hold.
        with suppress(StoreUnavailable):
            await store.read(OTHER_KEY)
        with suppress(StoreUnavailable):
            await store.check_writable()
    await sell(store)
    with closing(apsw.Connection(str(path))) as other:
        assert other.execute("SELECT count(*) FROM sales").fetchall() == [(2,)]
