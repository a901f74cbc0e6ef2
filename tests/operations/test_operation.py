from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

import ranking_evaluate
from ranking_evaluate.contract.answer import answer
from ranking_evaluate.core import canonical, intake, json_text
from ranking_evaluate.core.canonical import JsonValue
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import EXPLAINED_BYTES, MAXIMUM_VIOLATIONS, Operation
from ranking_evaluate.operations.ranking_evaluate import OPERATION

BODY = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'


def _refusal(value: Any) -> OperationError:
    with pytest.raises(OperationError) as refused:
        OPERATION.run(json.dumps(value).encode())
    return refused.value


@pytest.mark.parametrize("root", [[], None, 0, "x", True])
def test_a_root_that_is_no_object_is_refused_as_a_whole(root: Any) -> None:
    refused = _refusal(root)
    assert (refused.code, refused.pointer) == (ErrorCode.INVALID_INPUT, "")
    assert refused.violations == (("", "This must be an object."),)


def test_every_broken_place_is_named_by_its_pointer() -> None:
    refused = _refusal({"queries": [{"id": "", "retrieved": {}, "judgments": [{"grade": True, "a/b": 1}]}], "k": "1"})
    assert refused.code == ErrorCode.INVALID_INPUT
    assert [violation.pointer for violation in refused.violations] == [
        "/queries/0/id",
        "/queries/0/retrieved",
        "/queries/0/judgments/0/id",
        "/queries/0/judgments/0/grade",
        "/queries/0/judgments/0/a~1b",
        "/k",
    ]
    assert refused.pointer == refused.violations[0].pointer
    assert "6 places" in refused.detail


def test_at_most_20_broken_places_are_listed() -> None:
    refused = _refusal({"queries": [{"id": "q", "retrieved": [0] * 50, "judgments": []}]})
    assert len(refused.violations) == MAXIMUM_VIOLATIONS
    assert "50 places" in refused.detail


def test_of_a_large_input_each_array_is_left_at_its_first_broken_item() -> None:
    queries = [{"id": f"q{number}", "retrieved": [0] * 100, "judgments": [{}] * 100} for number in range(50)]
    refused = _refusal({"queries": queries, "k": 0})
    assert [violation.pointer for violation in refused.violations] == [
        "/queries/0/retrieved/0",
        "/queries/0/judgments/0/id",
        "/queries/0/judgments/0/grade",
        "/k",
    ]
    assert "at least 4 places" in refused.detail


@pytest.mark.parametrize(
    ("size", "places"), [(EXPLAINED_BYTES, "in 3 places"), (EXPLAINED_BYTES + 1, "in at least 1 place")]
)
def test_every_place_is_named_as_long_as_the_input_with_its_defaults_is_small(size: int, places: str) -> None:
    def broken(length: int) -> dict[str, Any]:
        return {"queries": [{"id": "q", "retrieved": [0, 0, "x" * length], "judgments": []}]}

    length = size - len(canonical.dump({**broken(0), **OPERATION.defaults}))
    assert places in _refusal(broken(length)).detail


def test_members_by_the_thousand_are_refused_with_one_sentence() -> None:
    refused = _refusal({"queries": [], **{f"x{number}": 0 for number in range(5_000)}})
    assert (refused.code, refused.pointer) == (ErrorCode.INVALID_INPUT, "")
    assert len(refused.violations) == 1


def test_a_schema_refusal_never_quotes_a_value() -> None:
    refused = _refusal({"queries": "SECRET", "k": "SECRET", "gain": "SECRET", "relevantAtLeast": 987_654})
    assert len(refused.violations) == 4
    for violation in refused.violations:
        assert "SECRET" not in violation.detail
        assert "987" not in violation.detail


def test_a_result_above_the_limit_is_refused() -> None:
    with pytest.raises(OperationError) as refused:
        replace(OPERATION, evaluate=lambda _: {"text": "x" * 400_000}).run(BODY)
    assert refused.value.code == ErrorCode.OUTPUT_LIMIT
    exact = replace(OPERATION, evaluate=lambda _: {"text": "x" * (400_000 - len('{"text":""}'))}).run(BODY)
    assert len(exact.result) == 400_000


def test_a_precheck_speaks_before_the_schema_but_only_about_an_object() -> None:
    def refuse(_: Mapping[str, JsonValue]) -> None:
        raise OperationError(ErrorCode.DUPLICATE_ID, "Checked first.")

    checked = replace(OPERATION, precheck=refuse)
    with pytest.raises(OperationError, match="Checked first"):
        checked.run(b"{}")
    with pytest.raises(OperationError, match="INVALID_INPUT"):
        checked.run(b"[]")


