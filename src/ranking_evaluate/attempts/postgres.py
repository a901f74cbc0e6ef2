"""The shared store: attempts in one PostgreSQL database, for two or more replicas.

What it rests on: a read that decides is one statement, so it sees one instant; a write is one statement too, or a
transaction that has locked the rows it rests on, and its unique keys and compared states decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from ranking_evaluate.attempts.attempt import LOST_AND_GONE, Attempt, Audit, Draft, State, Step
from ranking_evaluate.attempts.connections import CONNECTIONS, PATIENCE, Connection, Connections, Patience, first_line
from ranking_evaluate.attempts.decide import Request, Reserve, Snapshot, decide
from ranking_evaluate.attempts.events import DURABLE, Event
from ranking_evaluate.attempts.migrations import bring_up_postgres, check, postgres_version
from ranking_evaluate.attempts.rows import (
    COLUMNS,
    LAPSED_KEPT,
    MOVED,
    UNDER_WAY,
    Kept,
    from_row,
    names,
    seen_as,
    snapshot_of,
    to_row,
)
from ranking_evaluate.attempts.sales import (
    NEW_SALE,
    SALE_COLUMNS,
    Sale,
    from_sale_row,
    sale_of,
    sha256_hex,
    to_sale_row,
)
from ranking_evaluate.attempts.store import CommitUnknown, NotMade, StoreUnavailable

MIGRATION_TIMEOUT: Final = 3600.0
"""Seconds that bringing up an older store, or waiting for the replica that does so, may take."""

TRIES: Final = 5
"""How often an operation that met another one, and wrote nothing, begins again."""

_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
_ROW: Final = ", ".join(f'a."{column}"' for column in COLUMNS)
_OWN_PROOFS: Final = "ARRAY(SELECT proof FROM proofs p WHERE p.key = a.key AND p.claim = a.claim)"
_SELECT: Final = f"SELECT {_NOW}, {_OWN_PROOFS}, {_ROW} FROM attempts a"  # noqa: S608 -- The columns are ours.

# An attempt has a proof from its first moment, so the proofs lead to every row that matters, in one statement.
_SNAPSHOT: Final = (
    f"SELECT {_NOW}, p.proof, p.key, p.n, p.claim, p.last_state, {_ROW} FROM (VALUES (1)) AS always "  # noqa: S608
    "LEFT JOIN (proofs p LEFT JOIN attempts a ON a.claim = p.claim) ON p.key = %s OR p.proof = ANY(%s) ORDER BY a.n"
)
# What need not be durable is committed without waiting for the disk; it is `SET LOCAL`, as part of the one statement.
_LAZY: Final = "set_config('synchronous_commit', 'off', true)"
_LAZY_IF: Final = (
    "set_config('synchronous_commit',"
    " CASE WHEN %s::boolean THEN 'off' ELSE current_setting('synchronous_commit') END, true)"
)
# Proofs are taken after the key and in their sorted order, so that no two reservations wait for each other. A key that
# is taken leaves the statement without a row; a proof that is taken fails it, and undoes the key.
_RESERVE: Final = f"""
    WITH taken AS (
        INSERT INTO attempts ({names(COLUMNS)}) VALUES ({", ".join(["%s"] * len(COLUMNS))})
        ON CONFLICT DO NOTHING RETURNING key, n, claim
    ), held AS (
        INSERT INTO proofs (proof, key, n, claim)
        SELECT new.proof, key, n, claim FROM taken, unnest(%s::bytea[]) WITH ORDINALITY AS new (proof, place)
        ORDER BY place
    )
    SELECT count(*), {_LAZY} FROM taken
