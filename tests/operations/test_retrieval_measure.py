from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ranking_evaluate import evaluate
from ranking_evaluate.core import canonical
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.core.evidence import METRICS, Reason
from ranking_evaluate.operations.measurement import AGGREGATES
from ranking_evaluate.operations.retrieval_measure import OPERATION

SCHEMA = Draft202012Validator(OPERATION.adapter.json_schema())


def _example() -> Any:
    """Return the worked example: k 3, returned A X B, complete population A B C, X known not to be relevant."""
    return copy.deepcopy(OPERATION.example_input)


def _changed(**changes: Any) -> Any:
    request = _example()
    request["observations"][0].update(changes)
    return request


def _result(request: Any) -> Any:
    return json.loads(evaluate("retrieval-measure", json.dumps(request).encode()))["result"]


def _metrics(request: Any) -> dict[str, Any]:
    """Return the value of each available metric, and the reasons of the others."""
    metrics = _result(request)["observations"][0]["metrics"]
    return {name: one.get("value", one.get("reasons")) for name, one in metrics.items()}


def _refusal(request: Any) -> OperationError:
    with pytest.raises(OperationError) as refused:
        _result(request)
    return refused.value


def test_the_worked_example_has_its_figures() -> None:
    metrics = _metrics(_example())
    assert (metrics["precision"], metrics["recall"], metrics["reciprocalRank"]) == (2 / 3, 2 / 3, 1)


def test_members_of_the_result_stand_in_the_declared_order() -> None:
    result = _result(_changed(scores=[3, 2, 1], tiePolicy="by id"))
    assert list(result) == [
        "profile",
        "protocolSha256",
        "observationSetSha256",
        "observations",
        "aggregates",
        "conventions",
    ]
    row = result["observations"][0]
    assert list(row) == [
        "queryId",
        "metrics",
        "relevantPopulationCount",
        "returnedInWindowCount",
        "duplicateReturnedCount",
        "unlabeledCount",
        "missedRelevantIds",
        "ranking",
        "tiePolicy",
        "tieBounds",
    ]
    assert list(row["metrics"]) == list(row["tieBounds"]) == list(METRICS)
    assert list(row["ranking"][0]) == ["rank", "id", "gain", "labeled", "duplicate"]
    assert list(result["aggregates"]) == list(AGGREGATES.values())
    assert result["aggregates"]["recall"] == {"status": "available", "value": 2 / 3, "queryCount": 1}


def test_the_digests_are_those_of_the_two_inputs_in_canonical_form() -> None:
    request = _example()
    result = _result(request)
    assert result["protocolSha256"] == canonical.sha256(canonical.encode(request["protocol"]))
    assert result["observationSetSha256"] == canonical.sha256(canonical.encode(request["observations"]))


# Every reason, in an observation that lacks exactly that evidence; metrics that are not named stay available.
ALL = set(METRICS)


def _labels(**gains: int) -> list[dict[str, Any]]:
    return [{"id": unit, "gain": gain} for unit, gain in gains.items()]


