"""What a caller can find out for free before a purchase: declared facts, and whether an input would be accepted."""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from ranking_evaluate.contract.answer import answer
from ranking_evaluate.contract.document import Wires
from ranking_evaluate.contract.errors import NotFound, refusal
from ranking_evaluate.contract.requirements import QUESTION, Question, compare, declaration
from ranking_evaluate.core import intake
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.http.requests import check_media, read_body, read_headers
from ranking_evaluate.http.responses import json_response
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation, check


async def declare(request: Request, wires: Wires) -> Response:
    """Return the declared facts of every operation."""
    return json_response(declaration(wires))


async def ask(request: Request, wires: Wires) -> Response:
    """Compare requirements with the declared facts, or with `?validate=` check an input as the paid route would."""
    headers = read_headers(request)
    check_media(headers)
    operation_id = request.query_params.get("validate")
    if operation_id is None:
        return _compare(await read_body(request, headers), wires)
    try:
        operation = registry.find(operation_id)
    except ValueError as error:
        raise NotFound("NOT_FOUND", "No operation has the id that validate names.") from error
    return _validate(operation, await read_body(request, headers))


def _compare(body: bytes, wires: Wires) -> Response:
    try:
        question = _read_question(body)
        operations = _asked_about(question)
    except OperationError as error:
        raise refusal(error) from error
    compared = [compare(operation, question["requirements"], wires) for operation in operations]
    return json_response(compared[0] if "operation" in question else compared)


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


def _validate(operation: Operation[Any], body: bytes) -> Response:
    """Return 204 for an input that the paid route would evaluate; the score is made, since it may be refused too."""
    try:
        answer(operation, body)
    except OperationError as error:
        raise refusal(error) from error
    return Response(status_code=204, headers={"cache-control": "no-store"})
