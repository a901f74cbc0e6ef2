from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations import ranking_evaluate
from ranking_evaluate.operations.figures import METRICS
from ranking_evaluate.operations.ranking_compare import OPERATION

TESTS = ("signTest", "wilcoxonSignedRank", "randomization")


def _query(query_id: str, baseline: Any, candidate: Any, grades: dict[str, float]) -> dict[str, Any]:
    judgments = [{"id": document, "grade": grade} for document, grade in grades.items()]
    return {"id": query_id, "baseline": list(baseline), "candidate": list(candidate), "judgments": judgments}


def _ranked(query_id: str, baseline: int | None, candidate: int | None) -> dict[str, Any]:
    """Return a query whose one relevant document stands at these ranks of five, or at none."""

    def ranking(rank: int | None) -> list[str]:
        ids = [*"abcde"]
        return ids if rank is None else [*ids[: rank - 1], "r", *ids[rank - 1 : 4]]

    return _query(query_id, ranking(baseline), ranking(candidate), {"r": 1, **dict.fromkeys("abcde", 0)})


def _pairs(*ranks: tuple[int | None, int | None], metric: str = "reciprocalRankAtK", **rules: Any) -> dict[str, Any]:
    queries = [_ranked(f"q{number}", *pair) for number, pair in enumerate(ranks)]
    return _result(*queries, metric=metric, k=5, **rules)


