"""Stores that release 0.29.0 wrote, brought up: `stores/0.29.0` was made by its own walk, with rows in every state.

`requests.json` has what its callers sent and were answered; `sqlite.sql` and `postgres.sql` are dumps of its stores.
"""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC221, ASYNC240 -- Nothing else runs on a test's loop that could be held up.

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw
import psycopg
import pytest

from ranking_evaluate.attempts import migrations
from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.decide import Request
from ranking_evaluate.attempts.migrations import SCHEMA_VERSION
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.errors import ServiceError
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.operations.registry import find
from ranking_evaluate.order import Delivery, Order
from ranking_evaluate.payments.x402.protocol import X402Protocol
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from ranking_evaluate.settings import read_settings
from tests.attempts.samples import KEY, draft, settled
from tests.fakes import FixedClock
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio

OLD: Final = Path(__file__).parent / "stores" / "0.29.0"
WRITTEN: Final[dict[str, Any]] = json.loads((OLD / "requests.json").read_text())
NOW: Final = float(WRITTEN["now"])
SOLD: Final = {"settled", "over", "reconciled"}
"""The requests whose settled row was still there; of a purged one the books cannot know."""


def old_sqlite(path: Path) -> Path:
    """Write the SQLite file of 0.29.0, as its own library did."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = TRUNCATE")
        db.executescript((OLD / "sqlite.sql").read_text())
    return path


def old_postgres(server: PostgresServer) -> str:
    url = server.new_database()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute((OLD / "postgres.sql").read_bytes())
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AttemptStore]:
    """A store of 0.29.0, as this release opens it."""
    if request.param == "sqlite":
        path = old_sqlite(tmp_path / "attempts.db")
        return lambda: SqliteStore(path, FixedClock(NOW))
    url = old_postgres(request.getfixturevalue("postgres_server"))
    return lambda: PostgresStore(url, lambda database: NOW)


async def resend(store: AttemptStore, name: str, *, key: str | None = None) -> Delivery | ServiceError:
    """Send what a caller of 0.29.0 sent, again, to the walk of this release."""
    sent = WRITTEN["requests"][name]
    variables = {
        "X402_PAY_TO": "0x" + "2b" * 20,
        "X402_NETWORK": "eip155:31337",
        "X402_ASSET": "0x" + "5f" * 20,
        "X402_ASSET_NAME": "Sandbox Dollar",
        "X402_ASSET_VERSION": "1",
        "X402_FACILITATOR_URL": "http://127.0.0.1:1",
    }
    config = read_settings({f"RANKING_EVALUATE_{name}": value for name, value in variables.items()}).x402
    assert config is not None
    protocol = X402Protocol(config)
    walk = Purchases(
        store,
        Rates("memory://", None, None),
        Evaluations(1, None),
        (protocol.wire,),
        chains=Chains(()),
        verify_timeout=1,
        settle_timeout=1,
        clock=lambda: NOW,
    )
    order = Order(
        operation=find("ranking-evaluate"),
        wire=protocol.wire,
        protocol=protocol,
        key=key or sent["key"],
        url="http://a/v1/x402/ranking-evaluate",
        body=sent["body"].encode(),
        headers={"payment-signature": sent["header"]},
        client="caller",
    )
    try:
        return await walk.buy(order)
    except ServiceError as error:
        return error
    finally:
        await protocol.close()


async def test_what_the_older_release_sold_is_replayed_byte_for_byte(old: Callable[[], AttemptStore]) -> None:
    store = old()
    await store.open()
    got = await resend(store, "settled")
    assert isinstance(got, Delivery)
    sold = WRITTEN["requests"]["settled"]
    assert (got.body.decode(), got.receipt, got.replayed) == (sold["answer"], sold["receipt"], True)
    assert isinstance(await resend(store, "reconciled"), Delivery)
    await store.close()


async def test_every_other_row_of_the_older_release_is_answered_as_the_table_says(
    old: Callable[[], AttemptStore],
) -> None:
    store = old()
    await store.open()
    said = {name: await resend(store, name) for name in WRITTEN["requests"] if name not in {"settled", "reconciled"}}
    codes = {name: answer.code for name, answer in said.items() if isinstance(answer, ServiceError)}
    await store.close()
    assert codes == {
        "purged_settled": "IDEMPOTENCY_CONFLICT",
        "purged_failed": "DUPLICATE_PROOF",
        "over": "IDEMPOTENCY_CONFLICT",
        "failed": "PAYMENT_UNAVAILABLE",  # A refusal is told with a challenge, and nobody is there to make one.
        "uncertain": "PAYMENT_UNCERTAIN",
        "released": "PAYMENT_UNAVAILABLE",
        "reserved": "PAYMENT_IN_PROGRESS",
        "settling": "PAYMENT_IN_PROGRESS",
    }


async def test_its_proofs_are_refused_under_every_other_key(old: Callable[[], AttemptStore]) -> None:
    store = old()
    await store.open()
    rows = await store.recent(limit=100)
    for row in rows:
        asked = Request(KEY, row.fingerprint, row.release, "ab" * 32, row.proofs)
        assert (await store.read(KEY, asked.proofs)).recorded == set(row.proofs)
        fresh = draft(proofs=row.proofs, claim=f"fresh {row.n} {row.key}"[:64])
        assert await store.reserve(fresh, asked, await store.read(KEY, asked.proofs)) is None
    assert {row.state for row in rows} == set(State)
    await store.close()


async def test_the_books_begin_with_every_settled_row_that_was_still_there(old: Callable[[], AttemptStore]) -> None:
    store = old()
    await store.open()
    sales = await store.sales()
    keys = {hashlib.sha256(WRITTEN["requests"][name]["key"].encode()).hexdigest(): name for name in SOLD}
    assert {keys[sale.key_sha256]: sale.reconciled for sale in sales} == {
        "over": False,
        "settled": False,
        "reconciled": True,
    }
    assert {(sale.amount, sale.recipient, sale.n, sale.release) for sale in sales} == {(10000, None, 1, "0.29.0")}
    assert [sale.at for sale in sales] == sorted(sale.at for sale in sales)
    await settled(store, draft())
    assert len(await store.sales()) == 4
    await store.close()


async def test_what_was_brought_up_is_what_a_new_store_is(tmp_path: Path) -> None:
    old, new = SqliteStore(old_sqlite(tmp_path / "old.db")), SqliteStore(tmp_path / "new.db")
    shapes = []
    for store, name in ((old, "old.db"), (new, "new.db")):
        await store.open()
        await store.close()
        with closing(apsw.Connection(str(tmp_path / name))) as db:
            tables = sorted(name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
            columns = {table: db.execute(f"PRAGMA table_info({table})").fetchall() for table in tables}
            marks = [db.pragma(pragma) for pragma in ("user_version", "application_id", "journal_mode")]
            shapes.append((columns, marks))
    assert shapes[0] == shapes[1]
    assert shapes[0][1] == [SCHEMA_VERSION, migrations.APPLICATION_ID, "wal"]


async def test_a_copy_of_the_older_file_is_left_beside_it(tmp_path: Path) -> None:
    path = old_sqlite(tmp_path / "attempts.db")
    with closing(sqlite3.connect(path)) as db:
        before = list(db.iterdump())
    store = SqliteStore(path)
    await store.open()
    await store.close()
    copies = [f"attempts.db.schema-{version}" for version in range(1, SCHEMA_VERSION)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["attempts.db", *copies]
    copy = tmp_path / "attempts.db.schema-1"
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as db:
        assert list(db.iterdump()) == before
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


async def test_an_operators_command_leaves_an_older_store_as_it_is(tmp_path: Path) -> None:
    path = old_sqlite(tmp_path / "attempts.db")
    content = path.read_bytes()
    with pytest.raises(StoreUnavailable) as caught:
        await SqliteStore(path, create=False).open()
    assert (
        str(caught.value)
        == f"{path} has schema version 1, this release reads {SCHEMA_VERSION}: start its service first"
    )
    assert path.read_bytes() == content


async def test_a_newer_sqlite_store_stops_the_start_in_one_line(tmp_path: Path) -> None:
    path = old_sqlite(tmp_path / "attempts.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    content = path.read_bytes()
    with pytest.raises(StoreUnavailable) as caught:
        await SqliteStore(path).open()
    newer = f"schema version {SCHEMA_VERSION + 1}, this release reads {SCHEMA_VERSION}"
    assert str(caught.value) == f"{path} has {newer}: run the release that wrote it"
    assert path.read_bytes() == content


async def test_a_newer_postgres_store_stops_the_start_in_one_line(postgres_server: PostgresServer) -> None:
    url = old_postgres(postgres_server)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE ranking_evaluate.schema_version SET version = %s", [SCHEMA_VERSION + 1])
        name = db.info.dbname
    with pytest.raises(StoreUnavailable) as caught:
        await PostgresStore(url).open()
    newer = f"schema version {SCHEMA_VERSION + 1}, this release reads {SCHEMA_VERSION}"
    assert str(caught.value) == f"the database {name} has {newer}: run the release that wrote it"


async def test_a_file_that_the_older_release_is_writing_is_not_taken_over(tmp_path: Path) -> None:
    path = old_sqlite(tmp_path / "attempts.db")
    writes = "db = sqlite3.connect(sys.argv[1]); db.execute('BEGIN IMMEDIATE'); print(1, flush=True); input()"
    running = subprocess.Popen(
        [sys.executable, "-c", f"import sqlite3, sys; {writes}", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    running.stdout.readline()
    with pytest.raises(StoreUnavailable, match="is in use by an older release: stop it first"):
        await SqliteStore(path, busy_timeout=0.1).open()
    running.communicate("go\n")
    store = SqliteStore(path)
    await store.open()
    assert len(await store.sales()) == 3
    await store.close()


# Killed in the middle of a step, and several at once.

DIES_IN_A_STEP: Final = """
import asyncio, os, signal, sys
from ranking_evaluate.attempts import migrations
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore

