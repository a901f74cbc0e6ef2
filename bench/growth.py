"""How time grows: with the queries of each operation, and with the attempts that the store holds."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.jobs import Job, ranking_job
from bench.timing import Timed, side_by_side
from ranking_evaluate import evaluate
from ranking_evaluate.attempts.sqlite import SqliteStore

SIZES = (1, 2, 5, 10, 20, 50)
ATTEMPTS = (10, 1_000, 100_000, 1_000_000)

_WORDS = [f"word{number}" for number in range(400)]
_CORPUS = {"id": "handbook", "sha256": "3f" * 32}
_INSTANT = "2026-01-01T00:00:00Z"


def _ranking_evaluate(queries: int) -> dict[str, Any]:
    return ranking_job(queries, 100, 40, id_length=5).input


def _ranking_compare(queries: int) -> dict[str, Any]:
    made = []
    for query in ranking_job(queries, 50, 30, id_length=5).input["queries"]:
        retrieved = query["retrieved"]
        made.append(
            {
                "id": query["id"],
                "baseline": retrieved,
                "candidate": sorted(retrieved),
                "judgments": query["judgments"],
            }
        )
    return {"queries": made, "k": 50, "unjudged": "nonrelevant"}


def _retrieval_measure(observations: int) -> dict[str, Any]:
    same = {"corpus": _CORPUS, "cutoff": _INSTANT, "retrievalUnit": "document", "k": 50, "referenceVersion": "v1"}
    made = []
    for query in ranking_job(observations, 50, 40, id_length=5).input["queries"]:
        labels = [{"id": one["id"], "gain": one["grade"]} for one in query["judgments"]]
        made.append(
            {
                "queryId": query["id"],
                **same,
                "returned": query["retrieved"],
                "labels": labels,
                "populationComplete": True,
                "scan": "complete",
                "access": "permitted",
            }
        )
    return {"protocol": {"method": "supplied", **same}, "observations": made}


def _lexical_retrieval(queries: int) -> dict[str, Any]:
    ids = [f"d{number}" for number in range(200)]
    texts = [" ".join(_WORDS[(number * 7 + place * place) % 400] for place in range(30)) for number in range(200)]
    return {
        "workflow": {
            "kind": "retrieval",
            "method": "lexical",
            "topK": 20,
            "cutoff": _INSTANT,
            "documentIds": ids,
            "referenceVersion": "v1",
        },
        "corpus": {
            "id": "helpdesk",
            "sha256": None,
            "documents": [
                {"id": one, "text": text, "publishedAt": "2025-06-01T00:00:00Z", "access": "granted"}
                for one, text in zip(ids, texts, strict=True)
            ],
        },
        "queries": [{"id": f"q{n}", "text": f"{_WORDS[n]} {_WORDS[n * 3 % 400]}"} for n in range(queries)],
        "reference": {
            "version": "v1",
            "populationComplete": True,
            "labels": [{"queryId": f"q{n}", "id": ids[n], "gain": 1} for n in range(queries)],
        },
    }


def _first_usable_rank(queries: int) -> dict[str, Any]:
    hits = [f"d{number}" for number in range(10)]
    return {"queries": [{"hits": hits, "usable": [hits[-1]]} for _ in range(queries)]}


INPUTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "ranking-evaluate": _ranking_evaluate,
    "ranking-compare": _ranking_compare,
    "retrieval-measure": _retrieval_measure,
    "lexical-retrieval": _lexical_retrieval,
    "first-usable-rank": _first_usable_rank,
}


def _sizes(operation_id: str) -> tuple[int, ...]:
    return (1, 2, 5, 10) if operation_id == "first-usable-rank" else SIZES


def by_queries(operation_id: str, *, rounds: int = 15, budget: float = 2.0) -> dict[int, Timed]:
    """Return the times of an operation's free path by the number of queries, all else equal."""
    jobs = {size: Job("", {}, json.dumps(INPUTS[operation_id](size)).encode()) for size in _sizes(operation_id)}
    candidates = {str(size): partial(evaluate, operation_id, job.body) for size, job in jobs.items()}
    timed = side_by_side(candidates, rounds=rounds, budget=budget)
    return {int(size): seconds for size, seconds in timed.items()}


def exponent(timed: dict[int, Timed]) -> float:
    """Return p of time ~ n**p over the upper half of the sizes; n log n shows as little more than 1."""
    sizes = sorted(timed)[len(timed) // 2 - 1 :]
    low, high = sizes[0], sizes[-1]
    return math.log(timed[high].ratio(timed[low])) / math.log(high / low)


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


def _fill(path: Path, count: int) -> None:
    """Insert settled attempts in one transaction, as the service would have left them."""
    digest, now = "ab" * 32, time.time()
    db = sqlite3.connect(path, isolation_level=None)
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
