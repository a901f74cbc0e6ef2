"""The free input check says what the paid route would say, and preflight never takes unknown for compatible."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranking_evaluate.contract.document import facts
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from tests.contract.test_document import INPUTS, faults
from tests.fakes import ScriptedProtocol
from tests.http.conftest import BODY, JSON, KEY, Options, Service, running
from tests.oracles.answer_keys import BODIES, METRICS
from tests.published import problem_without_id

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)


# The free input check against the paid route.

Ask = Callable[[str, bytes], tuple[httpx.Response, httpx.Response]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Return a function that gives a body to the free check and to the paid route of an operation."""
    with asyncio.Runner() as runner:
        opened = AsyncExitStack()
        path = tmp_path_factory.mktemp("preflight") / "attempts.db"
        service = runner.run(opened.enter_async_context(running(path, Options())))

        async def both(operation: str, body: bytes) -> tuple[httpx.Response, httpx.Response]:
            free = await service.client.post(f"/preflight?validate={operation}", content=body, headers=JSON)
            lines = (("Idempotency-Key", KEY), *JSON.items())
            return free, await service.post(*lines, body=body, path=f"/v1/scripted/{operation}")

        yield lambda operation, body: runner.run(both(operation, body))
        runner.run(opened.aclose())


def check_alike(free: httpx.Response, paid: httpx.Response) -> None:
    if paid.status_code == 402:
        assert (free.status_code, free.content) == (204, b"")
        return
    assert free.status_code == paid.status_code
    said, sold = problem_without_id(free), problem_without_id(paid)
    # The paid route says beside it what becomes of the key.
    assert sold["nextStep"] == f"{said['nextStep']} Keep the Idempotency-Key: this request was not charged."
    assert {**said, "nextStep": ""} == {**sold, "nextStep": ""}


@each_operation
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_schema_valid_input_gets_what_the_paid_route_says(
    ask: Ask, operation: Operation[Any], data: st.DataObject
) -> None:
    check_alike(*ask(operation.id, json.dumps(data.draw(INPUTS[operation.id])).encode()))


@each_operation
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_broken_input_gets_what_the_paid_route_says(ask: Ask, operation: Operation[Any], data: st.DataObject) -> None:
    fault = data.draw(st.sampled_from(faults(operation)))
    free, paid = ask(operation.id, json.dumps(fault.value).encode())
    assert paid.status_code in {413, 422}
    check_alike(free, paid)


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=60) | st.sampled_from([row["body"] for row in (*BODIES, *METRICS)]))
def test_a_hostile_body_gets_what_the_paid_route_says(ask: Ask, body: bytes) -> None:
    check_alike(*ask("ranking-evaluate", body))


@each_operation
def test_the_example_is_accepted_without_a_score(ask: Ask, operation: Operation[Any]) -> None:
    free, paid = ask(operation.id, json.dumps(operation.example_input).encode())
    assert (free.status_code, free.content, paid.status_code) == (204, b"", 402)


# Requests around it.


@pytest.mark.anyio
async def test_an_unknown_operation_to_validate_is_404(service: Service) -> None:
    answer = await service.client.post("/preflight?validate=none", content=BODY, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/preflight", "/preflight?validate=ranking-evaluate"])
async def test_the_media_type_and_the_size_are_checked_as_on_a_paid_route(service: Service, path: str) -> None:
    answer = await service.client.post(path, content=BODY, headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    answer = await service.client.post(path, content=b"[" * 200_000, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "INPUT_LIMIT")


@pytest.mark.anyio
async def test_get_declares_the_facts_of_every_operation(service: Service) -> None:
    answer = await service.client.get("/preflight")
    declared = {one["operation"]: one["facts"] for one in answer.json()["operations"]}
    assert declared == {operation.id: dict(facts(operation, (ScriptedProtocol.wire,))) for operation in OPERATIONS}


@pytest.mark.anyio
async def test_a_named_operation_is_compared_alone_and_all_are_otherwise(service: Service) -> None:
    requirements = {"execution.deterministic": True, "payment.card": True}
    asked = {"operation": "ranking-evaluate", "requirements": requirements}
    one = (await service.client.post("/preflight", json=asked)).json()
    assert list(one) == ["operation", "requirements", "overall", "notice"]
    assert one["requirements"]["execution.deterministic"] == {
        "required": True,
        "declared": True,
        "status": "compatible",
    }
    assert one["requirements"]["payment.card"] == {"required": True, "declared": None, "status": "unknown"}
    assert one["overall"] == "unknown"
    every = (await service.client.post("/preflight", json={"requirements": requirements})).json()
    assert [each["operation"] for each in every] == [operation.id for operation in OPERATIONS]
    assert every[0] == one


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (b"{", "MALFORMED_JSON", None),
        (b"[]", "INVALID_INPUT", ""),
        (b"{}", "INVALID_INPUT", "/requirements"),
        (b'{"requirements": []}', "INVALID_INPUT", "/requirements"),
        (b'{"requirements": {}, "more": 1}', "INVALID_INPUT", "/more"),
        (b'{"requirements": {}, "operation": "none"}', "INVALID_INPUT", "/operation"),
        (b'{"requirements": {}, "operation": null}', "INVALID_INPUT", "/operation"),
        (b'{"requirements": {"a": 1, "a": 2}}', "DUPLICATE_FIELD", "/requirements/a"),
    ],
)
async def test_a_question_that_is_none_is_refused(
    service: Service, body: bytes, code: str, pointer: str | None
) -> None:
    answer = await service.client.post("/preflight", content=body, headers=JSON)
    assert (answer.json()["code"], answer.json().get("pointer")) == (code, pointer)
    assert answer.status_code == (400 if code == "MALFORMED_JSON" else 422)


@pytest.mark.anyio
async def test_a_credential_is_not_looked_at(service: Service) -> None:
    headers = {**JSON, "Idempotency-Key": KEY, "X-Scripted-Payment": "anything"}
    answer = await service.client.post("/preflight?validate=ranking-evaluate", content=BODY, headers=headers)
    assert answer.status_code == 204
    assert service.protocol.ledger.calls == {}
