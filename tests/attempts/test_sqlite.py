"""The embedded store's file: how it is made and checked, shared, locked, interrupted, and what stands in it."""

# ruff: noqa: ASYNC220, ASYNC240 -- Nothing else runs on a test's loop that a short blocking call could hold up.

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ranking_evaluate.attempts.attempt import State, Submit
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable
from tests.attempts.samples import KEY, NOW, OTHER_KEY, asks, draft, reserved, settled, tried
from tests.fakes import FixedClock

pytestmark = pytest.mark.anyio

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "attempts.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path, FixedClock(NOW), busy_timeout=0.05)
    await made.open()
    yield made
    await made.close()


async def opening(path: Path | str) -> str:
    """Return the reason for which the store cannot be opened."""
    with pytest.raises(StoreUnavailable) as caught:
        await SqliteStore(path, busy_timeout=0.05).open()
    return str(caught.value)


async def reconnect(store: SqliteStore) -> None:
    """Let go of the connections, as a failed transaction and a failed read do."""
    store._reader.close()
    with suppress(StoreUnavailable):
        await store._writer.do(lambda db: db.close(), writes=False)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Act as somebody to whom permissions apply, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# The file.


async def test_the_file_belongs_to_its_owner_alone(path: Path, store: SqliteStore) -> None:
    await reserved(store, draft())
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "attempts.db": 0o600,
        "attempts.db-journal": 0o600,
    }


async def test_every_connection_keeps_a_truncated_journal_and_syncs_fully(store: SqliteStore) -> None:
    def pragma(name: str) -> Any:
        return store._writer.do(lambda db: db.execute(f"PRAGMA {name}").fetchone()[0], writes=False)

    for _ in range(2):
        assert [await pragma("journal_mode"), await pragma("synchronous")] == ["truncate", 2]
        await reconnect(store)


async def test_what_was_stored_is_there_when_the_file_is_opened_again(path: Path, store: SqliteStore) -> None:
    row = await settled(store, draft())
    await store.close()
    again = SqliteStore(str(path), FixedClock(NOW))
    await again.open()
    assert await again.find(row.claim) == row
    await again.close()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "attempts.db"
    assert await opening(path) == (
        f"cannot open the attempt store {path}: [Errno 2] No such file or directory: '{path}'"
    )


async def test_a_folder_that_cannot_be_written_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with without_privileges():
            assert "Permission denied" in await opening(folder / "attempts.db")
        folder.chmod(0o700)


async def test_a_file_that_cannot_be_written_is_found_when_it_is_opened() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = SqliteStore(folder / "attempts.db")
        await store.open()
        await store.close()
        (folder / "attempts.db").chmod(0o444)
        (folder / "attempts.db-journal").unlink()
        folder.chmod(0o555)
        with without_privileges():
            assert "readonly database" in await opening(folder / "attempts.db")
        folder.chmod(0o700)


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    path.write_bytes(b"a letter to a friend, long enough to have a header" * 100)
    assert "file is not a database" in await opening(path)
    assert path.read_bytes().startswith(b"a letter")


async def test_another_programs_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE attempts (id)")
    assert await opening(path) == f"{path} is a database, but not an attempt store"


async def test_another_schema_version_is_refused_by_name(path: Path, store: SqliteStore) -> None:
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    assert await opening(path) == (f"{path} has schema version 2, this release reads 1: run the release that wrote it")


async def test_a_write_ahead_log_is_switched_off_or_refused_while_somebody_uses_it(
    path: Path, store: SqliteStore
) -> None:
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("SELECT * FROM attempts").fetchall()
        assert "locked" in await opening(path)
    again = SqliteStore(path)
    await again.open()
    assert await again.recent() == []
    await again.close()
    assert not [file for file in path.parent.iterdir() if file.name.endswith("-wal")]


async def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    assert "unable to open database file" in await opening(tmp_path)


async def test_two_processes_may_make_the_file_at_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await reserved(stores[0], draft())
    assert [len(await store.recent()) for store in stores] == [1] * 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_file_that_vanishes_is_not_replaced_by_an_empty_one(path: Path, store: SqliteStore) -> None:
    path.unlink()
    await reconnect(store)
    with pytest.raises(StoreUnavailable, match="unable to open"):
        await store.read(KEY)
    assert not path.exists()


# Locks and failing commits, as another connection makes them.


async def test_while_another_process_writes_the_store_is_unavailable_and_writes_nothing(
    path: Path, store: SqliteStore
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="locked") as caught:
            await tried(store, draft())
        assert not isinstance(caught.value, CommitUnknown)
        other.execute("ROLLBACK")
    assert await store.recent() == []
    await reserved(store, draft())


async def test_reads_go_on_while_another_process_prepares_a_write(path: Path, store: SqliteStore) -> None:
    row = await reserved(store, draft())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await store.find(row.claim) == row


async def test_a_store_waits_for_another_processes_write(path: Path) -> None:
    store = SqliteStore(path, FixedClock(NOW))
    await store.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        waiting = asyncio.create_task(reserved(store, draft()))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        other.execute("ROLLBACK")
        assert (await waiting).n == 1
    await store.close()


async def test_a_commit_that_did_not_land_is_unknown_and_the_claim_tells(path: Path, store: SqliteStore) -> None:
    row = await reserved(store, draft())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM attempts").fetchall()  # A reader's lock lets a write begin, but not commit.
        with pytest.raises(CommitUnknown):
            await store.move(row.claim, Submit(70.0))
        with pytest.raises(CommitUnknown):
            await tried(store, draft("second", key=OTHER_KEY))
        other.execute("ROLLBACK")
    assert await store.find(row.claim) == row
    assert await store.find("claim of second") is None