@pytest.mark.parametrize(
    ("reason", "changes", "unavailable"),
    [
        ("PARTIAL_SCAN", {"scan": "partial"}, ALL),
        ("PERMISSION_VIOLATION", {"access": "violation"}, ALL),
        ("MISSING_REFERENCE_SET", {"labels": None, "populationComplete": False}, ALL),
        ("CORPUS_CHANGED", {"corpus": {"id": "handbook", "sha256": "0" * 64}}, ALL),
        ("CORPUS_CHANGED", {"corpus": {**_example()["protocol"]["corpus"], "id": "other"}}, ALL),
        ("REFERENCE_VERSION_MISMATCH", {"referenceVersion": "v2"}, ALL),
        ("PROTOCOL_MISMATCH", {"cutoff": "2026-01-01T00:00:00.000000001Z"}, ALL),
        ("PROTOCOL_MISMATCH", {"retrievalUnit": "passage"}, ALL),
        ("PROTOCOL_MISMATCH", {"k": 2}, ALL),
        # After the first relevant unit the reciprocal rank does not need the label; before it, it does.
        ("UNLABELED_RETURNED_UNIT", {"returned": ["A", "U", "B"]}, ALL - {"reciprocalRank"}),
        ("UNLABELED_RETURNED_UNIT", {"returned": ["U", "A", "B"]}, ALL),
        ("UNLABELED_RETURNED_UNIT", {"returned": ["X", "U"]}, ALL),
        ("UNLABELED_RETURNED_UNIT", {"returned": ["A", "B", "C", "U"]}, set()),
        ("INCOMPLETE_POPULATION", {"populationComplete": False}, {"recall", "ndcg"}),
        (
            "INCOMPLETE_POPULATION",
            {"populationComplete": False, "labels": _labels(A=0, X=0, B=0)},
            {"recall", "ndcg", "reciprocalRank"},
        ),
        ("NO_RELEVANT_POPULATION", {"labels": _labels(A=0, X=0, B=0)}, {"recall", "ndcg", "reciprocalRank"}),
        ("NO_RELEVANT_POPULATION", {"labels": [], "returned": []}, {"recall", "ndcg", "reciprocalRank"}),
    ],
)
def test_exactly_the_metrics_that_need_the_missing_evidence_are_unavailable(
    reason: str, changes: dict[str, Any], unavailable: set[str]
) -> None:
    metrics = _metrics(_changed(**changes))
    assert {name for name, found in metrics.items() if isinstance(found, list)} == unavailable
    assert all(metrics[name] == [reason] for name in unavailable)


def test_every_reason_of_the_input_has_such_a_test() -> None:
    marks = test_exactly_the_metrics_that_need_the_missing_evidence_are_unavailable.pytestmark
    # Only lexical-retrieval cuts ties.
    assert {row[0] for row in marks[0].args[1]} == set(Reason) - {Reason.TIES_CUT}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Recall 0 and reciprocal rank 0 are measured: the relevant unit is known and was not returned.
        ({"returned": ["X"]}, {"precision": 0, "recall": 0, "ndcg": 0, "reciprocalRank": 0}),
        ({"returned": []}, {"precision": 0, "recall": 0, "ndcg": 0, "reciprocalRank": 0}),
        ({"returned": ["X", "C"]}, {"precision": 1 / 3, "recall": 1 / 3, "reciprocalRank": 1 / 2}),
        # Reciprocal rank has no cutoff: below k = 3 it sees what the other metrics do not.
        ({"returned": ["X", "X", "X", "A"]}, {"precision": 0, "recall": 0, "ndcg": 0, "reciprocalRank": 1 / 4}),
    ],
)
def test_a_measured_zero_is_a_value(changes: dict[str, Any], expected: dict[str, float]) -> None:
    metrics = _metrics(_changed(**changes))
    assert {name: metrics[name] for name in expected} == expected


def test_a_repeat_shows_its_label_and_is_counted_within_the_window_alone() -> None:
    row = _result(_changed(returned=["A", "A", "U", "U", "A"], k=3))["observations"][0]
    assert row["ranking"][1] == {"rank": 2, "id": "A", "gain": 1, "labeled": True, "duplicate": True}
    assert (row["returnedInWindowCount"], row["duplicateReturnedCount"], row["unlabeledCount"]) == (3, 1, 1)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_unavailable_observation_makes_the_aggregate_unavailable(metric: str, position: int) -> None:
    request = _example()
    good = request["observations"][0]
    bad = {**good, "returned": ["U"], "populationComplete": False, "scan": "partial"}
    request["observations"] = [{**good, "queryId": f"q{index}"} for index in range(3)]
    request["observations"][position] = {**bad, "queryId": "bad"}
    label_reasons = {"UNLABELED_RETURNED_UNIT": 1} | (
        {"INCOMPLETE_POPULATION": 1} if metric in ("recall", "ndcg") else {}
    )
    aggregate = _result(request)["aggregates"][AGGREGATES[metric]]  # type: ignore[index]
    assert aggregate == {
        "status": "unavailable",
        "queryCount": 3,
        "missingCount": 1,
        "reasons": {"PARTIAL_SCAN": 1, **label_reasons},
    }
    assert list(aggregate["reasons"]) == ["PARTIAL_SCAN", *label_reasons]


