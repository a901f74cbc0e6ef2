from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.core import canonical
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations.ranking_evaluate import OPERATION
from tests.oracles.answer_keys import CONTRACT


def _query(query_id: str, retrieved: list[str], grades: dict[str, float]) -> dict[str, Any]:
    judgments = [{"id": document, "grade": grade} for document, grade in grades.items()]
    return {"id": query_id, "retrieved": retrieved, "judgments": judgments}


def _result(*queries: dict[str, Any], **conventions: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(OPERATION.run(json.dumps({"queries": queries, **conventions}).encode()).result)
    return result


def _refusal(*queries: dict[str, Any], **conventions: Any) -> OperationError:
    with pytest.raises(OperationError) as refused:
        _result(*queries, **conventions)
    return refused.value


def test_every_promised_limit_and_code_is_the_contracts() -> None:
    assert dict(OPERATION.limits) == CONTRACT["limits"]
    assert list(OPERATION.error_codes) == CONTRACT["errorCodes"]
    assert OPERATION.example_input == CONTRACT["exampleInput"]


def test_the_defaults_are_the_contracts() -> None:
    properties = CONTRACT["inputSchema"]["properties"]
    assert OPERATION.defaults == {name: one["default"] for name, one in properties.items() if "default" in one}


def test_members_of_the_result_stand_in_the_contracts_order() -> None:
    result = _result(*CONTRACT["exampleInput"]["queries"], k=3)
    expected = CONTRACT["exampleResponse"]["result"]
    assert json.dumps(result) == json.dumps(expected)


@pytest.mark.parametrize(
    ("queries", "pointer"),
    [
        ([_query("q", [], {}), _query("r", [], {}), _query("q", [], {})], "/queries/2/id"),
        ([_query("q", ["a", "b", "a"], {"a": 1, "b": 1})], "/queries/0/retrieved/2"),
        (
            [{"id": "q", "retrieved": [], "judgments": [{"id": one, "grade": 1} for one in "abcb"]}],
            "/queries/0/judgments/3/id",
        ),
    ],
)
def test_a_repeated_id_is_refused_at_its_second_place(queries: list[dict[str, Any]], pointer: str) -> None:
    refused = _refusal(*queries)
    assert (refused.code, refused.pointer) == (ErrorCode.DUPLICATE_ID, pointer)


def test_a_repeat_beyond_k_is_refused_all_the_same() -> None:
    assert _refusal(_query("q", ["a", "b", "b"], {"a": 1}), k=1).pointer == "/queries/0/retrieved/2"


def test_a_duplicate_in_the_last_query_comes_before_an_unjudged_document_in_the_first() -> None:
    refused = _refusal(_query("q", ["x"], {}), _query("r", ["a", "a"], {"a": 1}))
    assert (refused.code, refused.pointer) == (ErrorCode.DUPLICATE_ID, "/queries/1/retrieved/1")


def test_an_unjudged_document_is_refused_at_its_place_within_k() -> None:
    refused = _refusal(_query("q", ["a", "b", "c", "x"], {"a": 1, "b": 0, "c": 2}))
    assert (refused.code, refused.pointer) == (ErrorCode.UNJUDGED_DOCUMENT, "/queries/0/retrieved/3")


def test_an_unjudged_document_beyond_k_is_not_inspected() -> None:
    assert _result(_query("q", ["a", "x"], {"a": 1}), k=1)["queries"][0]["unjudgedAtKCount"] == 0


def test_an_unjudged_document_counted_as_nonrelevant_is_shown_without_a_grade() -> None:
    query = _result(_query("q", ["x", "a"], {"a": 1}), unjudged="nonrelevant")["queries"][0]
    assert query["unjudgedAtKCount"] == 1
    assert query["ranking"][0] == {"rank": 1, "id": "x", "grade": None, "relevant": False, "judged": False}


def test_a_grade_below_the_threshold_is_not_relevant_but_still_gains() -> None:
    query = _result(_query("q", ["a"], {"a": 1}), relevantAtLeast=2)["queries"][0]
    assert (query["hitsAtK"], query["recallAtK"], query["dcgAtK"], query["ndcgAtK"]) == (0, None, 1, 1)


def test_missed_relevant_ids_are_listed_in_judgment_order() -> None:
    query = _result(_query("q", ["c"], {"d": 1, "c": 1, "z": 0, "b": 3}))["queries"][0]
    assert query["missedRelevantIds"] == ["d", "b"]


def test_without_judgments_only_precision_is_defined() -> None:
    result = _result(_query("q", [], {}))
    assert list(result["macro"].values()) == [0, None, None, None, None]
    assert list(result["definedQueryCounts"].values()) == [1, 0, 0, 0, 0]


def test_the_conventions_name_the_gain() -> None:
    assert "exponential gain" in _result(_query("q", [], {}), gain="exponential")["conventions"][1]


def test_grades_and_figures_are_written_as_ecmascript_writes_them() -> None:
    body = (
        b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":0.0000010}]}],"relevantAtLeast":1e-6}'
    )
    result = OPERATION.run(body).result
    assert b'"grade":0.000001,' in result
    assert b'"dcgAtK":0.000001,' in result
    assert b'"recallAtK":1,' in result


MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "queries": st.lists(
        st.builds(
            _query,
            st.text(min_size=1, max_size=4),
            st.lists(st.sampled_from("abcdé"), unique=True),
            st.dictionaries(st.sampled_from("abcdé"), st.sampled_from([0, 1, 2, 0.5, 1e-6, 10])),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda query: query["id"],
    ),
    "unjudged": st.just("nonrelevant"),
}
CONVENTIONS: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(1, 100),
    "relevantAtLeast": st.sampled_from([1, 0.5, 3]),
}
REQUESTS = st.fixed_dictionaries(MEMBERS, optional=CONVENTIONS)