"""  # noqa: S608 -- The columns are ours.
_SALES: Final = f"SELECT {names(SALE_COLUMNS)} FROM sales"  # noqa: S608 -- The columns are ours.
_SALE_TYPES: Final = {"at": "float8", "n": "integer", "amount": "bigint", "reconciled": "boolean"}
_SALE_VALUES: Final = ", ".join(f"%s::{_SALE_TYPES.get(column, 'text')}" for column in NEW_SALE)
_MOVE: Final = f"""
    WITH moved AS (
        UPDATE attempts SET ({names(MOVED)}) = ({", ".join(["%s"] * len(MOVED))}) WHERE claim = %s AND state = %s
        RETURNING key, n
    ), given_back AS (
        DELETE FROM proofs p USING moved WHERE p.key = moved.key AND p.proof = ANY(%s::bytea[])
    ), noted AS (
        INSERT INTO audit (at, key, n, who, what, evidence)
        SELECT %s::float8, key, n, %s::text, %s::text, %s::text FROM moved WHERE %s::boolean
    ), sold AS (
        INSERT INTO sales ({names(NEW_SALE)}) SELECT {_SALE_VALUES} FROM moved WHERE %s::boolean
    )
    SELECT count(*), {_LAZY_IF} FROM moved
"""  # noqa: S608 -- The columns are ours.
_REFUND: Final = """
    WITH refunded AS (
        UPDATE sales SET refunded_at = %s, refund_transaction = %s WHERE id = %s AND refunded_at IS NULL RETURNING 1
    ), noted AS (
        INSERT INTO audit (at, key, n, who, what, evidence)
        SELECT %s::float8, %s::text, %s::integer, %s::text, %s::text, %s::text FROM refunded
    )
    SELECT count(*) FROM refunded
"""
_ERASE: Final = f"""
    WITH gone AS (
        DELETE FROM attempts WHERE claim = %s AND state = %s RETURNING key, claim
    ), given_back AS (
        DELETE FROM proofs p USING gone WHERE p.key = gone.key AND p.claim = gone.claim
    )
    SELECT count(*), {_LAZY_IF} FROM gone
"""  # noqa: S608 -- Nothing of it is a caller's.
_ERASE_LAPSED: Final = """
    WITH gone AS (
        DELETE FROM attempts WHERE claim = ANY(%s) RETURNING key, claim
    )
    DELETE FROM proofs p USING gone WHERE p.key = gone.key AND p.claim = gone.claim
"""
_UNDER_WAY: Final = UNDER_WAY.format(
    **{name: f"%({name})s" for name in ("payer", "network", "asset", "claim", "now", "created")}
)
_LOCK: Final = "SELECT claim, state FROM attempts WHERE claim = ANY(%s) ORDER BY claim FOR UPDATE"
_PURGE_ENDED: Final = f"""
    WITH ended AS (
        SELECT key, claim, state FROM attempts WHERE expires_at <= %s ORDER BY expires_at LIMIT %s
        FOR UPDATE SKIP LOCKED
    ), kept AS (
        UPDATE proofs p SET last_state = ended.state FROM ended WHERE p.key = ended.key AND p.claim = ended.claim
    ), gone AS (
        DELETE FROM attempts a USING ended WHERE a.claim = ended.claim RETURNING a.claim
    )
    SELECT count(*), {_LAZY} FROM gone
"""  # noqa: S608 -- Nothing of it is a caller's.
_PURGE_LAPSED: Final = f"""
    WITH lapsed AS (
        SELECT claim FROM attempts WHERE expires_at IS NULL AND state = 'reserved' AND lease <= %s LIMIT %s
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM attempts a USING lapsed WHERE a.claim = lapsed.claim RETURNING a.key, a.claim
    ), given_back AS (
        DELETE FROM proofs p USING gone WHERE p.key = gone.key AND p.claim = gone.claim
    )
    SELECT count(*), {_LAZY} FROM gone
