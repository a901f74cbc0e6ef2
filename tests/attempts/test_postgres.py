"""The shared store's server: tables, replicas that race, a server that stops, hangs and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from ranking_evaluate.attempts import connections, postgres
from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.connections import Patience
from ranking_evaluate.attempts.events import OperatorRelease, OperatorSettle, RecordUncertain, Submit
from ranking_evaluate.attempts.postgres import PostgresStore, _fetch
from ranking_evaluate.attempts.store import CommitUnknown, StoreUnavailable
from tests.attempts.samples import (
    KEY,
    NOW,
    OTHER_KEY,
    SETTLE_LEASE,
    TX,
    asks,
    draft,
    reserved,
    settled,
    settling,
    tried,
)
from tests.attempts.test_sqlite import LISTED, SOLD
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    made = postgres_server.new_database()
    yield made
    postgres_server.give_back(made)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url, lambda database: NOW)
    await made.open()
    yield made
    await made.close()


@contextlib.contextmanager
def admin(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET search_path = ranking_evaluate")
        yield db


async def opening(url: str, **options: Any) -> str:
    """Return the reason for which the store cannot be opened."""
    store = PostgresStore(url, **options)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    return str(caught.value)


# The tables.


async def test_nothing_but_the_listed_columns_is_kept(url: str, store: PostgresStore) -> None:
    with admin(url) as db:
        found = db.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'ranking_evaluate'"
        ).fetchall()
    columns: dict[str, set[str]] = {}
    for table, column in found:
        columns.setdefault(table, set()).add(column)
    assert columns == {
        "attempts": set(LISTED.split()),
        "proofs": {"proof", "key", "n", "claim", "last_state"},
        "audit": {"id", "at", "key", "n", "who", "what", "evidence"},
        "sales": set(SOLD.split()),
        "schema_version": {"version"},
    }


async def test_eight_replicas_may_make_the_tables_at_once(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await reserved(stores[0], draft())
    assert [len(await store.recent()) for store in stores] == [1] * 8
    with admin(url) as db:
        assert db.execute("SELECT count(*) FROM schema_version").fetchone() == (1,)
    await asyncio.gather(*(store.close() for store in stores))


async def test_an_operators_command_makes_no_tables(url: str) -> None:
    assert (await opening(url, create=False)).endswith("holds no attempt store")
    with admin(url) as db:
        assert db.execute("SELECT to_regclass('schema_version')").fetchone() == (None,)


async def test_a_database_that_cannot_be_written_is_found_when_it_is_opened(url: str, store: PostgresStore) -> None:
    with admin(url) as db:
        db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on".encode())
    assert "read-only transaction" in await opening(url)


async def test_a_database_that_could_not_hold_every_text_is_refused(postgres_server: PostgresServer, url: str) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as db:
        db.execute("CREATE DATABASE old_fashioned ENCODING 'LATIN1' TEMPLATE template0")
    assert await opening(postgres_server.url("old_fashioned")) == "the database old_fashioned is not encoded in UTF8"


async def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path: Any) -> None:
    said = await opening(f"postgresql://me:secret@/db?host={tmp_path}")
    assert said.startswith("cannot reach the database: ")
    assert "secret" not in said


async def test_a_commit_is_on_disk_before_it_is_told_whatever_the_database_says(url: str, store: PostgresStore) -> None:
    with admin(url) as db:
        db.execute(f"ALTER DATABASE {db.info.dbname} SET synchronous_commit = off".encode())
    other = PostgresStore(url)
    await other.open()
    settings = "current_setting('synchronous_commit'), current_setting('transaction_isolation')"
    [found] = await other._do(lambda db: postgres._fetch(db, f"SELECT {settings}"))
    assert found == ("on", "read committed")
    await other.close()


@pytest.mark.parametrize(
    "query",
    [
        postgres._SNAPSHOT.replace("%s", "'k'", 1).replace("%s", "ARRAY[''::bytea, 'x'::bytea]"),
        f"{postgres._SELECT} WHERE claim = 'c'",
        "SELECT * FROM attempts WHERE expires_at <= 1 ORDER BY expires_at",
        "SELECT * FROM attempts WHERE expires_at IS NULL AND state = 'reserved' AND lease <= 1",
        "UPDATE proofs SET last_state = 'failed' WHERE key = 'k' AND claim = 'c'",
    ],
)
async def test_what_a_purchase_and_the_purge_ask_is_found_by_an_index(
    url: str, store: PostgresStore, query: str
) -> None:
    with admin(url) as db:
        db.execute("SET enable_seqscan = off")  # Empty tables are read whole otherwise.
        plan = [line for (line,) in db.execute(f"EXPLAIN {query}".encode())]
    assert not [line for line in plan if "Seq Scan" in line], plan


async def test_the_time_is_the_databases(url: str) -> None:
    store, later = PostgresStore(url), PostgresStore(url, lambda database: database + 86_400)
    await store.open()
    await later.open()
    assert abs((await store.read(KEY)).now - time.time()) < 5
    assert abs((await later.read(KEY)).now - time.time() - 86_400) < 5
    await store.close()
    await later.close()


# Two replicas between two statements of each other.


async def interleaved(monkeypatch: pytest.MonkeyPatch, name: str, meanwhile: Callable[[], Awaitable[Any]]) -> None:
    """Let something happen once, right before a function of the store does its statement."""
    original = getattr(postgres, name)

    async def after_it(*given: Any) -> Any:
        monkeypatch.setattr(postgres, name, original)
        await meanwhile()
        return await original(*given)

    monkeypatch.setattr(postgres, name, after_it)


async def test_a_key_taken_between_the_look_and_the_insert_is_not_taken_twice(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await interleaved(monkeypatch, "_insert", lambda: reserved(store, draft("second")))
    assert await tried(store, draft("first")) is None
    assert [row.claim for row in await store.recent()] == ["claim of second"]


async def test_a_proof_taken_between_the_look_and_the_insert_undoes_the_whole_reservation(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = draft("second", key=OTHER_KEY, proofs=draft("first").proofs)
    await interleaved(monkeypatch, "_insert", lambda: reserved(store, other))
    assert await tried(store, draft("first")) is None
    assert [row.key for row in await store.recent()] == [OTHER_KEY]


async def test_a_release_turned_into_a_payment_between_the_look_and_the_insert_stops_the_new_attempt(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await settling(store, draft("first"))
    await store.move(row.claim, RecordUncertain("timeout"))
    await store.move(row.claim, OperatorRelease("ada", "nonce unused"))
    decision = OperatorSettle("reconciled", TX, "grace", "block 7")
    await interleaved(monkeypatch, "_replace", lambda: store.move(row.claim, decision))
    assert await tried(store, draft("second")) is None
    assert [attempt.state for attempt in (await store.read(KEY)).rows] == [State.SETTLED]


async def test_a_move_that_was_overtaken_looks_again(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    row = await settling(store, draft())
    await interleaved(monkeypatch, "_write", lambda: store.move(row.claim, RecordUncertain("the other's")))
    step = await store.move(row.claim, RecordUncertain("mine"))
    assert not step.owned
    assert step.attempt is not None
    assert step.attempt.reason == "the other's"


async def test_the_purge_passes_by_what_somebody_else_has_locked(url: str, store: PostgresStore) -> None:
    row = await settled(store, draft())
    later = PostgresStore(url, lambda database: NOW + 86_400)
    await later.open()
    with admin(url) as db, db.transaction():
        db.execute("SELECT FROM attempts WHERE claim = %s FOR UPDATE", (row.claim,))
        assert await later.purge() == 0
    assert await later.purge() == 1
    await later.close()


async def test_a_deadlock_is_the_servers_to_undo_and_ours_to_try_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deadlock() -> None:
        raise psycopg.errors.DeadlockDetected("deadlock detected")

    await interleaved(monkeypatch, "_insert", deadlock)
    assert await tried(store, draft()) is not None


# A server that stops, hangs and comes back.


class Line:
    """What lies between a store and its server, in the test's hands: it can fall silent, or break at a statement."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.break_at: bytes | None = None
        self.after = False
        original = psycopg.AsyncConnection.execute
        line = self

        async def execute(connection: Any, query: Any, *given: Any, **options: Any) -> Any:
            if line.break_at is None or line.break_at not in (query if isinstance(query, bytes) else query.encode()):
                return await original(connection, query, *given, **options)
            line.break_at = None
            if line.after:
                await original(connection, query, *given, **options)
            connections._hang_up(connection)
            return await original(connection, "SELECT 1")

        monkeypatch.setattr(psycopg.AsyncConnection, "execute", execute)