def _respelled(value: Any, chance: random.Random) -> str:
    """Return the value as other JSON text: members in another order, numbers and characters spelled otherwise."""
    space = chance.choice(("", " ", "\n"))
    if isinstance(value, dict):
        members = list(value.items())
        chance.shuffle(members)
        return "{" + ",".join(f"{space}{json.dumps(name)}:{_respelled(one, chance)}" for name, one in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(space + _respelled(one, chance) for one in value) + space + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=chance.random() < 0.5)
    return chance.choice((repr(value), f"{value}e0" if "e" not in repr(value) else repr(value), f"{value:.17e}"))


@given(REQUESTS, st.randoms(use_true_random=False))
def test_white_space_member_order_and_number_spelling_change_nothing(request_: Any, chance: random.Random) -> None:
    once = OPERATION.run(json.dumps(request_, ensure_ascii=False).encode())
    again = OPERATION.run(_respelled(request_, chance).encode())
    assert again == once
    # A member that is sent with its default is the same input as one that is left out.
    assert OPERATION.run(json.dumps({**OPERATION.defaults, **request_}).encode()) == once
    assert once.input_sha256 == canonical.sha256(canonical.encode({**OPERATION.defaults, **request_}))


@given(REQUESTS)
def test_every_figure_keeps_its_bounds_and_its_evidence(request_: Any) -> None:
    result = json.loads(OPERATION.run(json.dumps(request_).encode()).result)
    for row in result["queries"]:
        assert len(row["missedRelevantIds"]) == row["relevantJudgmentCount"] - row["hitsAtK"]
        assert sum(one["relevant"] for one in row["ranking"]) == row["hitsAtK"]
        assert 0 <= row["precisionAtK"] <= 1
        for name in ("recallAtK", "reciprocalRankAtK", "averagePrecisionAtK"):
            assert (row[name] is None) == (row["relevantJudgmentCount"] == 0)
            assert 0 <= (row[name] or 0) <= 1


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.one_of(st.none(), st.integers(0, 10), st.floats(0, 10, allow_subnormal=True)),
        max_size=20,
    ),
    st.integers(1, 30),
)
def test_rows_are_the_json_of_their_members(grade_by_id: dict[str, float | None], k: int) -> None:
    judged = {document: grade for document, grade in grade_by_id.items() if grade is not None}
    body = json.dumps({"queries": [_query("q", list(grade_by_id), judged)], "k": k, "unjudged": "nonrelevant"}).encode()
    written = OPERATION.run(body).result
    expected = [
        {
            "rank": rank,
            "id": document,
            "grade": grade if grade is None else canonical.number(grade),
            "relevant": grade is not None and grade >= 1,
            "judged": grade is not None,
        }
        for rank, (document, grade) in enumerate(list(grade_by_id.items())[:k], 1)
    ]
    assert b'"ranking":' + canonical.dump(expected) + b"}" in written
