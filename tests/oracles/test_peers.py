"""The figures are those of pytrec-eval-terrier and ranx to the last bit, given the same order."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval

from ranking_evaluate import evaluate

QUERIES = 5000
PER_REQUEST = 50
CUTOFFS = (1, 3, 5, 10, 100)

Grades = dict[str, dict[str, int]]
Scores = dict[str, dict[str, float]]


def _queries(seed: int, count: int) -> list[dict[str, Any]]:
    """Return queries with up to 30 retrieved documents and 20 judgments, most of them on retrieved documents."""
    chance = random.Random(seed)
    pool = [f"d{number}" for number in range(40)]
    queries = []
    for number in range(count):
        retrieved = chance.sample(pool, chance.randint(0, 30))
        judged = chance.sample(pool, chance.randint(1, 20))
        judgments = [{"id": one, "grade": chance.choice((0, 0, 1, 2, 3, 4))} for one in judged]
        queries.append({"id": f"q{number:04}", "retrieved": retrieved, "judgments": judgments})
    return queries


def _ours(queries: list[dict[str, Any]], k: int, **conventions: object) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for start in range(0, len(queries), PER_REQUEST):
        request = {"queries": queries[start : start + PER_REQUEST], "k": k, "unjudged": "nonrelevant", **conventions}
        result = json.loads(evaluate("ranking-evaluate", json.dumps(request).encode()))["result"]
        rows |= {row["id"]: row for row in result["queries"]}
    return rows


def _judgments(queries: list[dict[str, Any]]) -> Grades:
    return {query["id"]: {one["id"]: one["grade"] for one in query["judgments"]} for query in queries}


def _run(queries: list[dict[str, Any]], k: int) -> Scores:
    """Return the rankings cut at k, as scores that fall by rank, because peers order by score."""
    return {
        query["id"]: {document: 1000.0 - rank for rank, document in enumerate(query["retrieved"][:k], 1)}
        for query in queries
    }


@pytest.mark.parametrize(("batch", "k"), list(enumerate(CUTOFFS)))
def test_linear_figures_equal_pytrec_eval_bit_for_bit(batch: int, k: int) -> None:
    queries = _queries(batch, QUERIES // len(CUTOFFS))
    least = 1 + batch % 3
    names = {
        "precisionAtK": f"P_{k}",
        "recallAtK": f"recall_{k}",
        "reciprocalRankAtK": "recip_rank",
        "averagePrecisionAtK": f"map_cut_{k}",
        "ndcgAtK": f"ndcg_cut_{k}",
    }
    measures = {f"P.{k}", f"recall.{k}", "recip_rank", f"map_cut.{k}", f"ndcg_cut.{k}"}
    theirs = pytrec_eval.RelevanceEvaluator(_judgments(queries), measures, relevance_level=least).evaluate(
        _run(queries, k)
    )
    compared = 0
    for query_id, row in _ours(queries, k, relevantAtLeast=least).items():
        # pytrec_eval says nothing about a query without results, and 0 where a denominator is 0.
        for ours, name in names.items() if query_id in theirs and row["retrievedAtKCount"] else ():
            assert (row[ours] or 0) == theirs[query_id][name], (query_id, ours)
            compared += 1
    assert compared > 4 * len(queries)


def test_exponential_ndcg_equals_ranx_bit_for_bit() -> None:
    # Uncompiled, ranx sums with numpy, which adds fewer than eight numbers from left to right, as we do.
    k = 7
    queries = [query for query in _queries(99, QUERIES) if query["retrieved"]]
    asked = json.dumps([_judgments(queries), _run(queries, k), f"ndcg_burges@{k}"])
    command = [sys.executable, "-m", "tests.oracles.uncompiled_ranx"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=120, cwd=root)
    ours = _ours(queries, k, gain="exponential")
    assert [row["ndcgAtK"] or 0 for row in ours.values()] == json.loads(done.stdout)