def _result(*queries: dict[str, Any], **rules: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(OPERATION.run(json.dumps({"queries": queries, **rules}).encode()).result)
    return result


def _refusal(*queries: dict[str, Any], **rules: Any) -> OperationError:
    with pytest.raises(OperationError) as refused:
        _result(*queries, **rules)
    return refused.value


def _decision(result: dict[str, Any]) -> tuple[str, str | None]:
    return result["verdict"], result["decidedBy"]


def _p_values(result: dict[str, Any]) -> list[float]:
    return [result["tests"][name]["pValue"] for name in TESTS]


def test_every_side_scores_what_ranking_evaluate_scores() -> None:
    request: Any = OPERATION.example_input
    result = _result(*request["queries"], k=3)
    for side in ("baseline", "candidate"):
        alone = {
            "k": 3,
            "queries": [
                {"id": query["id"], "retrieved": query[side], "judgments": query["judgments"]}
                for query in request["queries"]
            ],
        }
        expected = json.loads(ranking_evaluate.OPERATION.run(json.dumps(alone).encode()).result)
        assert result[side] == expected["macro"]
        assert result["definedQueryCounts"] == expected["definedQueryCounts"]
        assert [query[side] for query in result["queries"]] == [query["ndcgAtK"] for query in expected["queries"]]


def test_six_wins_of_six_are_the_smallest_evidence_at_alpha_5_percent() -> None:
    # 2 of 64 sign patterns are as extreme.
    result = _pairs(*[(2, 1)] * 6)
    assert _p_values(result) == [2 / 64] * 3
    assert result["smallestAttainableP"] == 2 / 64
    assert _decision(result) == ("candidate-better", "randomization")
    assert result["tests"]["signTest"]["statistic"] == 6
    assert result["tests"]["wilcoxonSignedRank"]["statistic"] == 21
    assert result["tests"]["randomization"]["statistic"] == result["paired"]["meanDifference"] == 0.5


def test_six_losses_of_six_are_evidence_for_the_baseline() -> None:
    result = _pairs(*[(1, 2)] * 6)
    assert _decision(result) == ("baseline-better", "randomization")
    assert result["tests"]["wilcoxonSignedRank"]["statistic"] == 0
    assert result["paired"] == {
        "definedQueryCount": 6,
        "meanDifference": -0.5,
        "wins": 0,
        "losses": 6,
        "ties": 0,
    }


def test_five_queries_cannot_reach_alpha_5_percent_whatever_they_show() -> None:
    # 2 of 32 is 0.0625.
    result = _pairs(*[(2, 1)] * 5)
    assert result["smallestAttainableP"] == 0.0625
    assert _decision(result) == ("unresolvable", "randomization")


def test_a_p_value_equal_to_alpha_is_small_enough() -> None:
    assert _decision(_pairs(*[(2, 1)] * 5, alpha=0.0625)) == ("candidate-better", "randomization")


def test_ties_do_not_help_to_resolve() -> None:
    result = _pairs(*[(2, 1)] * 5, *[(1, 1)] * 20)
    assert (result["paired"]["ties"], result["smallestAttainableP"]) == (20, 0.0625)
    assert _decision(result) == ("unresolvable", "randomization")


def test_five_wins_and_a_loss_of_equal_size_show_no_difference() -> None:
    # Five or six of six on either side: 2 * (1 + 6) = 14 of 64 patterns.
    result = _pairs(*[(2, 1)] * 5, (1, 2))
    assert _p_values(result) == [14 / 64] * 3
    assert _decision(result) == ("no-difference-shown", "randomization")


def test_the_three_tests_see_different_things_in_the_same_pairs() -> None:
    # Four wins of 1/6 and a loss of 1. Signs: four or five of five on either side, 2 * (5 + 1) of 32 patterns. Ranks:
    # 2.5 four times and 5; W+ = 10 is reached by 10 (the four, or the 5 and two of them: 1 + 6), 12.5 (4) and 15 (1):
    # twice 12 of 32. Sums: the wins can take at most 4/6 of the 1, so every pattern is as far from 0 as
    # the observed -1/3.
    result = _pairs(*[(3, 2)] * 4, (1, None))
    assert _p_values(result) == [12 / 32, 24 / 32, 1]
    assert result["tests"]["wilcoxonSignedRank"]["statistic"] == 10


def test_without_a_defined_pair_nothing_is_tested() -> None:
    result = _result(_query("q", "a", "b", {"a": 0, "b": 0}))
    assert all(one == {"status": "unavailable", "reasons": ["NO_DEFINED_PAIRS"]} for one in result["tests"].values())
    assert result["smallestAttainableP"] is None
    assert result["paired"]["meanDifference"] is None
    assert _decision(result) == ("unresolvable", None)


def test_without_an_informative_pair_nothing_is_tested() -> None:
    result = _pairs((1, 1), (2, 2), (None, None))
    assert all(
        one == {"status": "unavailable", "reasons": ["NO_INFORMATIVE_PAIRS"]} for one in result["tests"].values()
    )
    assert (result["smallestAttainableP"], result["paired"]["meanDifference"]) == (1, 0)
    assert _decision(result) == ("unresolvable", None)


def test_with_17_informative_pairs_wilcoxon_decides() -> None:
    assert _decision(_pairs(*[(2, 1)] * 16)) == ("candidate-better", "randomization")
    result = _pairs(*[(2, 1)] * 17)
    assert result["tests"]["randomization"] == {
        "status": "unavailable",
        "reasons": ["TOO_MANY_INFORMATIVE_PAIRS"],
    }
    assert _decision(result) == ("candidate-better", "wilcoxonSignedRank")
    assert _decision(_pairs(*[(1, 2)] * 17)) == ("baseline-better", "wilcoxonSignedRank")
    assert _decision(_pairs(*[(1, 2), (2, 1)] * 9)) == ("no-difference-shown", "wilcoxonSignedRank")
    assert _decision(_pairs(*[(2, 1)] * 17, alpha=1e-9)) == ("unresolvable", "wilcoxonSignedRank")


def test_wilcoxon_may_decide_against_the_sign_of_the_mean() -> None:
    # 17 wins of 1/6 have the ranks 9; 4 losses of 1 the ranks 19.5: W+ = 153, W- = 78.
    result = _pairs(*[(3, 2)] * 17, *[(1, None)] * 4, alpha=0.2)
    assert result["paired"]["meanDifference"] < 0
    assert _decision(result) == ("candidate-better", "wilcoxonSignedRank")
    mirrored = _pairs(*[(2, 3)] * 17, *[(None, 1)] * 4, alpha=0.2)
    assert mirrored["paired"]["meanDifference"] > 0
    assert _decision(mirrored) == ("baseline-better", "wilcoxonSignedRank")


def test_undefined_pairs_are_left_out_and_counted() -> None:
    undefined = _query("u", "a", "b", {"a": 0, "b": 0})
    result = _result(_ranked("q", 2, 1), undefined, k=5)
    assert result["queries"][1] == {
        "id": "u",
        "baseline": None,
        "candidate": None,
        "difference": None,
        "baselineUnjudgedAtKCount": 0,
        "candidateUnjudgedAtKCount": 0,
    }
    assert (result["queryCount"], result["paired"]["definedQueryCount"]) == (2, 1)
    assert result["definedQueryCounts"] == {name: 2 if name == "precisionAtK" else 1 for name in METRICS}


def test_each_sides_unjudged_documents_are_counted() -> None:
    query = _query("q", ["x", "a", "y"], ["a", "z"], {"a": 1})
    row = _result(query, unjudged="nonrelevant", k=2)["queries"][0]
    assert (row["baselineUnjudgedAtKCount"], row["candidateUnjudgedAtKCount"]) == (1, 1)


def test_the_members_stand_in_the_specified_order() -> None:
    result = _pairs((2, 1))
    assert list(result) == [
        *("profile", "k", "metric", "queryCount", "queries", "baseline", "candidate", "paired", "tests"),
        *("smallestAttainableP", "definedQueryCounts", "alpha", "decidedBy", "verdict", "conventions"),
    ]
    assert list(result["tests"]) == list(TESTS)
    assert list(result["tests"]["signTest"]) == ["status", "pValue", "statistic", "informativeQueryCount"]


def test_defaults_are_filled_in() -> None:
    assert OPERATION.defaults == {
        "k": 10,
        "relevantAtLeast": 1,
        "gain": "linear",
        "unjudged": "error",
        "metric": "ndcgAtK",
        "alpha": 0.05,
    }


@pytest.mark.parametrize(
    ("queries", "pointer"),
    [
        ([_query("q", "", "", {}), _query("q", "", "", {})], "/queries/1/id"),
        ([_query("q", "aba", "a", {"a": 1, "b": 1})], "/queries/0/baseline/2"),
        ([_query("q", "a", "abb", {"a": 1, "b": 1})], "/queries/0/candidate/2"),
        (
            [{**_query("q", "a", "a", {}), "judgments": [{"id": "a", "grade": 1}, {"id": "a", "grade": 1}]}],
            "/queries/0/judgments/1/id",
        ),
    ],
)
def test_a_repeated_id_is_refused_at_its_second_place(queries: list[dict[str, Any]], pointer: str) -> None:
    refused = _refusal(*queries)
    assert (refused.code, refused.pointer) == (ErrorCode.DUPLICATE_ID, pointer)


@pytest.mark.parametrize(("baseline", "candidate", "side"), [("xa", "ax", "baseline"), ("ab", "ax", "candidate")])
def test_an_unjudged_document_within_k_of_either_side_is_refused(baseline: str, candidate: str, side: str) -> None:
    refused = _refusal(_query("q", baseline, candidate, {"a": 1, "b": 0}))
    assert refused.code == ErrorCode.UNJUDGED_DOCUMENT
    assert refused.pointer == f"/queries/0/{side}/{0 if side == 'baseline' else 1}"


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, "0.05", None, True])
def test_alpha_lies_between_0_and_1(alpha: Any) -> None:
    assert _refusal(_query("q", "", "", {}), alpha=alpha).pointer == "/alpha"