"""  # noqa: S608 -- Nothing of it is a caller's.

T = TypeVar("T")


class PostgresStore:
    """An `AttemptStore` in one database, in a schema of its own.

    Args:
        dsn: A postgresql:// URL.
        clock: Makes the store's time of the database's, both in seconds since the epoch; the same, but for tests.
        connections: How many to use at once.
        patience: How long the server is waited for.
        create: Whether missing tables are made; an operator's command would only make empty ones in a wrong database.
    """

    def __init__(
        self,
        dsn: str,
        clock: Callable[[float], float] = float,
        *,
        connections: int = CONNECTIONS,
        patience: Patience = PATIENCE,
        create: bool = True,
    ) -> None:
        self._clock = clock
        self._connections = Connections(dsn, connections, patience)
        self._create = create
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def open(self) -> None:
        """Create or check the tables; raises `StoreUnavailable` with the reason when that is impossible."""
        try:
            await self._do(self._prepare, seconds=MIGRATION_TIMEOUT)
            if self._create:
                # A database that cannot be written is found at start, not by a buyer.
                await self.check_writable()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish what is under way and let go of the connections."""
        self._closed = True
        while self._running:
            await asyncio.wait(self._running)
        await self._connections.close()

    async def read(self, key: str, proofs: Sequence[bytes] = ()) -> Snapshot:
        """Return all that the decision table needs, in one read."""
        return (await self._do(lambda db: self._look(db, key, proofs))).snapshot

    async def reserve(self, draft: Draft, request: Request, seen: Snapshot) -> Attempt | None:
        """Insert the draft and its proofs at `seen.next_n`, or return None: read and decide again."""
        if not draft.proofs:
            raise ValueError("an attempt without a proof could be paid for twice")

        async def reserve(db: Connection) -> Attempt | None:
            found = await self._look(db, draft.key, draft.proofs)
            if found.snapshot.next_n != seen.next_n or not isinstance(decide(found.snapshot, request), Reserve):
                return None
            row = draft.begun(seen.next_n, found.snapshot.now)
            try:
                if found.involved:
                    return await _transact(db, lambda db: _replace(db, found, row))
                return await _insert(db, row)
            except errors.UniqueViolation:
                return None

        return await self._do(reserve)

    async def move(self, claim: str, event: Event) -> Step:
        """Apply the event to the row with this claim, compare-and-set; a row that is gone gives a lost step."""

        async def move(db: Connection) -> Step:
            for _ in range(TRIES):
                now, row = await self._by_claim(db, claim)
                if row is None:
                    return LOST_AND_GONE
                if row.state is State.RELEASED:
                    step = await _transact(db, move_released)
                else:
                    step = await _write(db, row, event, row.after(event, now), now)
                if step is not None:
                    return step
            raise StoreUnavailable("the attempt was moved by others, again and again")

        async def move_released(db: Connection) -> Step | None:
            # Only a released row asks whether a newer one stands above it; its lock keeps a reservation from coming.
            await db.execute(_LOCK, ([claim],))
            now, row = await self._by_claim(db, claim)
            if row is None:
                return LOST_AND_GONE
            standing = (await self._look(db, row.key, ())).snapshot.standing
            return await _write(db, row, event, row.after(event, now, current=row == standing), now)

        return await self._do(move)

    async def find(self, claim: str) -> Attempt | None:
        """Return the row with this claim: how a write whose commit is unknown is looked up."""
        return (await self._do(lambda db: self._by_claim(db, claim)))[1]

    async def recent(self, state: State | None = None, limit: int = 100) -> list[Attempt]:
        """Return attempts, the ones that changed last first; `UNCERTAIN` includes settling ones past their lease."""

        async def recent(db: Connection) -> list[Attempt]:
            where = seen_as(state).format(now="%(now)s")
            query = f"{_SELECT} WHERE {where} ORDER BY updated_at DESC, key, n LIMIT %(limit)s"
            rows = await _fetch(db, query, {"now": await self._now(db), "limit": limit})
            return [from_row(row, proofs) for _, proofs, *row in rows]

        return await self._do(recent)

    async def under_way(self, attempt: Attempt) -> int:
        """Return what the payer's other purchases may still take of the same token, in base units."""

        async def under_way(db: Connection) -> int:
            named = {name: getattr(attempt, name) for name in ("payer", "network", "asset", "claim")}
            values = {**named, "now": await self._now(db), "created": attempt.created_at}
            [(amount,)] = await _fetch(db, _UNDER_WAY, values)
            return int(amount)

        return await self._do(under_way)

    async def audits(self, key: str) -> list[tuple[float, int, Audit]]:
        """Return (when, n, decision) of the key's audit rows, oldest first."""
        query = "SELECT at, n, who, what, evidence FROM audit WHERE key = %s ORDER BY at, id"
        rows = await self._do(lambda db: _fetch(db, query, (key,)))
        return [(at, n, Audit(*decision)) for at, n, *decision in rows]

    async def sales(self, after: int = 0, limit: int = 10_000) -> list[Sale]:
        """Return at most `limit` sales with a higher id than `after`, by rising id: the books, page by page."""
        query = f"{_SALES} WHERE id > %s ORDER BY id LIMIT %s"
        return [from_sale_row(row) for row in await self._do(lambda db: _fetch(db, query, (after, limit)))]

    async def sales_of(self, key: str) -> list[Sale]:
        """Return the sales of a key, by rising n; more than one only where a released attempt was paid after all."""
        query = f"{_SALES} WHERE key_sha256 = %s ORDER BY n"
        return [from_sale_row(row) for row in await self._do(lambda db: _fetch(db, query, (sha256_hex(key),)))]

    async def refund(self, sale: Sale, transaction: str, audit: Audit, key: str) -> bool:
        """Record, with its audit row, that a sale was paid back; False when a refund is recorded already."""

        async def refund(db: Connection) -> bool:
            now = await self._now(db)
            noted = (now, key, sale.n, audit.who, audit.what, audit.evidence)
            return await _count(db, _REFUND, (now, transaction, sale.id, *noted)) == 1

        return await self._do(refund)

    async def check_writable(self) -> None:
        """Write something that changes nothing; raises `StoreUnavailable` when nothing can be written."""

        async def write(db: Connection) -> None:
            await db.execute("UPDATE schema_version SET version = version")

        await self._do(write)

    async def purge(self, limit: int = 500) -> int:
        """Delete at most `limit` rows whose window is over, keeping their proofs, and lapsed reservations after 1 h."""

        async def purge(db: Connection) -> int:
            now = await self._now(db)
            ended = await _count(db, _PURGE_ENDED, (now, limit))
            return ended + await _count(db, _PURGE_LAPSED, (now - LAPSED_KEPT, limit - ended))

        return await self._do(purge)

    async def _do(self, work: Callable[[Connection], Awaitable[T]], seconds: float | None = None) -> T:
        """Return what the work returns; cancelling the caller does not cancel it.

        Raises:
            CommitUnknown: The line broke while a commit was under way.
            StoreUnavailable: Nothing of the operation was committed.
        """
        if self._closed:
            raise StoreUnavailable("the attempt store is closed")
        task = asyncio.create_task(self._work(work, seconds))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _work(self, work: Callable[[Connection], Awaitable[T]], seconds: float | None) -> T:
        for _ in range(TRIES):
            try:
                async with self._connections.one(seconds) as db:
                    return await work(db)
            except (errors.DeadlockDetected, errors.SerializationFailure):
                continue  # The server has undone it.
            except psycopg.Error as error:
                raise StoreUnavailable(f"the database refuses: {first_line(error)}") from error
        raise StoreUnavailable("others were faster, again and again")

    async def _now(self, db: Connection) -> float:
        [(now,)] = await _fetch(db, f"SELECT {_NOW}")
        return self._clock(now)

    async def _look(self, db: Connection, key: str, proofs: Sequence[bytes]) -> _Look:
        rows = await _fetch(db, _SNAPSHOT, (key, list(proofs)))
        now = self._clock(rows[0][0])
        kept = [Kept(*row[1:6]) for row in rows if row[1] is not None]
        attempts: dict[str, Attempt] = {}
        for row in rows:
            claim = row[4]
            # A proof of somebody else's attempt comes without its other proofs; only its state and lease are asked for.
            if row[6] is not None and claim not in attempts:
                attempts[claim] = from_row(row[6:], (each.proof for each in kept if each.claim == claim))
        lapsed = frozenset(claim for claim, attempt in attempts.items() if attempt.lapsed(now))
        recorded = {each.proof for each in kept if each.proof in proofs and each.claim not in lapsed}
        own = tuple(attempt for attempt in attempts.values() if attempt.key == key)
        snapshot = snapshot_of(now, own, (each for each in kept if each.key == key), recorded)
        involved = {attempt.claim: attempt.state for attempt in (*own, *(attempts[claim] for claim in lapsed))}
        return _Look(snapshot, involved, lapsed)

    async def _by_claim(self, db: Connection, claim: str) -> tuple[float, Attempt | None]:
        rows = await _fetch(db, f"{_SELECT} WHERE claim = %s", (claim,))
        if not rows:
            return 0.0, None
        now, proofs, *row = rows[0]
        return self._clock(now), from_row(row, proofs)

    async def _prepare(self, db: Connection) -> None:
        name = f"the database {db.info.dbname}"
        if db.info.parameter_status("server_encoding") != "UTF8":
            raise StoreUnavailable(f"{name} is not encoded in UTF8")
        version = await postgres_version(db)
        if version == 0 and not self._create:
            raise NotMade(f"{name} holds no attempt store")
        check(name, version, migrates=self._create)
        if self._create:
            await bring_up_postgres(db)


