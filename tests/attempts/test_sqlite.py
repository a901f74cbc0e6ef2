"""The embedded store's file: how it is made and checked, shared, locked, interrupted, and what stands in it."""

# ruff: noqa: ASYNC220, ASYNC240 -- Nothing else runs on a test's loop that a short blocking call could hold up.

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from ranking_evaluate.attempts import sqlite_file
from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.events import Submit
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable
from tests.attempts.samples import NOW, draft, reserved, settled, tried
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
        "attempts.db-wal": 0o600,
        "attempts.db-shm": 0o600,
    }


async def test_a_library_that_can_corrupt_a_log_is_refused() -> None:
    sqlite_file.check_library("3.51.3")
    sqlite_file.check_library("3.60.0")
    for version in ("3.51.2", "3.40.1", "3.7.17"):
        with pytest.raises(StoreUnavailable, match=r"install an apsw with 3\.51\.3 or newer"):
            sqlite_file.check_library(version)


async def test_a_closed_store_is_one_file_without_a_log(path: Path, store: SqliteStore) -> None:
    await settled(store, draft())
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["attempts.db"]


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
        folder.chmod(0o555)
        with without_privileges():
            assert "readonly database" in await opening(folder / "attempts.db")
        folder.chmod(0o700)


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    path.write_bytes(b"a letter to a friend, long enough to have a header" * 100)
    assert "file is not a database" in await opening(path)
    assert path.read_bytes().startswith(b"a letter")


async def test_another_programs_database_is_left_alone(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute("CREATE TABLE attempts (id)")
    assert await opening(path) == f"{path} is a database, but not an attempt store"


async def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    assert "unable to open database file" in await opening(tmp_path)


async def test_two_processes_may_make_the_file_at_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await reserved(stores[0], draft())
    assert [len(await store.recent()) for store in stores] == [1] * 8
    await asyncio.gather(*(store.close() for store in stores))


# Locks and failing commits, as another connection makes them.


async def test_while_another_process_writes_the_store_is_unavailable_and_writes_nothing(
    path: Path, store: SqliteStore
) -> None:
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked") as caught:
            await tried(store, draft())
        assert not isinstance(caught.value, CommitUnknown)
        other.execute("ROLLBACK")
    assert await store.recent() == []
    await reserved(store, draft())


async def test_a_store_waits_for_another_processes_write(path: Path) -> None:
    store = SqliteStore(path, FixedClock(NOW))
    await store.open()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(reserved(store, draft()))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        other.execute("ROLLBACK")
        assert (await waiting).n == 1
    await store.close()


@pytest.mark.parametrize("lands", [False, True])
async def test_a_commit_whose_fate_is_unknown_is_told_by_the_claim(store: SqliteStore, lands: bool) -> None:
    row = await reserved(store, draft())
    file = store._writer._file
    assert file is not None

    def unheard(cursor: object, statement: str, values: object) -> bool:
        if statement == "COMMIT":
            if lands:
                file.db.set_exec_trace(None)
                file.db.execute("COMMIT")
            raise apsw.IOError("disk I/O error")
        return True

    file.db.set_exec_trace(unheard)
    with pytest.raises(CommitUnknown):
        await store.move(row.claim, Submit(70.0))
    found = await store.find(row.claim)
    assert found is not None
    assert found.state is (State.SETTLING if lands else State.RESERVED)


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
    with closing(apsw.Connection(str(path))) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# What stands in it.

LISTED = """
    key n protocol operation release fingerprint credential_digest claim state lease reason amount asset network payer
    payment_id valid_before transaction receipt output_sha256 created_at updated_at expires_at
    recipient reason_code reported_transaction answer_sha256 schema_sha256 new_key_proof request_id
"""
SOLD = """
    id at key_sha256 n protocol operation release amount asset network recipient payer transaction reconciled
    refunded_at refund_transaction
"""
"""What docs/lifecycle.md, section 7, lets be kept; the proofs stand in their own table."""


async def test_nothing_but_the_listed_columns_is_kept(path: Path, store: SqliteStore) -> None:
    with closing(apsw.Connection(str(path))) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")} for table in tables}
    assert columns == {
        "attempts": set(LISTED.split()),
        "proofs": {"proof", "key", "n", "claim", "last_state"},
        "audit": {"at", "key", "n", "who", "what", "evidence"},
        "sales": set(SOLD.split()),
    }


async def test_no_scratch_file_is_left_beside_it(path: Path, store: SqliteStore) -> None:
    await asyncio.gather(*(settled(store, draft(f"c{n}", key=f"purchase-number-{n:04d}")) for n in range(100)))
    assert {file.name for file in path.parent.iterdir()} == {"attempts.db", "attempts.db-wal", "attempts.db-shm"}


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
    with closing(apsw.Connection(str(path))) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert all("USING" in step for step in plan), plan
