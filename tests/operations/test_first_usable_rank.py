from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ranking_evaluate import OperationError, evaluate
from ranking_evaluate.operations.first_usable_rank import CASES, OPERATION, score

SCHEMA = Draft202012Validator(OPERATION.adapter.json_schema())
QUERY: dict[str, Any] = {"hits": ["A"], "usable": ["A"]}
LONG: dict[str, Any] = {"hits": ["A"] * 11, "usable": []}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            '{"queries":[{"hits":["X","D"],"usable":["D"]},{"hits":["A","B","C","E"],"usable":["E"]}]}',
            '{"ranks":[2,4],"numerator":3,"denominator":8}',
        ),
        (
            '{"queries":[{"hits":["D"],"usable":["D"]},{"hits":["X"],"usable":["E"]}]}',
            '{"ranks":[1,null],"numerator":1,"denominator":2}',
        ),
        ('{"queries":[{"hits":[]}]}', '{"error":"usable-labels"}'),
        ('{"queries":[]}', '{"ranks":[],"numerator":0,"denominator":0}'),
    ],
)
def test_the_answer_key_holds_to_the_letter(body: str, expected: str) -> None:
    assert json.dumps(score(json.loads(body)), separators=(",", ":")) == expected
    if "error" in expected:
        with pytest.raises(OperationError) as refused:
            evaluate(OPERATION.id, body.encode())
        assert (refused.value.code, refused.value.status) == ("usable-labels", 422)
    else:
        assert f'"result":{expected},'.encode() in evaluate(OPERATION.id, body.encode())


def test_the_declared_cases_are_the_answer_key() -> None:
    assert [case.id for case in CASES] == ["two-ranks", "one-miss", "missing-usable-channel", "no-queries"]
    for case in CASES:
        assert score(case.input) == case.expected


@pytest.mark.parametrize(
    ("value", "code", "pointer"),
    [
        ({}, "usable-labels", "/queries"),
        ({"queries": None}, "usable-labels", "/queries"),
        ({"queries": {}}, "usable-labels", "/queries"),
        ({"queries": [QUERY, None]}, "usable-labels", "/queries/1"),
        ({"queries": [[]]}, "usable-labels", "/queries/0"),
        ({"queries": [{"usable": []}]}, "usable-labels", "/queries/0"),
        ({"queries": [{"hits": {}, "usable": []}]}, "usable-labels", "/queries/0"),
        ({"queries": [{"hits": [], "usable": None}]}, "usable-labels", "/queries/0"),
        ({"queries": [LONG, {"hits": []}]}, "usable-labels", "/queries/1"),
        ({"queries": [*[QUERY] * 10, {"hits": ["A"]}]}, "usable-labels", "/queries/10"),
        ({"queries": [{"hits": [1], "usable": []}, {}]}, "usable-labels", "/queries/1"),
        ({"queries": [], "extra": 1} | {"queries": 7}, "usable-labels", "/queries"),
        ({"queries": [QUERY] * 11}, "score-bounds", "/queries"),
        ({"queries": [QUERY, LONG]}, "score-bounds", "/queries/1/hits"),
        ({"queries": [{"hits": [1], "usable": []}, LONG], "extra": 1}, "score-bounds", "/queries/1/hits"),
        ({"queries": [QUERY], "extra": 1}, "INVALID_INPUT", "/extra"),
        ({"queries": [{**QUERY, "extra": 1}]}, "INVALID_INPUT", "/queries/0/extra"),
        ({"queries": [{"hits": [1], "usable": []}]}, "INVALID_INPUT", "/queries/0/hits/0"),
        ({"queries": [{"hits": [""], "usable": []}]}, "INVALID_INPUT", "/queries/0/hits/0"),
        ({"queries": [{"hits": [], "usable": ["x" * 81]}]}, "INVALID_INPUT", "/queries/0/usable/0"),
        ([], "INVALID_INPUT", ""),
        (None, "INVALID_INPUT", ""),
        ("queries", "INVALID_INPUT", ""),
    ],
)
def test_errors_speak_in_their_order_over_the_whole_input(value: Any, code: str, pointer: str) -> None:
    assert score(value) == {"error": code}
    assert not SCHEMA.is_valid(value)
    with pytest.raises(OperationError) as refused:
        evaluate(OPERATION.id, json.dumps(value).encode())
    assert (refused.value.code, refused.value.status, refused.value.pointer) == (code, 422, pointer)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"queries":[{"hits":[]}],"queries":1}', "DUPLICATE_FIELD"),
        ('{"queries":[{"hits":[],"__proto__":1}]}', "UNSAFE_KEY"),
        ('{"queries":[{"hits":["\\ud800"]}]}', "INVALID_UNICODE"),
        ("{", "MALFORMED_JSON"),
    ],
)
def test_the_general_checks_come_before_the_named_ones(body: str, code: str) -> None:
    with pytest.raises(OperationError) as refused:
        evaluate(OPERATION.id, body.encode())
    assert refused.value.code == code


def _expected(queries: list[dict[str, list[str]]]) -> dict[str, Any]:
    """Return the result by integers over a common denominator, without any fraction type."""
    ranks: list[int | None] = []
    for query in queries:
        positions = [position for position, hit in enumerate(query["hits"]) if hit in query["usable"]]
        ranks.append(min(positions) + 1 if positions else None)
    if not queries:
        return {"ranks": [], "numerator": 0, "denominator": 0}
    common = math.lcm(*range(1, 11))
    numerator, denominator = sum(common // rank for rank in ranks if rank), common * len(queries)
    divisor = math.gcd(numerator, denominator)
    return {"ranks": ranks, "numerator": numerator // divisor, "denominator": denominator // divisor}


def test_10_000_random_inputs_equal_an_independent_computation() -> None:
    chance = random.Random(10_000)
    for _ in range(10_000):
        ids = "ABCDEFGHIJKLMNOP"[: chance.randrange(1, 17)]
        queries = [
            {
                "hits": chance.choices(ids, k=chance.randrange(11)),
                "usable": chance.choices(ids, k=chance.randrange(4)),
            }
            for _ in range(chance.randrange(11))
        ]
        assert score({"queries": queries}) == _expected(queries)  # type: ignore[dict-item]


def test_the_number_of_usable_ids_has_no_bound_of_its_own() -> None:
    assert score({"queries": [{"hits": ["A"], "usable": [f"u{i}" for i in range(5000)]}]})["numerator"] == 0


def test_the_tool_page_says_what_to_retain_and_works_the_exercise() -> None:
    notes = " ".join(OPERATION.notes)
    for words in (
        "Retain the result order, the usable labels and the score definition together",
        "does not measure answer correctness, document freshness or staff task completion",
        '{"ranks": [], "numerator": 0, "denominator": 0}',
    ):
        assert words in notes
