"""The service contracts: equal to the literal one, alike among each other, and their schemas are the enforced ones."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranking_evaluate import OperationError
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract import document
from ranking_evaluate.contract.document import facts, price_usd, service_document, workflow
from ranking_evaluate.contract.schema import input_schema, outline, result_schema
from ranking_evaluate.core import canonical
from ranking_evaluate.core.errors import ErrorCode
from ranking_evaluate.operations.operation import Operation, check
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import RELEASED_AT, VERSION
from tests.contract.schemas import Broken, broken, check_schema, is_valid, valid, validate
from tests.fakes import ScriptedProtocol

CONTRACT = json.loads(
    (Path(__file__).parent.parent / "oracles" / "ranking-evaluate.contract.json").read_text(encoding="utf-8")
)
OWN = service_document(OPERATIONS[0], WIRES)

INPUTS = {operation.id: valid(input_schema(operation)) for operation in OPERATIONS}
"""Valid inputs of each operation, made once: hypothesis takes long to read the patterns of a schema."""

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)


# The literal contract.


@pytest.mark.parametrize("member", [name for name in CONTRACT if name != "releaseSnapshot"])
def test_a_member_is_the_contract_s_in_its_order(member: str) -> None:
    assert json.dumps(OWN[member]) == json.dumps(CONTRACT[member])


def test_the_release_snapshot_differs_in_the_registry_digest_and_the_time_alone() -> None:
    own, theirs = OWN["releaseSnapshot"], CONTRACT["releaseSnapshot"]
    assert list(own) == list(theirs)
    assert {name for name in own if own[name] != theirs[name]} <= {"sourceRegistrySha256", "generatedAt"}
    assert own["generatedAt"] == RELEASED_AT


def test_no_member_is_missing_or_new() -> None:
    assert list(OWN) == list(CONTRACT)


def test_the_registry_digest_is_that_of_the_documents_without_their_snapshots() -> None:
    contracts: list[Any] = [
        {name: value for name, value in service_document(operation, WIRES).items() if name != "releaseSnapshot"}
        for operation in OPERATIONS
    ]
    assert OWN["releaseSnapshot"]["sourceRegistrySha256"] == canonical.sha256(canonical.encode(contracts))


def test_it_is_the_same_in_another_process() -> None:
    script = (
        "from ranking_evaluate.bootstrap import WIRES; "
        "from ranking_evaluate.contract.document import registry_digest; print(registry_digest(WIRES))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == document.registry_digest(WIRES)


# All contracts alike.


def shape(value: Any) -> Any:
    """Return the member names of the parts that every contract has in common."""
    return {name: shape(member) for name, member in value.items()} if isinstance(value, dict) else None


FREE_FORM = {"limits", "inputSchema", "outputSchema", "exampleInput", "exampleResponse"}


@each_operation
def test_every_contract_has_the_same_members(operation: Operation[Any]) -> None:
    own = service_document(operation, WIRES)
    assert list(own) == list(CONTRACT)
    for name in CONTRACT.keys() - FREE_FORM - {"requirementsProfile"}:
        assert shape(own[name]) == shape(CONTRACT[name]), name
    general = {fact for fact in CONTRACT["requirementsProfile"]["facts"] if not fact.startswith("input.")}
    assert general <= own["requirementsProfile"]["facts"].keys()
    assert CONTRACT["limits"].keys() & {"inputBytes", "outputBytes", "jsonNodes", "depth"} <= own["limits"].keys()


@each_operation
def test_the_example_and_its_answer_meet_their_schemas(operation: Operation[Any]) -> None:
    own = service_document(operation, WIRES)
    for schema in (own["inputSchema"], own["outputSchema"], own["outputSchema"]["properties"]["result"]):
        check_schema(schema)
    validate(own["exampleInput"], own["inputSchema"])
    validate(own["exampleResponse"], own["outputSchema"])
    assert own["exampleResponse"]["version"] == VERSION


@each_operation
def test_the_price_is_written_once(operation: Operation[Any]) -> None:
    own = service_document(operation, WIRES)
    assert own["priceUsd"] == own["pricing"]["proposedNominalUsd"] == price_usd(operation)
    assert Decimal(own["priceUsd"]) * 10**6 == operation.price_base_units
    assert own["pricing"]["sixDecimalTokenBaseUnits"] == str(operation.price_base_units)


def test_the_workflow_names_each_protocol_and_its_headers() -> None:
    written = workflow((*WIRES, ScriptedProtocol.wire))
    assert written["supportedProtocols"] == ["x402", "mpp", "scripted"]
    assert written["scripted"] == {
        "credentialHeader": "X-Scripted-Payment",
        "challengeHeader": "X-Scripted-Challenge",
        "receiptHeader": "X-Scripted-Receipt",
    }


@each_operation
def test_every_bound_among_the_facts_is_the_schema_s(operation: Operation[Any]) -> None:
    for fact, value in facts(operation, WIRES).items():
        if not fact.startswith("input."):
            continue
        *path, keyword = fact.removeprefix("input.").split(".")
        schema = input_schema(operation)
        for name in path:
            schema = schema["properties"][name]
        assert schema[keyword] == value


@each_operation
def test_every_declared_code_that_is_raised_is_one_of_ours(operation: Operation[Any]) -> None:
    assert {code for code in operation.error_codes if document.is_raised(code)} <= set(ErrorCode)


# The schemas are the enforced ones.


def keywords(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(keywords, schema))
    if not isinstance(schema, dict):
        return set()
    names = set(schema)
    for keyword, value in schema.items():
        inner = value.values() if keyword == "properties" else [value]
        names |= set().union(*map(keywords, inner)) if keyword != "default" else set()
    return names


@each_operation
def test_an_object_never_leaves_other_members_unsaid(operation: Operation[Any]) -> None:
    def walk(schema: Any) -> None:
        if isinstance(schema, list):
            for part in schema:
                walk(part)
        elif isinstance(schema, dict):
            if schema.get("type") == "object" and "properties" in schema:
                assert schema["additionalProperties"] is False
            for value in schema.values():
                walk(value)

    walk(input_schema(operation))
    walk(result_schema(operation))


@each_operation
def test_nothing_of_python_is_published(operation: Operation[Any]) -> None:
    for schema in (input_schema(operation), result_schema(operation)):
        assert not keywords(schema) & {"title", "description", "$ref", "$defs"}


@each_operation
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_valid_input_is_accepted(operation: Operation[Any], data: st.DataObject) -> None:
    value = data.draw(INPUTS[operation.id])
    assert is_valid(input_schema(operation), value)
    if operation.precheck is not None:
        operation.precheck(value)
    check(operation.adapter, value)
    assert is_valid(outline(input_schema(operation)), value)


@each_operation
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_answer_to_a_valid_input_meets_the_result_schema(operation: Operation[Any], data: st.DataObject) -> None:
    value = data.draw(INPUTS[operation.id])
    try:
        result = canonical.dump(operation.evaluate(operation.accept(value)))
    except OperationError:
        # Ids that repeat or name nothing, which no schema can say.
        return
    validate(json.loads(result), result_schema(operation))


def samples(operation: Operation[Any]) -> list[Any]:
    """Return valid inputs that between them have every member of the schema."""
    example = json.loads(json.dumps(operation.example_input))
    full = {**operation.defaults, **example}
    if operation.id == "retrieval-measure":
        [observation] = example["observations"]
        return [{**full, "observations": [{**observation, "scores": [3, 2, 1.5], "tiePolicy": "by id"}]}]
    if operation.id == "lexical-retrieval":
        return [full, {**full, "corpus": {**example["corpus"], "sha256": "0" * 64}}]
    return [full]


@cache
def faults(operation: Operation[Any]) -> list[Broken]:
    return [fault for sample in samples(operation) for fault in broken(input_schema(operation), sample)]


@each_operation
def test_breaking_one_constraint_is_refused_at_its_place(operation: Operation[Any]) -> None:
    for fault in faults(operation):
        assert not is_valid(input_schema(operation), fault.value), fault
        with pytest.raises(OperationError) as raised:
            operation.accept(fault.value)
        error = raised.value
        assert error.status == 422
        if error.code is ErrorCode.INVALID_INPUT:
            places = {error.pointer, *(violation.pointer for violation in error.violations)}
            assert fault.pointer in places, fault
        else:
            # An operation's own code speaks of the member or of the query around it.
            assert error.code in operation.error_codes
            assert error.code in {ErrorCode.USABLE_LABELS, ErrorCode.SCORE_BOUNDS}, fault
            assert error.pointer is not None
            assert fault.pointer.startswith(error.pointer) or error.pointer.startswith(fault.pointer), fault


def test_the_faults_are_of_every_kind_that_the_schemas_have() -> None:
    kinds = {fault.constraint.split()[0] for operation in OPERATIONS for fault in faults(operation)}
    bounds = {"minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems", "minLength", "maxLength"}
    assert kinds >= bounds | {"type", "enum,", "required", "additionalProperties", "uniqueItems", "then"}
