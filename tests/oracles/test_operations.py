from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ranking_evaluate import OperationError, evaluate

CASES = [json.loads(line) for line in Path(__file__).with_name("operations.jsonl").read_text("utf-8").splitlines()]

# These say which metrics there are, so a member that is not expected is wrong too.
CLOSED = {"metrics", "tieBounds", "aggregates", "reasons", "precision", "recall", "ndcg", "reciprocalRank"}


def _assert_holds(expected: Any, found: Any, name: str = "") -> None:
    """Assert the members that the expectation gives; scores within 1e-9, everything else exactly."""
    if isinstance(expected, dict):
        assert expected.keys() <= found.keys()
        assert name not in CLOSED or expected.keys() == found.keys()
        for member, value in expected.items():
            _assert_holds(value, found[member], member)
    elif isinstance(expected, list):
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            _assert_holds(one, other)
    elif name == "score":
        assert abs(expected - found) < 1e-9
    else:
        assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case['id']}: {case['why']}") for case in CASES])
def test_a_case_of_the_answer_key_holds(case: dict[str, Any]) -> None:
    expected = case["expect"]
    if "code" in expected:
        with pytest.raises(OperationError) as refused:
            evaluate(case["operation"], case["body"].encode())
        assert (refused.value.status, refused.value.code) == (expected["status"], expected["code"])
        return
    answered = json.loads(evaluate(case["operation"], case["body"].encode()))
    assert answered["operation"] == case["operation"]
    _assert_holds(expected["result"], answered["result"])
