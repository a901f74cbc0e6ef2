"""Preflight compares requirements with declared facts: unknown is never compatible, and each direction is its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract.document import facts
from ranking_evaluate.contract.requirements import NOTICE, compare, declaration
from ranking_evaluate.operations.registry import OPERATIONS

RANKING = OPERATIONS[0]


def status(fact: str, required: Any) -> object:
    compared: Any = compare(RANKING, {fact: required}, WIRES)
    assert compared["requirements"][fact]["required"] == required
    assert compared["overall"] == compared["requirements"][fact]["status"]
    assert compared["notice"] == NOTICE
    return compared["overall"]


@pytest.mark.parametrize(
    ("fact", "required", "expected"),
    [
        # At least what is required.
        ("limit.requestBytes", 99_999, "compatible"),
        ("limit.requestBytes", 100_000, "compatible"),
        ("limit.requestBytes", 100_001, "incompatible"),
        ("input.queries.maxItems", 50, "compatible"),
        ("input.queries.maxItems", 51, "incompatible"),
        ("input.k.maximum", 1, "compatible"),
        ("input.k.maximum", 100.5, "incompatible"),
        # At most what is required.
        ("input.queries.minItems", 1, "compatible"),
        ("input.queries.minItems", 2, "compatible"),
        ("input.queries.minItems", 0, "incompatible"),
        ("input.k.minimum", 5, "compatible"),
        ("input.k.minimum", 0, "incompatible"),
        # Equal.
        ("execution.deterministic", True, "compatible"),
        ("execution.deterministic", False, "incompatible"),
        ("execution.networkAccess", False, "compatible"),
        ("numbers.model", "ieee754-binary64", "compatible"),
        ("numbers.model", "decimal128", "incompatible"),
        ("operation.id", "ranking-evaluate", "compatible"),
        ("operation.id", "Ranking-Evaluate", "incompatible"),
        # Another type is another value.
        ("execution.deterministic", 1, "incompatible"),
        ("execution.networkAccess", 0, "incompatible"),
        ("execution.deterministic", "true", "incompatible"),
        ("limit.requestBytes", "1", "incompatible"),
        ("limit.requestBytes", True, "incompatible"),
        ("input.k.minimum", True, "incompatible"),
        ("limit.requestBytes", None, "incompatible"),
        ("numbers.model", None, "incompatible"),
        ("numbers.model", ["ieee754-binary64"], "incompatible"),
        # Not declared, whatever is required.
        ("execution.gpu", False, "unknown"),
        ("input.missing.maximum", 1, "unknown"),
        ("limit.unheardOf", 0, "unknown"),
        ("execution.gpu", None, "unknown"),
    ],
)
def test_a_requirement_is_compared_in_its_direction(fact: str, required: Any, expected: str) -> None:
    assert status(fact, required) == expected


NAMES = st.sampled_from(sorted(facts(RANKING, WIRES))) | st.text(min_size=1, max_size=20)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10)


@given(requirements=st.dictionaries(NAMES, VALUES, max_size=5))
def test_overall_is_compatible_only_when_every_requirement_is(requirements: dict[str, Any]) -> None:
    compared: Any = compare(RANKING, requirements, WIRES)
    statuses = [one["status"] for one in compared["requirements"].values()]
    assert (compared["overall"] == "compatible") is all(one == "compatible" for one in statuses)
    assert (compared["overall"] == "incompatible") is ("incompatible" in statuses)
    for fact, one in compared["requirements"].items():
        assert (one["status"] == "unknown") is (fact not in facts(RANKING, WIRES))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_what_is_declared_meets_itself(operation: Any) -> None:
    assert compare(operation, dict(facts(operation, WIRES)), WIRES)["overall"] == "compatible"


def test_the_declaration_names_every_operation() -> None:
    declared: Any = declaration(WIRES)
    assert [one["operation"] for one in declared["operations"]] == [operation.id for operation in OPERATIONS]