@pytest.mark.parametrize("landed", [False, True])
async def test_a_reservation_whose_answer_is_lost_is_unknown_and_the_claim_tells(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    made = draft()
    seen = await store.read(made.key, made.proofs)
    line = Line(monkeypatch)
    line.break_at, line.after = b"INSERT INTO attempts", landed
    with pytest.raises(CommitUnknown):
        await store.reserve(made, asks(made), seen)
    assert (await store.find(made.claim) is not None) == landed


@pytest.mark.parametrize("landed", [False, True])
async def test_a_move_whose_answer_is_lost_is_unknown_and_the_claim_tells(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    row = await reserved(store, draft())
    line = Line(monkeypatch)
    line.break_at, line.after = b"UPDATE attempts", landed
    with pytest.raises(CommitUnknown):
        await store.move(row.claim, Submit(SETTLE_LEASE))
    found = await store.find(row.claim)
    assert found is not None
    assert found.state is (State.SETTLING if landed else State.RESERVED)


async def test_a_read_whose_answer_is_lost_left_nothing_in_doubt(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await reserved(store, draft())
    Line(monkeypatch).break_at = b"SELECT"
    with pytest.raises(StoreUnavailable) as caught:
        await store.move(row.claim, Submit(SETTLE_LEASE))
    assert not isinstance(caught.value, CommitUnknown)
    assert await store.find(row.claim) == row


async def test_a_server_that_says_nothing_is_given_up_and_its_place_is_free_again(url: str) -> None:
    store = PostgresStore(url, connections=1, patience=Patience(use=0.2))
    await store.open()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store._do(lambda db: db.execute("SELECT pg_sleep(4)"))
    assert time.monotonic() - began < 2
    assert (await store.read(KEY)).rows == ()
    await store.close()


both_loops = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"use_uvloop": use}) for use in (False, True)], ids=["asyncio", "uvloop"]
)


