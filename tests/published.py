"""Holds what the service answers against what it publishes; `tests/conftest.py` does so with every answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import httpx

from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract import openapi
from ranking_evaluate.http.documents import free_half
from ranking_evaluate.http.routes import free_routes
from ranking_evaluate.operations.registry import OPERATIONS
from tests.contract.schemas import Schema, validate

PROBLEM: Final = "application/problem+json"
REQUEST_ID_LENGTH: Final = 24

FOUND: Final[list[str]] = []
"""What was not as published; a client under test may swallow the error itself."""


@cache
def _described() -> dict[str, Any]:
    offers: dict[str, Any] = {operation.id: {} for operation in OPERATIONS}
    free = free_half(free_routes(WIRES))
    return openapi.render("https://rank.example", WIRES, {"x402": offers, "mpp": offers}, None, free)


@cache
def _schema(path: str, method: str, status: int, media_type: str) -> Schema:
    """Return the schema of one answer; raises KeyError when such an answer is not described."""
    document = _described()
    response = document["paths"][path][method.lower()]["responses"][str(status)]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"][media_type]["schema"]
    return {**schema, "components": document["components"]}


def check(answer: httpx.Response) -> None:
    """Raise AssertionError unless an answer of the service has a described status, media type and content."""
    try:
        _check(answer)
    except AssertionError as error:
        FOUND.append(f"{answer.request.method} {answer.request.url.path} {answer.status_code}: {error}")
        raise AssertionError(FOUND[-1]) from error


def _check(answer: httpx.Response) -> None:
    if not _is_ours(answer):
        return
    # The scripted protocol of the tests is sold like any other.
    path = answer.request.url.path.replace("/v1/scripted/", "/v1/x402/")
    media_type = answer.headers["content-type"].partition(";")[0]
    status = answer.status_code
    known = path in _described()["paths"] and answer.request.method.lower() in _described()["paths"][path]
    if known and status != 405:
        try:
            schema = _schema(path, answer.request.method, status, media_type)
        except KeyError as error:
            raise AssertionError(
                f"{answer.request.method} {path} answers {status} {media_type}: not published"
            ) from error
        validate(answer.json(), schema)
    elif media_type == PROBLEM:
        validate(answer.json(), openapi.problem_schema(status))


def _is_ours(answer: httpx.Response) -> bool:
    """Return whether it is a JSON answer of a real service: they all have a request id, which scripted ones lack."""
    is_json = answer.headers.get("content-type", "").partition(";")[0] in {"application/json", PROBLEM}
    return is_json and len(answer.headers.get("x-request-id", "")) == REQUEST_ID_LENGTH and bool(answer.content)


def checking(send: Callable[..., httpx.Response]) -> Callable[..., httpx.Response]:
    """Return httpx's `Client.send` with every answer checked."""

    def checked(*args: Any, stream: bool = False, **given: Any) -> httpx.Response:
        answer = send(*args, stream=stream, **given)
        if not stream:
            check(answer)
        return answer

    return checked


def checking_async(send: Callable[..., Any]) -> Callable[..., Any]:
    """Return httpx's `AsyncClient.send` with every answer checked."""

    async def checked(*args: Any, stream: bool = False, **given: Any) -> httpx.Response:
        answer: httpx.Response = await send(*args, stream=stream, **given)
        if not stream:
            check(answer)
        return answer

    return checked


def problem_without_id(answer: httpx.Response) -> dict[str, Any]:
    """Return the members of a problem that two requests with the same fault have in common."""
    members: dict[str, Any] = json.loads(answer.content)
    return {name: value for name, value in members.items() if name != "requestId"}