class _Look(NamedTuple):
    """What a read found, and what a reservation made on it rests on.

    `involved` holds the states of the key's own rows and of lapsed reservations, by claim; `lapsed` are to be deleted.
    """

    snapshot: Snapshot
    involved: dict[str, State]
    lapsed: frozenset[str]


async def _insert(db: Connection, row: Attempt) -> Attempt | None:
    """Insert a reservation and its proofs and return it; None when its key is taken."""
    return row if await _count(db, _RESERVE, (*to_row(row), list(row.proofs))) else None


async def _replace(db: Connection, found: _Look, row: Attempt) -> Attempt | None:
    """Insert a reservation above others; None when one that it rests on has changed meanwhile."""
    if dict(await _fetch(db, _LOCK, (list(found.involved),))) != found.involved:
        return None
    if found.lapsed:
        await db.execute(_ERASE_LAPSED, (list(found.lapsed),))
    return await _insert(db, row)


async def _write(db: Connection, row: Attempt, event: Event, step: Step, now: float) -> Step | None:
    """Write what an event made of a row, in one statement, and return it; None when the row has left its state."""
    if step.attempt is row:
        return step
    lazy = not isinstance(event, DURABLE)
    if step.attempt is None:
        written = await _count(db, _ERASE, (row.claim, row.state.value, lazy))
    else:
        audit, sale = step.audit or Audit("", "", ""), sale_of(event, step)
        noted = (now, audit.who, audit.what, audit.evidence, step.audit is not None)
        sold = (*(to_sale_row(sale) if sale else [None] * len(NEW_SALE)), sale is not None)
        given_back = list(set(row.proofs).difference(step.attempt.proofs))
        values = (*to_row(step.attempt, MOVED), row.claim, row.state.value, given_back, *noted, *sold, lazy)
        written = await _count(db, _MOVE, values)
    return step if written else None


