"""What a caller can find out for free before a purchase: declared facts, and whether an input would be accepted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi import Response

from ranking_evaluate.contract.document import Wires
from ranking_evaluate.contract.errors import NotFound, refusal
from ranking_evaluate.contract.requirements import Comparison, Declaration, answer, declaration
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.evaluations.evaluations import Caller, Evaluations
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation


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
        return answer(body, wires, taken)
    except OperationError as error:
        raise refusal(error) from error


async def validate(operation: Operation[Any], body: bytes, evaluations: Evaluations, caller: Caller) -> Response:
    """Return 204 for an input that the paid route would evaluate; it is evaluated here too, which may refuse it."""
    try:
        await evaluations.answer(operation, body, caller)
    except OperationError as error:
        raise refusal(error) from error
    return Response(status_code=204, headers={"cache-control": "no-store"})
