"""Which writes wait for the disk and which do not, seen at the commits of each store (docs/lifecycle.md, section 6)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import psycopg
import pytest

from ranking_evaluate.attempts.attempt import Audit
from ranking_evaluate.attempts.events import (
    Event,
    Lapse,
    OperatorRelease,
    OperatorSettle,
    RecordNotSent,
    RecordRefused,
    RecordSettled,
    RecordSpent,
    RecordUncertain,
    Submit,
    Withdraw,
)
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import AttemptStore
from tests.attempts.samples import DAY, KEY, NOW, SETTLE_LEASE, TX, draft, reserved
from tests.fakes import FixedClock
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio

LAZY, DURABLE = "lazy", "durable"
Seen = Callable[[], list[str]]
"""Returns how each commit since the last call was made."""

AT_COMMIT: Final = """
    SET search_path = ranking_evaluate;
    CREATE TABLE commits (transaction xid8 PRIMARY KEY, level TEXT);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO ranking_evaluate.commits VALUES (pg_current_xact_id(), current_setting('synchronous_commit'))
        ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER attempts_noted AFTER INSERT OR UPDATE OR DELETE ON attempts
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
    CREATE CONSTRAINT TRIGGER sales_noted AFTER UPDATE ON sales
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
"""
"""Lets the database write down, at the end of each transaction, whether its commit will wait for the disk."""


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


async def seen_in_sqlite(path: Path, clock: FixedClock) -> AsyncIterator[tuple[AttemptStore, Seen]]:
    store = SqliteStore(path, clock)
    await store.open()
    file = store._writer._file
    assert file is not None
    commits: list[str] = []
    levels = {1: LAZY, 2: DURABLE}

    def note(cursor: object, statement: str, values: object) -> bool:
        if statement == "COMMIT":
            commits.append(levels[file.db.pragma("synchronous")])
        return True

    def seen() -> list[str]:
        found, commits[:] = list(commits), []
        return found

    file.db.set_exec_trace(note)
    yield store, seen
    await store.close()


async def seen_in_postgres(server: PostgresServer, clock: FixedClock) -> AsyncIterator[tuple[AttemptStore, Seen]]:
    url = server.new_database()
    store = PostgresStore(url, lambda database: clock())
    await store.open()
    levels = {"off": LAZY, "on": DURABLE}
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(AT_COMMIT)

        def seen() -> list[str]:
            gone = db.execute("DELETE FROM commits RETURNING transaction::text::bigint, level").fetchall()
            return [levels[level] for _, level in sorted(gone)]

        yield store, seen
    await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def watched(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock
) -> AsyncIterator[tuple[AttemptStore, Seen]]:
    if request.param == "sqlite":
        made = seen_in_sqlite(tmp_path / "attempts.db", clock)
    else:
        made = seen_in_postgres(request.getfixturevalue("postgres_server"), clock)
    async for store in made:
        yield store


SUBMIT: Final = (Submit(SETTLE_LEASE), DURABLE)

LIVES: Final[dict[str, list[tuple[Event, str]]]] = {
    "settled": [SUBMIT, (RecordSettled("receipt", TX), DURABLE)],
    "refused": [SUBMIT, (RecordRefused("no"), DURABLE)],
    "not sent": [SUBMIT, (RecordNotSent(), DURABLE)],
    "withdrawn": [(Withdraw(), LAZY)],
    "spent": [(RecordSpent("nonce"), DURABLE)],
    "uncertain, then released": [
        SUBMIT,
        (RecordUncertain("timeout"), LAZY),
        (OperatorRelease("ada", "unused"), DURABLE),
    ],
    "uncertain, then settled": [
        SUBMIT,
        (RecordUncertain("timeout"), LAZY),
        (OperatorSettle("r", TX, "ada", "block"), DURABLE),
    ],
    "uncertain, then answered": [SUBMIT, (RecordUncertain("timeout"), LAZY), (RecordSettled("receipt", TX), DURABLE)],
    "settled after a release": [
        SUBMIT,
        (RecordUncertain("timeout"), LAZY),
        (OperatorRelease("ada", "unused"), DURABLE),
        (RecordSettled("receipt", TX), DURABLE),
    ],
}


@pytest.mark.parametrize("life", LIVES)
async def test_what_was_told_or_precedes_a_call_waits_for_the_disk_and_nothing_else_does(
    watched: tuple[AttemptStore, Seen], life: str
) -> None:
    store, seen = watched
    row = await reserved(store, draft())
    assert seen() == [LAZY]
    for event, expected in LIVES[life]:
        await store.move(row.claim, event)
        assert seen() == [expected], event


async def test_a_lapse_and_the_purge_do_not_wait_and_a_refund_does(
    watched: tuple[AttemptStore, Seen], clock: FixedClock
) -> None:
    store, seen = watched
    for credential in ("first", "second"):
        made = draft(credential, key=f"purchase-of-{credential}")
        await store.move((await reserved(store, made)).claim, Submit(SETTLE_LEASE))
    await store.move("claim of first", RecordSettled("receipt", TX))
    clock.advance(SETTLE_LEASE)
    seen()
    assert (await store.move("claim of second", Lapse())).owned
    assert seen() == [LAZY]
    [sale] = await store.sales()
    await store.refund(sale, TX, Audit("ada", "refunded", TX), KEY)
    assert seen() == [DURABLE]
    clock.advance(DAY)
    assert await store.purge() == 1
    assert set(seen()) == {LAZY}


async def test_a_lapsed_reservation_is_replaced_without_waiting(
    watched: tuple[AttemptStore, Seen], clock: FixedClock
) -> None:
    store, seen = watched
    await reserved(store, draft())
    clock.advance(DAY)
    seen()
    await reserved(store, draft(claim="another claim"))
    assert seen() == [LAZY]