def test_only_the_required_metrics_are_aggregated_and_every_one_is_measured() -> None:
    request = {**_example(), "required": ["reciprocalRank", "precision"]}
    result = _result(request)
    assert list(result["aggregates"]) == ["precision", "meanReciprocalRank"]
    assert set(result["observations"][0]["metrics"]) == ALL


def test_the_default_requires_all_four_and_is_part_of_the_digest() -> None:
    explicit = {**_example(), "required": list(METRICS)}
    body = json.dumps(_example()).encode()
    assert evaluate("retrieval-measure", body) == evaluate("retrieval-measure", json.dumps(explicit).encode())


def test_without_scores_there_are_no_tie_bounds_and_without_a_policy_none_is_shown() -> None:
    assert not {"tieBounds", "tiePolicy"} & _result(_example())["observations"][0].keys()
    row = _result(_changed(scores=[1, 1, 1]))["observations"][0]
    assert "tiePolicy" not in row
    assert row["tieBounds"]["reciprocalRank"] == {"min": 1 / 2, "max": 1}


def test_the_conventions_say_what_a_reader_could_get_wrong() -> None:
    text = " ".join(_result(_example())["conventions"])
    for words in (
        "Mean reciprocal rank is not the mean rank",
        "contributes 1/4",
        "An absent label is unknown",
        "no model-versus-hybrid report",
        "Ordered ids alone cannot show",
        "Do not claim exhaustive recall from partial labels",
        "Report model-only and hybrid-system results separately",
        "whether an answer used it faithfully",
    ):
        assert words in text


# What is refused.

Change = Callable[[Any], object]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda r: r["protocol"].update(method="vector"), "/protocol/method"),
        (lambda r: r["protocol"].update(k=0), "/protocol/k"),
        (lambda r: r["protocol"].update(k=101), "/protocol/k"),
        (lambda r: r["protocol"].update(cutoff="2026-02-30T00:00:00Z"), "/protocol/cutoff"),
        (lambda r: r["protocol"]["corpus"].update(sha256="A" * 64), "/protocol/corpus/sha256"),
        (lambda r: r["protocol"].update(referenceVersion=""), "/protocol/referenceVersion"),
        (lambda r: r.update(required=[]), "/required"),
        (lambda r: r.update(required=["map"]), "/required/0"),
        (lambda r: r.update(required=["recall", "ndcg", "recall"]), "/required/2"),
        (lambda r: r.update(observations=[]), "/observations"),
        (lambda r: r["observations"][0].update(queryId="x" * 81), "/observations/0/queryId"),
        (lambda r: r["observations"][0].update(returned=["x"] * 101), "/observations/0/returned"),
        (lambda r: r["observations"][0].pop("labels"), "/observations/0/labels"),
        (lambda r: r["observations"][0]["labels"][0].update(gain=5), "/observations/0/labels/0/gain"),
        (lambda r: r["observations"][0]["labels"][0].update(gain=1.5), "/observations/0/labels/0/gain"),
        (lambda r: r["observations"][0]["labels"][0].update(gain=True), "/observations/0/labels/0/gain"),
        (
            lambda r: r["observations"][0].update(labels=_labels(**{f"l{i}": 0 for i in range(501)})),
            "/observations/0/labels",
        ),
        (lambda r: r["observations"][0].update(populationComplete=1), "/observations/0/populationComplete"),
        (lambda r: r["observations"][0].update(labels=None), "/observations/0/populationComplete"),
        (lambda r: r["observations"][0].update(scan="full"), "/observations/0/scan"),
        (lambda r: r["observations"][0].update(access="denied"), "/observations/0/access"),
        (lambda r: r["observations"][0].update(scores=None), "/observations/0/scores"),
        (lambda r: r["observations"][0].update(tiePolicy="by id"), "/observations/0/tiePolicy"),
        (lambda r: r["observations"][0].update(scores=[1, 1, 1], tiePolicy="x" * 201), "/observations/0/tiePolicy"),
        (lambda r: r["observations"][0].update(extra=1), "/observations/0/extra"),
    ],
)
def test_the_published_schema_and_the_service_refuse_the_same(change: Change, pointer: str) -> None:
    request = _example()
    assert SCHEMA.is_valid(request)
    change(request)
    assert not SCHEMA.is_valid(request)
    refused = _refusal(request)
    assert (refused.code, refused.pointer) == (ErrorCode.INVALID_INPUT, pointer)