async def _transact(db: Connection, work: Callable[[Connection], Awaitable[T | None]]) -> T | None:
    """Return what the work returns, once it is committed; None undoes what it wrote."""
    await db.execute("BEGIN")
    try:
        result = await work(db)
    except BaseException:
        with suppress(psycopg.Error):
            await db.execute("ROLLBACK")
        raise
    if result is None:
        await db.execute("ROLLBACK")
    else:
        await _commit(db, "COMMIT")
    return result


async def _fetch(db: Connection, query: str, values: Any = None) -> list[tuple[Any, ...]]:  # noqa: ANN401 -- SQL values.
    cursor = await db.execute(query.encode(), values)
    return await cursor.fetchall()


async def _count(db: Connection, query: str, values: Sequence[object]) -> int:
    """Return the first figure that a writing statement says; outside a transaction it commits by itself."""
    cursor = await _commit(db, query, values)
    [(count, *_)] = await cursor.fetchall()
    return int(count)


async def _commit(db: Connection, query: str, values: Sequence[object] | None = None) -> psycopg.AsyncCursor[Any]:
    """Run a statement that commits, unless it stands in a transaction; a broken line leaves a commit's fate unknown."""
    commits = query == "COMMIT" or db.info.transaction_status is TransactionStatus.IDLE
    try:
        return await db.execute(query.encode(), values)
    except psycopg.Error as error:
        if commits and db.closed:
            raise CommitUnknown(f"no answer to a commit: {first_line(error)}") from error
        raise