def test_the_answer_states_the_digests_that_it_returns() -> None:
    answered = answer(OPERATION, BODY)
    envelope = json.loads(answered.body)
    assert list(envelope) == ["operation", "version", "result", "provenance"]
    assert envelope["version"] == ranking_evaluate.__version__
    assert envelope["provenance"]["inputSha256"] == answered.input_sha256
    assert envelope["provenance"]["outputSha256"] == answered.output_sha256


def test_an_unknown_operation_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there are: ranking-evaluate"):
        ranking_evaluate.evaluate("rank", BODY)


def test_every_operation_is_found_by_its_id_and_answers_its_own_example() -> None:
    assert len({operation.id for operation in registry.OPERATIONS}) == len(registry.OPERATIONS)
    for operation in registry.OPERATIONS:
        assert registry.find(operation.id) is operation
        assert operation.run(json.dumps(operation.example_input).encode()).result


@pytest.mark.parametrize("given", [BODY, BODY.decode(), bytearray(BODY), memoryview(BODY), json.loads(BODY)])
def test_an_input_may_be_bytes_text_or_the_object_itself(given: Any) -> None:
    assert ranking_evaluate.evaluate("ranking-evaluate", given) == answer(OPERATION, BODY).body


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("{", ErrorCode.MALFORMED_JSON),
        ("\ud800", ErrorCode.MALFORMED_JSON),
        ({"queries": [{"id": "\ud800", "retrieved": [], "judgments": []}]}, ErrorCode.INVALID_UNICODE),
        ({"queries": [], "k": float("nan")}, ErrorCode.MALFORMED_JSON),
        ({"queries": [], "k": float("inf")}, ErrorCode.MALFORMED_JSON),
        ({}, ErrorCode.INVALID_INPUT),
        ({"__proto__": 1}, ErrorCode.UNSAFE_KEY),
    ],
)
def test_text_and_objects_pass_the_same_checks(given: Any, code: ErrorCode) -> None:
    with pytest.raises(OperationError) as refused:
        ranking_evaluate.evaluate("ranking-evaluate", given)
    assert refused.value.code == code


def test_an_object_that_holds_itself_or_is_nested_too_deeply_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["queries"] = endless
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for given in (endless, deep):
        with pytest.raises(OperationError) as refused:
            ranking_evaluate.evaluate("ranking-evaluate", given)
        assert refused.value.code == ErrorCode.COMPLEXITY_LIMIT


@pytest.mark.parametrize("given", [None, 7, [1], {1, 2}])
def test_anything_else_is_a_type_error_that_says_what_is_taken(given: Any) -> None:
    with pytest.raises(TypeError, match="an input is bytes or str of JSON, or a dict; this is"):
        ranking_evaluate.evaluate("ranking-evaluate", given)


def _described(schema: Any, definitions: Mapping[str, Any], level: int = 1) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield every schema within, with the depth of what it describes."""
    if "$ref" in schema:
        yield from _described(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions, level)
        return
    yield level, schema
    for inner in schema.get("anyOf", ()):
        yield from _described(inner, definitions, level)
    for inner in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else ())):
        yield from _described(inner, definitions, level + 1)


@pytest.mark.parametrize("operation", registry.OPERATIONS, ids=lambda operation: operation.id)
def test_no_schema_allows_for_depth_or_unsafe_names(operation: Operation[Any]) -> None:
    """`Operation.read` relies on it: what a schema accepts is not searched for either."""
    schema = operation.adapter.json_schema()
    for level, described in _described(schema, schema.get("$defs", {})):
        assert level <= json_text.DEPTH
        kinds = described.keys() & {"type", "const", "enum", "anyOf"}
        assert kinds, f"anything may stand in the place of {described}"
        if described.get("type") == "object":
            assert described["additionalProperties"] is False
            assert intake.UNSAFE_NAMES.isdisjoint(described["properties"])


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("[" * 21 + "]" * 21, "COMPLEXITY_LIMIT"),
        ('{"a":' * 600 + "1" + "}" * 600, "COMPLEXITY_LIMIT"),
        ('{"a":' * 600 + "1.0" + "}" * 600, "COMPLEXITY_LIMIT"),
        ('{"a":1,"a":' + "[" * 990 + "]" * 990 + "}", "COMPLEXITY_LIMIT"),
        ('{"prototype":1}', "UNSAFE_KEY"),
        ('[[{"a":{"__proto__":[]}}]]', "UNSAFE_KEY"),
        ('{"constr\\u0075ctor":1}', "UNSAFE_KEY"),
    ],
)
def test_depth_and_unsafe_names_are_told_rather_than_the_broken_schema(fault: str, code: str) -> None:
    for operation in registry.OPERATIONS:
        for body in (fault, f'{{"queries":{fault}}}', f'{BODY[:-1].decode()},"k":{fault}}}'):
            with pytest.raises(OperationError) as refused:
                operation.run(body.encode())
            assert refused.value.code == code