@pytest.mark.parametrize(
    ("scores", "pointer"),
    [
        ([2, 1], "/observations/0/scores"),
        ([3, 2, 1, 0], "/observations/0/scores"),
        ([2, 1, 1.5], "/observations/0/scores/2"),
    ],
)
def test_scores_too_few_too_many_or_rising_are_refused_beyond_the_schema(scores: list[float], pointer: str) -> None:
    refused = _refusal(_changed(scores=scores))
    assert (refused.code, refused.pointer) == (ErrorCode.INVALID_INPUT, pointer)


def test_every_contradiction_is_named() -> None:
    request = _changed(labels=None, tiePolicy="by id")
    request["required"] = ["recall", "recall"]
    pointers = [violation.pointer for violation in _refusal(request).violations]
    assert pointers == ["/required/1", "/observations/0/populationComplete", "/observations/0/tiePolicy"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"labels": _labels(A=1) + _labels(B=1) + _labels(A=1)}, "/observations/0/labels/2/id"),
        ({"returned": ["A", "X", "A"], "scores": [3, 2, 1]}, "/observations/0/returned/2"),
    ],
)
def test_a_repeated_id_is_refused_at_its_second_place(changes: dict[str, Any], pointer: str) -> None:
    refused = _refusal(_changed(**changes))
    assert (refused.code, refused.pointer) == (ErrorCode.DUPLICATE_ID, pointer)


def test_a_repeated_query_is_refused_after_every_contradiction() -> None:
    request = _example()
    request["observations"] *= 2
    refused = _refusal(request)
    assert (refused.code, refused.pointer) == (ErrorCode.DUPLICATE_ID, "/observations/1/queryId")
    request["observations"][1] = {**request["observations"][1], "tiePolicy": "by id"}
    assert _refusal(request).code == ErrorCode.INVALID_INPUT


# The same figures as ranking-evaluate, where both measure.

PAIRS = {
    "precision": "precisionAtK",
    "recall": "recallAtK",
    "ndcg": "ndcgAtK",
    "reciprocalRank": "reciprocalRankAtK",
}


def test_on_complete_evidence_it_is_bit_identical_to_ranking_evaluate() -> None:
    chance = random.Random(2026)
    for _ in range(200):
        k = chance.randrange(1, 101)
        observations, queries = [], []
        for query in range(5):
            units = [f"u{position}" for position in range(chance.randrange(1, 60))]
            gains = {unit: chance.choice([0, 0, 1, 2, 3, 4]) for unit in units}
            gains[units[0]] = chance.randrange(1, 5)
            returned = chance.sample(units, chance.randrange(len(units) + 1))
            base = _changed(k=k)["observations"][0]
            observations.append({**base, "queryId": f"q{query}", "returned": returned, "labels": _labels(**gains)})
            judgments = [{"id": unit, "grade": gain} for unit, gain in gains.items()]
            queries.append({"id": f"q{query}", "retrieved": returned, "judgments": judgments})
        protocol = {**_example()["protocol"], "k": k}
        strict = _result({"protocol": protocol, "observations": observations})
        body = json.dumps({"queries": queries, "k": k}).encode()
        graded = json.loads(evaluate("ranking-evaluate", body))["result"]
        # Reciprocal rank alone has no cutoff, and no list here is longer than 100.
        whole = json.loads(evaluate("ranking-evaluate", json.dumps({"queries": queries, "k": 100})))["result"]
        for row, at_k, uncut in zip(strict["observations"], graded["queries"], whole["queries"], strict=True):
            for name, other in PAIRS.items():
                expected = uncut if name == "reciprocalRank" else at_k
                # JSON writes the shortest digits that round-trip, so equal numbers are the same doubles.
                assert row["metrics"][name] == {"status": "available", "value": expected[other]}
            assert row["missedRelevantIds"] == at_k["missedRelevantIds"]
        for name, other in PAIRS.items():
            macro = (whole if name == "reciprocalRank" else graded)["macro"]
            assert strict["aggregates"][AGGREGATES[name]]["value"] == macro[other]  # type: ignore[index]