SIDES = st.lists(st.sampled_from("abcdé"), unique=True)
REQUESTS = st.fixed_dictionaries(
    {
        "queries": st.lists(
            st.builds(
                _query,
                st.text(min_size=1, max_size=4),
                SIDES,
                SIDES,
                st.dictionaries(st.sampled_from("abcdé"), st.sampled_from([0, 1, 2, 0.5, 10])),
            ),
            min_size=1,
            max_size=20,
            unique_by=lambda query: query["id"],
        ),
        "unjudged": st.just("nonrelevant"),
        "k": st.integers(1, 6),
        "metric": st.sampled_from(METRICS),
        "alpha": st.sampled_from([0.05, 0.2, 0.9]),
    },
    optional={"gain": st.sampled_from(["linear", "exponential"]), "relevantAtLeast": st.sampled_from([0.5, 1, 2])},
)

MIRRORED_VERDICT = {"candidate-better": "baseline-better", "baseline-better": "candidate-better"}


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


@given(REQUESTS)
def test_swapping_the_sides_mirrors_everything(request_: Any) -> None:
    swapped = [
        {**query, "baseline": query["candidate"], "candidate": query["baseline"]} for query in request_["queries"]
    ]
    one = json.loads(OPERATION.run(json.dumps(request_).encode()).result)
    other = json.loads(OPERATION.run(json.dumps({**request_, "queries": swapped}).encode()).result)
    expected = {
        **one,
        "queries": [
            {
                **row,
                "baseline": row["candidate"],
                "candidate": row["baseline"],
                "difference": _negative(row["difference"]),
                "baselineUnjudgedAtKCount": row["candidateUnjudgedAtKCount"],
                "candidateUnjudgedAtKCount": row["baselineUnjudgedAtKCount"],
            }
            for row in one["queries"]
        ],
        "baseline": one["candidate"],
        "candidate": one["baseline"],
        "paired": {
            **one["paired"],
            "meanDifference": _negative(one["paired"]["meanDifference"]),
            "wins": one["paired"]["losses"],
            "losses": one["paired"]["wins"],
        },
        "tests": {name: _mirrored(name, test) for name, test in one["tests"].items()},
        "verdict": MIRRORED_VERDICT.get(one["verdict"], one["verdict"]),
    }
    assert other == expected


