"""How time grows with the queries of each operation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.jobs import Job, ranking_job
from bench.timing import Timed, side_by_side
from ranking_evaluate import evaluate

SIZES = (1, 2, 5, 10, 20, 50)

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


def lexical_body() -> bytes:
    """Return a lexical-retrieval input that is large in every way, and is sold."""
    return json.dumps(_lexical_retrieval(50), separators=(",", ":")).encode()


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