def hold_up(seconds: float) -> None:
    """Block the loop at this moment."""
    time.sleep(seconds)


@both_loops
async def test_what_a_server_answered_in_time_is_read_though_the_loop_comes_late(url: str) -> None:
    """A purchase is reserved, submitted and recorded while the loop is held up, longer than a server is waited for."""
    store = PostgresStore(url, connections=1, patience=Patience(use=0.3))
    await store.open()
    try:
        slow = asyncio.create_task(store._do(lambda db: _fetch(db, "SELECT 7 FROM pg_sleep(0.1)")))
        await asyncio.sleep(0.05)
        hold_up(1.0)
        assert await slow == [(7,)]
        for event in (None, Submit(SETTLE_LEASE), RecordUncertain("nobody knows")):
            work = store.move(draft().claim, event) if event else tried(store, draft())
            working = asyncio.create_task(work)
            # It is sent in the first turn of the loop, or in the next ones, and then the loop stands still.
            for _ in range(3):
                await asyncio.sleep(0)
            hold_up(1.0)
            await working
        found = await store.find(draft().claim)
        assert found is not None
        assert found.state is State.UNCERTAIN
    finally:
        await store.close()


@both_loops
async def test_who_waits_for_a_connection_gets_it_though_the_loop_comes_late(url: str) -> None:
    store = PostgresStore(url, connections=1, patience=Patience(connect=1))
    await store.open()
    try:
        holding = asyncio.create_task(store._do(lambda db: db.execute("SELECT pg_sleep(0.3)")))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(store.find(draft().claim))
        await asyncio.sleep(0.05)
        hold_up(1.5)
        await holding
        assert await waiting is None
    finally:
        await store.close()


