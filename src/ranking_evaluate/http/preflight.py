"""What a caller can find out for free before a purchase: declared facts, and whether an input would be accepted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from fastapi import Response

from ranking_evaluate.contract.document import Wires
from ranking_evaluate.contract.errors import NotFound, refusal
from ranking_evaluate.contract.requirements import QUESTION, Comparison, Declaration, Question, compare, declaration
from ranking_evaluate.core import intake
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.evaluations.evaluations import Caller, Evaluations
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation, check


def declare(wires: Wires, taken: Collection[str]) -> Declaration:
    """Return the declared facts of every operation; `taken` names the protocols that this service takes."""
    return declaration(wires, taken)


def find_operation(operation_id: str) -> Operation[Any]:
    """Return the operation whose input is to be checked; raises NotFound for an unknown one."""
    try:
        return registry.find(operation_id)
    except ValueError as error:
        raise NotFound("NOT_FOUND", "No operation has the id that validate names.") from error


def compare_requirements(body: bytes, wires: Wires, taken: Collection[str]) -> Comparison | list[Comparison]:
    """Return how the requirements in a body compare with the facts of one operation, or of each if it names none."""
    try:
        question = _read_question(body)
        operations = _asked_about(question)
    except OperationError as error:
        raise refusal(error) from error
    compared = [compare(operation, question["requirements"], wires, taken) for operation in operations]
    return compared[0] if "operation" in question else compared


def _read_question(body: bytes) -> Question:
    value = intake.read(body)
    check(QUESTION, value)
    return cast("Question", value)


def _asked_about(question: Question) -> tuple[Operation[Any], ...]:
    if "operation" not in question:
        return registry.OPERATIONS
    try:
        return (registry.find(question["operation"]),)
    except ValueError as error:
        raise OperationError(ErrorCode.INVALID_INPUT, "No operation has this id.", "/operation") from error


async def validate(operation: Operation[Any], body: bytes, evaluations: Evaluations, caller: Caller) -> Response:
    """Return 204 for an input that the paid route would evaluate; it is evaluated here too, which may refuse it."""
    try:
        await evaluations.answer(operation, body, caller)
    except OperationError as error:
        raise refusal(error) from error
    return Response(status_code=204, headers={"cache-control": "no-store"})
