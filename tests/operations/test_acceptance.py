from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from bench import growth, jobs
from ranking_evaluate.core import intake, json_text
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.acceptance import acceptance
from ranking_evaluate.operations.fields import STRICT
from ranking_evaluate.operations.operation import Operation, check

ODD: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 0.5, -1, 11, 1e300, 2**53 + 1, "", "x", "x" * 81, "error", [], {}, [0], [[]], [{}]),
    *({"id": "a"}, {"id": "a", "grade": True}, {"id": "a", "grade": 1, "x": 0}, {"id": "a", "gain": 1}),
]


def odd(data: st.DataObject) -> Any:
    return copy.deepcopy(data.draw(st.sampled_from(ODD)))


def valid_inputs(operation: Operation[Any]) -> list[Any]:
    size = 2 if operation.id == "first-usable-rank" else 3
    return [dict(operation.example_input), growth.INPUTS[operation.id](size)]


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    steps: Any = ()
    if isinstance(value, dict | list):
        steps = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for step, inner in steps for place in places(inner, (*path, step)))]


def changed(value: Any, data: st.DataObject) -> Any:
    """Return the value with a few places replaced, removed, or given something more."""
    value = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, step = (0, *data.draw(st.sampled_from(places(value))))
        container: Any = [value]
        for one in path:
            container = container[one]
        match data.draw(st.sampled_from(["replace", "remove", "add"])), container[step]:
            case "remove", _ if path:
                del container[step]
            case "add", dict() as members:
                members[data.draw(st.sampled_from(["x", "id", "grade", "k", "__proto__"]))] = odd(data)
            case "add", list() as items:
                items.insert(data.draw(st.integers(0, len(items))), odd(data))
            case _ if path:
                container[step] = odd(data)
            case _:
                value = odd(data)
    return value


@given(st.sampled_from(registry.OPERATIONS), st.data())
def test_what_is_accepted_the_schema_accepts(operation: Operation[Any], data: st.DataObject) -> None:
    value = changed(data.draw(st.sampled_from(valid_inputs(operation))), data)
    if operation.accepts(value):
        check(operation.adapter, value)


@given(st.data())
def test_what_the_schema_accepts_of_plain_tables_is_accepted(data: st.DataObject) -> None:
    operation = registry.find("ranking-evaluate")
    value = changed(data.draw(st.sampled_from(valid_inputs(operation))), data)
    try:
        check(operation.adapter, value)
    except OperationError:
        assert not operation.accepts(value)
    else:
        assert operation.accepts(value)


@pytest.mark.parametrize("operation", registry.OPERATIONS, ids=lambda operation: operation.id)
def test_valid_inputs_are_accepted_at_a_glance(operation: Operation[Any]) -> None:
    for value in valid_inputs(operation):
        assert operation.accepts(value)
    assert not operation.accepts([])


def test_the_largest_job_is_accepted_and_one_broken_judgment_at_its_end_is_seen() -> None:
    operation = registry.find("ranking-evaluate")
    value = json.loads(jobs.LARGE.body)
    assert operation.accepts(value)
    judgments = value["queries"][-1]["judgments"]
    for broken in (
        {"id": "a"},
        {"id": "a", "grade": 1, "x": 1},
        {"id": "a", "grade": True},
        {"grade": 1, "x": "a"},
        "ab",
    ):
        judgments[-1] = broken
        assert not operation.accepts(value)


@pytest.mark.parametrize("operation", registry.OPERATIONS, ids=lambda operation: operation.id)
def test_no_schema_allows_for_depth_or_for_names_of_the_callers_own(operation: Operation[Any]) -> None:
    """This is why neither depth nor unsafe names are looked for in what is accepted."""

    def depth(schema: Any) -> int:
        # A type that held itself would bring this to the limit of recursion.
        if "$ref" in schema:
            return depth(definitions[schema["$ref"].removeprefix("#/$defs/")])
        if "anyOf" in schema:
            return max(map(depth, schema["anyOf"]))
        if schema.get("type") == "array":
            return 1 + depth(schema["items"])
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert intake.UNSAFE_NAMES.isdisjoint(schema["properties"])
            return 1 + max(map(depth, schema["properties"].values()))
        assert {"type", "enum", "const"} & set(schema)
        return 0

    schema = operation.adapter.json_schema()
    definitions = schema.get("$defs", {})
    assert depth(schema) < json_text.DEPTH


@with_config(STRICT)
class Row(TypedDict):
    name: str
    size: int | None


@with_config(STRICT)
class Rows(TypedDict):
    rows: list[Row] | None


@pytest.mark.parametrize(
    ("value", "is_accepted"),
    [
        ({"rows": None}, True),
        ({"rows": []}, True),
        ({"rows": [{"name": "a", "size": None}, {"size": 1, "name": ""}]}, True),
        ({"rows": [{"name": "a", "size": None}, {"name": "a"}]}, False),
        ({"rows": [{"name": "a", "size": 1, "x": 1}, {"name": "a"}]}, False),
        ({"rows": [{"name": "a", "size": True}]}, False),
        ({"rows": ["name", ["size"], 1, None]}, False),
        ({"rows": {}}, False),
        ({}, False),
    ],
)
def test_rows_may_be_null_but_not_incomplete(value: Any, is_accepted: bool) -> None:
    assert acceptance(TypeAdapter(Rows).core_schema)(value) is is_accepted


@pytest.mark.parametrize("operation", registry.OPERATIONS, ids=lambda operation: operation.id)
def test_what_is_accepted_before_its_numbers_are_made_integers_is_accepted_after(operation: Operation[Any]) -> None:
    """Grades, thresholds and scores take the integer that a float stands for, and counts take no float."""
    for value in valid_inputs(operation):
        for path in places(value):
            before = copy.deepcopy(value)
            container: Any = before
            for step in path[:-1]:
                container = container[step]
            if path and type(container[path[-1]]) is int:
                container[path[-1]] = float(container[path[-1]])
                after = intake.read(json.dumps(before).encode())
                assert after == before
                assert not operation.accepts(before) or operation.accepts(after)