async def test_a_lock_that_is_never_let_go_makes_the_store_unavailable_for_that_row_alone(
    url: str, store: PostgresStore
) -> None:
    row = await reserved(store, draft())
    other = await reserved(store, draft("second", key=OTHER_KEY))
    impatient = PostgresStore(url, lambda database: NOW, patience=Patience(statement=0.2))
    await impatient.open()
    with admin(url) as db, db.transaction():
        db.execute("SELECT FROM attempts WHERE claim = %s FOR UPDATE", (row.claim,))
        with pytest.raises(StoreUnavailable) as caught:
            await impatient.move(row.claim, Submit(SETTLE_LEASE))
        assert not isinstance(caught.value, CommitUnknown)
        assert (await impatient.move(other.claim, Submit(SETTLE_LEASE))).owned
    await impatient.close()


async def test_who_finds_no_free_connection_hears_so_in_time(url: str) -> None:
    store = PostgresStore(url, connections=1, patience=Patience(connect=1))
    await store.open()
    busy = asyncio.create_task(store._do(lambda db: db.execute("SELECT pg_sleep(2)")))
    await asyncio.sleep(0.05)
    with pytest.raises(StoreUnavailable, match="in use"):
        await store.read(KEY)
    await busy
    await store.close()


async def test_a_server_stopped_at_once_and_started_again_loses_nothing_that_was_acknowledged(
    stoppable_server: PostgresServer,
) -> None:
    url = stoppable_server.new_database()
    stores = [PostgresStore(url), PostgresStore(url)]
    for store in stores:
        await store.open()
    acknowledged: list[str] = []
    refused = 0
    stopping = False

    async def buy(client: int) -> None:
        nonlocal refused
        n = 0
        while not stopping:
            n += 1
            made = draft(f"{client} {n}", key=f"purchase-{client:04d}-{n:08d}")
            try:
                acknowledged.append((await settled(stores[client % 2], made)).claim)
            except StoreUnavailable:
                refused += 1
                await asyncio.sleep(0.01)

    clients = [asyncio.create_task(buy(client)) for client in range(8)]
    for _ in range(4):
        await asyncio.sleep(0.25)
        await asyncio.to_thread(stoppable_server.stop)
        with pytest.raises(StoreUnavailable):
            await stores[0].read(KEY)
        before = len(acknowledged)
        await asyncio.to_thread(stoppable_server.start)
        began = time.monotonic()
        while len(acknowledged) <= before + 8:
            await asyncio.sleep(0.01)
            assert time.monotonic() - began < 5, "the stores did not recover"
    stopping = True
    await asyncio.gather(*clients)
    assert refused
    for claim in acknowledged:
        row = await stores[0].find(claim)
        assert row is not None
        assert row.state is State.SETTLED
        assert row.proofs == draft(claim.removeprefix("claim of ")).proofs
    for store in stores:
        await store.close()


async def test_an_idle_store_does_not_notice_that_its_server_was_restarted(stoppable_server: PostgresServer) -> None:
    store = PostgresStore(stoppable_server.new_database())
    await store.open()
    await asyncio.gather(*(store.read(KEY) for _ in range(20)))
    await asyncio.to_thread(stoppable_server.stop)
    await asyncio.to_thread(stoppable_server.start)
    assert (await store.read(KEY)).rows == ()
    await store.close()
