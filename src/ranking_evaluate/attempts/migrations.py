"""Ordered steps from each schema to the next, for both stores.

A step is a file, `schema/STORE_VERSION.sql` or `schema/both_VERSION.sql`, and runs in one transaction with the store's
new version, so a process that dies within it leaves the version before it, and the next start begins the step again. An
empty store takes all steps at once. Keys and proofs are kept for ever, so a store outlives releases: a step that was
released never changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from ranking_evaluate.attempts.sales import sha256_hex
from ranking_evaluate.attempts.store import NotMade, StoreUnavailable

if TYPE_CHECKING:
    import psycopg

_SCHEMA: Final = resources.files(__package__) / "schema"

SCHEMA_VERSION: Final = max(int(file.name.removesuffix(".sql").rpartition("_")[2]) for file in _SCHEMA.iterdir())
"""What this release reads and writes: the version after its last step."""

APPLICATION_ID: Final = 0x52414E4B
"""Marks a SQLite file as ours ("RANK"), so that another program's database is left alone."""

ADVISORY_LOCK: Final = 0x52414E4B
"""Held by the one PostgreSQL replica that takes a step; it has nothing to do with purchases."""


def steps(store: str, version: int) -> Iterator[tuple[int, str]]:
    """Yield (version afterwards, SQL) of each step that a store of this version needs."""
    for step in range(version + 1, SCHEMA_VERSION + 1):
        own, shared = _SCHEMA / f"{store}_{step}.sql", _SCHEMA / f"both_{step}.sql"
        yield step, (own if own.is_file() else shared).read_text(encoding="utf-8")


def check(name: str, version: int, *, migrates: bool) -> None:
    """Raise `StoreUnavailable`, in one line, when this release can neither read the store nor bring it up."""
    if version > SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{name} has schema version {version}, this release reads {SCHEMA_VERSION}: run the release that wrote it"
        )
    if version < SCHEMA_VERSION and not migrates:
        raise NotMade(
            f"{name} has schema version {version}, this release reads {SCHEMA_VERSION}: start its service first"
        )


def bring_up_sqlite(db: apsw.Connection, path: Path) -> None:
    """Take an SQLite file to `SCHEMA_VERSION`; one that holds purchases is copied to a file beside it first.

    Several processes may do so at once: the write lock lets one of them take a step, the others find it taken.
    """
    db.create_scalar_function("sha256_hex", lambda *text: sha256_hex(str(text[0])), 1, deterministic=True)
    while (version := sqlite_version(db)) < SCHEMA_VERSION:
        db.execute("BEGIN IMMEDIATE")
        try:
            if sqlite_version(db) == version:
                if version > 0:
                    _keep(path, path.with_name(f"{path.name}.schema-{version}"))
                for step, sql in steps("sqlite", version):
                    db.execute(sql)
                    db.execute(f"PRAGMA user_version = {step}")
                    if version > 0:
                        break
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _keep(path: Path, target: Path) -> None:
    """Copy the file as it was committed, by another connection than the one that is about to change it."""
    reader = apsw.Connection(str(path))
    try:
        reader.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        back_up(reader, target)
    finally:
        reader.close()


def sqlite_version(db: apsw.Connection) -> int:
    """Return the schema version of an SQLite file, 0 when it has none."""
    return int(db.pragma("user_version"))


def back_up(db: apsw.Connection, target: Path) -> None:
    """Copy the database that a connection sees into one file without a log, whole or not at all; replaces the file."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    os.close(os.open(unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    copy = apsw.Connection(str(unfinished))
    try:
        with copy.backup("main", db, "main") as backup:
            while not backup.done:
                backup.step(1000)
        copy.pragma("journal_mode", "delete")
    finally:
        copy.close()
    unfinished.replace(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a file's name in this folder outlive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def bring_up_postgres(db: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
    """Take a PostgreSQL database to `SCHEMA_VERSION`: one replica takes the steps, others find them taken."""
    if await postgres_version(db) == SCHEMA_VERSION:
        return
    await db.execute("SELECT set_config('lock_timeout', '0', false), set_config('statement_timeout', '0', false)")
    await db.execute("SELECT pg_advisory_lock(%s)", (ADVISORY_LOCK,))
    while (version := await postgres_version(db)) < SCHEMA_VERSION:
        async with db.transaction():
            for step, sql in steps("postgres", version):
                await db.execute(sql.encode())
                await db.execute("UPDATE schema_version SET version = %s", (step,))
                if version > 0:
                    break
    # The lock and the patience end with the connection, which is not used again.
    await db.close()


async def postgres_version(db: psycopg.AsyncConnection[tuple[Any, ...]]) -> int:
    """Return the schema version of a PostgreSQL database, 0 when it has no tables of ours."""
    [(table,)] = await (await db.execute("SELECT to_regclass('schema_version')")).fetchall()
    if table is None:
        return 0
    [(version,)] = await (await db.execute("SELECT version FROM schema_version")).fetchall()
    return int(version)