# In SQLite it dies while it writes the books, in PostgreSQL it falls asleep once they are written.
steps = migrations.steps
migrations.sha256_hex = lambda text: os.kill(os.getpid(), signal.SIGKILL)
migrations.steps = lambda store, version: (
    (step, sql + ("; SELECT pg_sleep(20)" if store == "postgres" else "")) for step, sql in steps(store, version)
)

async def main():
    store = SqliteStore(sys.argv[1]) if sys.argv[1].startswith("/") else PostgresStore(sys.argv[1])
    await store.open()
asyncio.run(main())
"""


async def test_a_process_that_dies_within_a_step_leaves_the_store_before_it(tmp_path: Path) -> None:
    path = old_sqlite(tmp_path / "attempts.db")
    died = subprocess.run([sys.executable, "-c", DIES_IN_A_STEP, str(path)], check=False, timeout=30)
    assert died.returncode == -signal.SIGKILL
    with closing(apsw.Connection(str(path))) as db:
        assert db.pragma("user_version") == 1
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'sales'").fetchall() == [(0,)]
        assert db.pragma("integrity_check") == "ok"
    store = SqliteStore(path, FixedClock(NOW))
    await store.open()
    assert len(await store.sales()) == 3
    await store.close()


async def test_a_replica_that_dies_within_a_step_leaves_it_to_the_next_one(postgres_server: PostgresServer) -> None:
    url = old_postgres(postgres_server)
    dying = subprocess.Popen([sys.executable, "-c", DIES_IN_A_STEP, url])
    with psycopg.connect(url, autocommit=True) as db:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        async with asyncio.timeout(20):
            while db.execute(asleep).fetchone() != (1,):
                await asyncio.sleep(0.02)
        os.kill(dying.pid, signal.SIGKILL)
        dying.wait()
        # The server notices a dead client when it has something to say to it; an operator would do this.
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        assert db.execute("SELECT version FROM ranking_evaluate.schema_version").fetchone() == (1,)
    store = PostgresStore(url, lambda database: NOW)
    await store.open()
    assert len(await store.sales()) == 3
    await store.close()


OPENS: Final = """
import asyncio, sys
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.postgres import PostgresStore

async def main():
    sys.stdin.readline()
    store = SqliteStore(sys.argv[1]) if sys.argv[1].startswith("/") else PostgresStore(sys.argv[1])
    await store.open()
    print(len(await store.sales()))
    await store.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_processes_that_start_at_once_bring_a_store_up_once(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    if kind == "sqlite":
        place = str(old_sqlite(tmp_path / "attempts.db"))
    else:
        place = old_postgres(request.getfixturevalue("postgres_server"))
    starting = [
        subprocess.Popen([sys.executable, "-c", OPENS, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for each in starting:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    assert [each.communicate(timeout=60)[0] for each in starting] == ["3\n"] * 4
