"""The embedded store: look-ups in small and large files, and the three commits of a purchase alone."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from pathlib import Path

import apsw

from ranking_evaluate.attempts.attempt import Draft
from ranking_evaluate.attempts.decide import Request
from ranking_evaluate.attempts.events import RecordSettled, Submit
from ranking_evaluate.attempts.sqlite import SqliteStore

ATTEMPTS = (10, 1_000, 100_000, 1_000_000)


def lookups(counts: tuple[int, ...] = ATTEMPTS, *, looks: int = 400) -> dict[int, list[float]]:
    """Return the seconds of single look-ups of new keys and payments, by how many attempts the store holds."""
    return asyncio.run(_lookups(counts, looks))


async def _lookups(counts: tuple[int, ...], looks: int) -> dict[int, list[float]]:
    taken: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        stores: dict[int, SqliteStore] = {}
        for count in counts:
            path = Path(directory) / f"{count}.db"
            stores[count] = SqliteStore(path)
            await stores[count].open()
            await stores[count].close()
            _fill(path, count)
            stores[count] = SqliteStore(path)
            await stores[count].open()
            taken[count] = []
        for _ in range(looks):
            for count, store in stores.items():
                started = time.perf_counter()
                await store.read(secrets.token_hex(16), (secrets.token_bytes(32),))
                taken[count].append(time.perf_counter() - started)
        for store in stores.values():
            await store.close()
    return taken


RESERVE, SUBMIT, SETTLED = "RESERVE, lazy", "SUBMIT, durable", "SETTLED with its sale, durable"


def commits(purchases: int, parent: str | None = None) -> dict[str, list[float]]:
    """Return the seconds that each commit of a purchase takes, of one purchase after the other."""
    return asyncio.run(_commits(purchases, parent))


async def _commits(purchases: int, parent: str | None) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {RESERVE: [], SUBMIT: [], SETTLED: []}
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        store = SqliteStore(Path(directory) / "attempts.db")
        await store.open()
        for _ in range(purchases):
            draft = _draft()
            request = Request(draft.key, draft.fingerprint, draft.release, draft.credential_digest, draft.proofs)
            seen = await store.read(draft.key, draft.proofs)
            times = [time.perf_counter()]
            await store.reserve(draft, request, seen)
            times.append(time.perf_counter())
            await store.move(draft.claim, Submit(100.0))
            times.append(time.perf_counter())
            await store.move(draft.claim, RecordSettled("r" * 300, "0x" + "ab" * 32, draft.payer))
            times.append(time.perf_counter())
            for name, began, ended in zip(taken, times, times[1:], strict=False):
                taken[name].append(ended - began)
        await store.close()
    return taken


def _draft() -> Draft:
    digest = "ab" * 32
    return Draft(
        key=secrets.token_hex(16),
        claim=secrets.token_hex(16),
        lease_seconds=30.0,
        protocol="x402",
        operation="ranking-evaluate",
        release="0",
        fingerprint=digest,
        credential_digest=digest,
        proofs=(secrets.token_bytes(32),),
        output_sha256=digest,
        amount=10_000,
        asset="0x" + "0" * 40,
        network="eip155:84532",
        payer="0x" + "1" * 40,
        payment_id=f"0x{secrets.token_hex(32)}",
        valid_before=None,
    )


def _fill(path: Path, count: int) -> None:
    """Insert settled attempts in one transaction, as the service would have left them."""
    digest, now = "ab" * 32, time.time()
    db = apsw.Connection(str(path))
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    attempts, proofs = [], []
    for number in range(count):
        key, claim = secrets.token_hex(16), secrets.token_hex(16)
        attempts.append((key, claim, digest, digest, digest, f"0x{number:064x}", "r" * 200, now, now, now + 86_400))
        proofs.append((secrets.token_bytes(32), key, claim))
    db.executemany(
        'INSERT INTO attempts ("key", n, claim, state, protocol, operation, "release", fingerprint, credential_digest,'
        " output_sha256, amount, asset, network, payment_id, receipt, created_at, updated_at, expires_at)"
        " VALUES (?, 1, ?, 'settled', 'x402', 'ranking-evaluate', '0', ?, ?, ?, 10000, '0x0', 'eip155:84532',"
        " ?, ?, ?, ?, ?)",
        attempts,
    )
    db.executemany('INSERT INTO proofs (proof, "key", n, claim) VALUES (?, ?, 1, ?)', proofs)
    db.execute("COMMIT")
    db.close()
