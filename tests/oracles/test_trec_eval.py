"""`measure` equals trec_eval 10 in every digit that it prints, and pytrec_eval bit for bit."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval

from ranking_evaluate import evaluate, measure
from tests.oracles.trec_eval import CUTOFFS, MEASURES, collection, printed, qrels_lines, run_lines

QRELS, RUN = collection()
PRINTED = printed()


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "qrels").write_text(qrels_lines(QRELS))
    (tmp_path / "run").write_text(run_lines(RUN))
    return str(tmp_path / "qrels"), str(tmp_path / "run")


@pytest.mark.parametrize("level", [1, 2])
def test_like_trec_eval_every_digit_is_trec_evals(files: tuple[str, str], level: int) -> None:
    result = measure(*files, k=CUTOFFS, relevant_at_least=level, like="trec_eval")
    compared = 0
    for topic in ("all", *result.queries):
        figures = result.means if topic == "all" else result.queries[topic]
        for k in CUTOFFS:
            for ours, theirs in MEASURES.items():
                expected = PRINTED[level, f"{theirs}_{k}", topic]
                assert f"{getattr(figures[k], ours):.4f}" == expected, (topic, k, ours)
                compared += 1
    assert compared == 61 * 3 * 6


@pytest.mark.parametrize("level", [1, 2])
def test_by_default_every_figure_that_is_defined_is_trec_evals_and_undefined_ones_are_0_there(
    files: tuple[str, str], level: int
) -> None:
    result = measure(*files, k=CUTOFFS, relevant_at_least=level)
    undefined = set()
    for topic, by_cutoff in result.queries.items():
        for k in CUTOFFS:
            for ours, theirs in MEASURES.items():
                found, expected = getattr(by_cutoff[k], ours), PRINTED[level, f"{theirs}_{k}", topic]
                if found is None:
                    undefined.add((topic, ours))
                assert f"{found or 0:.4f}" == expected, (topic, k, ours)
    nothing = {"t7", "t8"} if level == 2 else {"t7"}
    few = {topic for topic, of in QRELS.items() if max(of.values()) < level}
    assert nothing <= few
    assert undefined == {(topic, name) for topic in few for name in ("recall", "rr", "ap")} | {
        (topic, "ndcg") for topic, of in QRELS.items() if max(of.values()) <= 0
    }


@pytest.mark.parametrize("level", [1, 2])
def test_like_trec_eval_9_every_figure_of_every_topic_is_pytrec_evals_bit_for_bit(level: int) -> None:
    names = {f"{theirs}_{k}" for k in CUTOFFS for ours, theirs in MEASURES.items() if ours != "rr"}
    evaluator = pytrec_eval.RelevanceEvaluator(QRELS, names | {"recip_rank"}, relevance_level=level)
    theirs = evaluator.evaluate(RUN)
    result = measure(QRELS, RUN, k=CUTOFFS, relevant_at_least=level, like="trec_eval9")

    assert len(theirs) == 57
    for topic, expected in theirs.items():
        for k in CUTOFFS:
            found = result.queries[topic][k]
            for ours, name in MEASURES.items():
                if ours != "rr":
                    assert getattr(found, ours) == expected[f"{name}_{k}"], (topic, k, ours)
            # Theirs has no cutoff.
            assert found.rr in (0, expected["recip_rank"])
    # These scores tie in single precision alone.
    assert result.means[10].ap != measure(QRELS, RUN, k=10, like="trec_eval").means[10].ap


def test_a_response_of_the_service_for_the_same_input_has_the_same_figures() -> None:
    qrels = {topic: {name: max(grade, 0) for name, grade in of.items()} for topic, of in islice(QRELS.items(), 40)}
    qrels = {topic: dict(islice(of.items(), 50)) for topic, of in qrels.items()}
    result = measure(qrels, RUN, k=10)
    queries: list[Any] = [
        {
            "id": topic,
            "retrieved": sorted(RUN.get(topic, ()), key=lambda one, t=topic: (RUN[t][one], one), reverse=True)[:10],
            "judgments": [{"id": name, "grade": grade} for name, grade in of.items()],
        }
        for topic, of in qrels.items()
    ]
    answer = json.loads(evaluate("ranking-evaluate", {"queries": queries, "unjudged": "nonrelevant"}))["result"]
    names = {
        "precisionAtK": "p",
        "recallAtK": "recall",
        "reciprocalRankAtK": "rr",
        "averagePrecisionAtK": "ap",
        "ndcgAtK": "ndcg",
    }
    for wire, ours in names.items():
        assert answer["macro"][wire] == getattr(result.means[10], ours)
        assert answer["definedQueryCounts"][wire] == getattr(result.counts[10], ours)
        for query in answer["queries"]:
            assert query[wire] == getattr(result.queries[query["id"]][10], ours)