def _mirrored(name: str, test: dict[str, Any]) -> dict[str, Any]:
    if test["status"] == "unavailable":
        return test
    count, statistic = test["informativeQueryCount"], test["statistic"]
    mirrored = {
        "signTest": count - statistic,
        "wilcoxonSignedRank": count * (count + 1) / 2 - statistic,
        "randomization": -statistic,
    }
    return {**test, "statistic": mirrored[name]}


@given(REQUESTS)
def test_figures_and_verdict_agree_with_each_other(request_: Any) -> None:
    result = json.loads(OPERATION.run(json.dumps(request_).encode()).result)
    paired = result["paired"]
    assert paired["wins"] + paired["losses"] + paired["ties"] == paired["definedQueryCount"]
    assert paired["definedQueryCount"] == result["definedQueryCounts"][request_["metric"]]
    if result["verdict"] == "candidate-better" and result["decidedBy"] == "randomization":
        assert paired["meanDifference"] > 0
    if result["decidedBy"] is not None:
        reached = result["tests"][result["decidedBy"]]["pValue"] <= request_["alpha"]
        assert reached == result["verdict"].endswith("-better")


def test_the_largest_job_stays_far_below_60_milliseconds() -> None:
    chance = random.Random(1)
    ids = [str(number) for number in range(100)]
    queries = [
        _query(
            f"q{number}",
            chance.sample(ids, 100),
            chance.sample(ids, 100),
            {document: chance.randint(0, 3) for document in chance.sample(ids, 11)},
        )
        for number in range(50)
    ]
    body = json.dumps({"queries": queries, "k": 100, "unjudged": "nonrelevant"}).encode()
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        OPERATION.run(body)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.06