async def test_a_commit_that_landed_unheard_is_unknown_and_the_claim_tells(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unheard(sqlite3.Connection):
        silent = False

        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *args)
            if sql == "COMMIT" and self.silent:
                raise sqlite3.OperationalError("disk I/O error")
            return cursor

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Unheard))
    store = SqliteStore(path, FixedClock(NOW))
    await store.open()
    made = draft()
    seen = await store.read(made.key, made.proofs)
    monkeypatch.setattr(Unheard, "silent", True)
    with pytest.raises(CommitUnknown):
        await store.reserve(made, asks(made), seen)
    monkeypatch.setattr(Unheard, "silent", False)
    found = await store.find(made.claim)
    assert found is not None
    assert (found.state, found.n) == (State.RESERVED, 1)
    await store.close()


# Two processes, and the death of one.

RACES_FOR_EVERY_KEY = """
import asyncio, sys
from ranking_evaluate.attempts.sqlite import SqliteStore
from tests.attempts.samples import draft, tried

async def main() -> None:
    store = SqliteStore(sys.argv[1])
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(0, 200, 5):
        made = [draft(f"{k}", key=f"purchase-number-{k:04d}", claim=f"{sys.argv[2]} {k}") for k in range(n, n + 5)]
        for row in await asyncio.gather(*(tried(store, one) for one in made)):
            if row is not None:
                print(row.claim, flush=True)
    await store.close()

asyncio.run(main())
"""


async def test_two_processes_racing_for_two_hundred_keys_win_each_once(path: Path, store: SqliteStore) -> None:
    start = [sys.executable, "-c", RACES_FOR_EVERY_KEY, str(path)]
    racers = [
        subprocess.Popen([*start, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "AB"
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [claim for racer in racers for claim in racer.communicate(timeout=60)[0].split("\n") if claim]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert sorted(claim.split()[1] for claim in won) == sorted(map(str, range(200)))
    assert {row.claim for row in await store.recent(limit=1000)} == set(won)


WRITES_UNTIL_KILLED = """
import asyncio, sys
from ranking_evaluate.attempts.sqlite import SqliteStore
from tests.attempts.samples import draft, settled

async def main() -> None:
    store = SqliteStore(sys.argv[1])
    await store.open()

    async def buy(client: int) -> None:
        for n in range(1_000_000):
            row = await settled(store, draft(f"{client} {n}", key=f"purchase-{client:04d}-{n:08d}"))
            sys.stdout.write(row.claim + "\\n")
            sys.stdout.flush()

    await asyncio.gather(*(buy(client) for client in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("delay", [0.05, 0.11, 0.17])
async def test_a_kill_in_the_middle_of_writes_loses_nothing_that_was_acknowledged(path: Path, delay: float) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITES_UNTIL_KILLED, path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip()]
    await asyncio.sleep(delay)
    writer.send_signal(signal.SIGKILL)
    acknowledged += [line.strip() for line in writer.stdout.read().split("\n")[:-1]]
    writer.wait()
    writer.stdout.close()
    assert acknowledged[0]
    store = SqliteStore(path)
    await store.open()
    for claim in acknowledged:
        row = await store.find(claim)
        assert row is not None
        assert row.state is State.SETTLED
        assert row.proofs == draft(claim.removeprefix("claim of ")).proofs
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# What stands in it.

LISTED = """
    key n protocol operation release fingerprint credential_digest claim state lease reason amount asset network payer
    payment_id valid_before transaction receipt output_sha256 created_at updated_at expires_at
"""
"""What docs/lifecycle.md, section 7, lets be kept; the proofs stand in their own table."""


async def test_nothing_but_the_listed_columns_is_kept(path: Path, store: SqliteStore) -> None:
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")} for table in tables}
    assert columns == {
        "attempts": set(LISTED.split()),
        "proofs": {"proof", "key", "n", "claim", "last_state"},
        "audit": {"at", "key", "n", "who", "what", "evidence"},
    }


async def test_no_scratch_file_is_left_beside_it(path: Path, store: SqliteStore) -> None:
    await asyncio.gather(*(settled(store, draft(f"c{n}", key=f"purchase-number-{n:04d}")) for n in range(100)))
    assert {file.name for file in path.parent.iterdir()} == {"attempts.db", "attempts.db-journal"}
    assert (path.parent / "attempts.db-journal").stat().st_size == 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM attempts WHERE key = 'k'",
        "SELECT * FROM attempts WHERE claim = 'c'",
        "SELECT * FROM proofs WHERE key = 'k' AND claim = 'c'",
        "SELECT * FROM proofs WHERE proof IN (x'00', x'01')",
        "SELECT * FROM attempts WHERE expires_at <= 1 ORDER BY expires_at",
        "SELECT * FROM attempts WHERE expires_at IS NULL AND state = 'reserved' AND lease <= 1",
        "SELECT * FROM attempts WHERE expires_at IS NULL AND (state = 'uncertain' OR lease <= 1)",
    ],
)
async def test_what_a_purchase_and_the_purge_ask_is_found_by_an_index(
    path: Path, store: SqliteStore, query: str
) -> None:
    with closing(sqlite3.connect(path)) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert all("USING" in step for step in plan), plan
