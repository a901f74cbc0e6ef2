"""Routes, rates and the headers of every answer; the service replaces the framework's own error answers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request

from ranking_evaluate import evaluate
from ranking_evaluate.http import documents, health, preflight, routes
from ranking_evaluate.http.cors import CorsLayer
from ranking_evaluate.http.early_refusals import EarlyRefusals
from ranking_evaluate.http.requests import client_of, counted_as
from ranking_evaluate.payments.protocol import Readiness, Settlement
from ranking_evaluate.sandbox.processes import LOOPBACK
from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.start import configuration
from tests.http.conftest import BODY, JSON, KEY, PATH, SETTLED, Options, Service, Start

pytestmark = pytest.mark.anyio


def check_common(answer: httpx.Response) -> None:
    """Every answer has these."""
    assert len(answer.headers["x-request-id"]) == 24
    assert answer.headers["x-content-type-options"] == "nosniff"
    varies = {name.strip().lower() for line in answer.headers.get_list("vary") for name in line.split(",")}
    assert {"idempotency-key", "x-scripted-payment", "origin"} <= varies


def check_problem(answer: httpx.Response, status: int, code: str) -> None:
    check_common(answer)
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert (answer.status_code, document["status"], document["code"]) == (status, status, code)
    assert document["requestId"] == answer.headers["x-request-id"]
    retry_after = document["retryAfter"]
    assert answer.headers.get("retry-after") == (None if retry_after is None else str(retry_after))


async def test_a_paid_answer_is_the_free_one_with_its_receipt(service: Service) -> None:
    answer = await service.pay()
    assert (answer.status_code, answer.content) == (200, evaluate("ranking-evaluate", BODY))
    check_common(answer)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["x-scripted-receipt"] == "the receipt"
    assert "idempotent-replayed" not in answer.headers
    replay = await service.pay()
    assert (replay.status_code, replay.content) == (200, answer.content)
    assert replay.headers["x-scripted-receipt"] == "the receipt"
    assert replay.headers["idempotent-replayed"] == "true"
    assert replay.headers["x-request-id"] != answer.headers["x-request-id"]


async def test_a_challenge_is_kept_by_nobody(service: Service) -> None:
    answer = await service.post()
    check_problem(answer, 402, "PAYMENT_REQUIRED")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-scripted-challenge"] == KEY


@pytest.mark.parametrize(
    "path",
    ["/v1", PATH + "/", PATH + "/x", "/v1/other/ranking-evaluate", "/v1/scripted/none", "//v1/attempts", "/docs"],
)
async def test_an_unknown_path_is_an_error_and_never_a_redirect(shared_service: Service, path: str) -> None:
    answer = await shared_service.client.post(path, content=BODY, headers={"Idempotency-Key": KEY, **JSON})
    check_problem(answer, 404, "NOT_FOUND")
    assert "location" not in answer.headers


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_another_method_is_405_with_the_allowed_ones(service: Service, method: str) -> None:
    answer = await service.client.request(method, PATH)
    check_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert "POST" in answer.headers["allow"]


async def test_the_attempts_of_a_key_are_read_only(service: Service) -> None:
    answer = await service.client.post("/v1/attempts", headers={"Idempotency-Key": KEY})
    check_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert "GET" in answer.headers["allow"]


# Rates and load.


async def test_a_client_over_its_rate_waits_and_another_does_not(start: Start) -> None:
    service = await start(Options(request_rate="2/minute"))
    for _ in range(2):
        assert (await service.post()).status_code == 402
    # Before anything of the request is looked at.
    answer = await service.post(("X-Nothing", "right"), body=b"{")
    check_problem(answer, 429, "RATE_LIMITED")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    check_problem(await service.client.get("/v1/attempts", headers={"Idempotency-Key": KEY}), 429, "RATE_LIMITED")
    assert (await service.client.get("/healthz")).status_code == 200
    transport = httpx.ASGITransport(service.app, client=("192.0.2.8", 1))
    async with httpx.AsyncClient(transport=transport, base_url="https://rank.example") as other:
        answer = await other.post(PATH, content=BODY, headers={"Idempotency-Key": KEY, **JSON})
        assert answer.status_code == 402


async def test_a_client_that_was_limited_while_it_paid_still_gets_what_it_paid_for(start: Start) -> None:
    service = await start(Options(request_rate="1/second"))
    held: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    service.protocol.settler = lambda signed, offer: held
    buyer = asyncio.create_task(service.pay())
    while not service.protocol.ledger.calls:  # noqa: ASYNC110 - A dict has no event.
        await asyncio.sleep(0.001)
    check_problem(await service.pay(), 429, "RATE_LIMITED")
    held.set_result(SETTLED)
    assert (await buyer).status_code == 200
    await asyncio.sleep(1.1)
    assert (await service.pay()).headers["idempotent-replayed"] == "true"
    assert service.protocol.ledger.calls == {"first": 1}


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("testclient", "testclient"),
    ],
)
def test_a_rate_counts_an_address_and_of_ipv6_its_network(host: str, counted: str) -> None:
    assert client_of(Request({"type": "http", "client": (host, 1), "headers": []})) == counted
    assert client_of(Request({"type": "http", "client": None, "headers": []})) == "unknown"


async def test_over_the_load_limit_is_503_and_the_place_is_given_back(start: Start) -> None:
    service = await start(Options(max_in_flight=1))
    held: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    service.protocol.settler = lambda signed, offer: held
    buyer = asyncio.create_task(service.pay())
    while not service.protocol.ledger.calls:  # noqa: ASYNC110 - A dict has no event.
        await asyncio.sleep(0.001)
    check_problem(await service.post(), 503, "OVERLOADED")
    assert (await service.client.get("/healthz")).status_code == 200
    held.set_result(SETTLED)
    assert (await buyer).status_code == 200
    for _ in range(3):
        check_problem(await service.post(body=b"{"), 400, "MALFORMED_JSON")
    check_problem(await service.post(("Idempotency-Key", KEY * 2), *JSON.items()), 402, "PAYMENT_REQUIRED")


async def test_a_protocol_that_is_down_is_503_with_retry_after(service: Service) -> None:
    service.protocol.readiness = Readiness(False, "asleep")
    answer = await service.post()
    check_problem(answer, 503, "PAYMENT_UNAVAILABLE")
    assert answer.headers["retry-after"] == "2"


# Bugs.


def broken(*given: Any, **named: Any) -> Any:
    # Put together here, since a log line may quote this source.
    raise ZeroDivisionError("".join(("can", "ary")))


async def test_a_bug_is_a_problem_of_ours_and_its_text_stays_unsaid(service: Service, logs: Callable[[], str]) -> None:
    service.protocol.challenge = broken  # type: ignore[method-assign]
    answer = await service.post()
    check_problem(answer, 500, "INTERNAL")
    assert "canary" not in answer.text
    line, request_line = logs().splitlines()
    assert json.loads(request_line)["code"] == "INTERNAL"
    logged = json.loads(line)
    assert (logged["level"], logged["error"]) == ("error", "ZeroDivisionError")
    assert logged["request_id"] == answer.headers["x-request-id"]
    assert "in broken" in logged["exception"]
    assert "canary" not in line


@pytest.mark.parametrize("path", ["/healthz", "/preflight", "/llms.txt"])
async def test_a_bug_off_the_paid_paths_is_a_problem_too(
    service: Service, logs: Callable[[], str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(health, "alive", broken)
    monkeypatch.setattr(preflight, "declare", broken)
    monkeypatch.setattr(documents, "serve", broken)
    check_problem(await service.client.get(path), 500, "INTERNAL")
    line, request_line = logs().splitlines()
    assert "canary" not in line
    told = json.loads(request_line)
    assert (told["status"], told["code"], told["route"]) == (500, "INTERNAL", path)


async def test_a_bug_outside_the_routes_is_told_of_once(
    service: Service, logs: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CorsLayer, "__call__", broken)
    answer = await service.client.get("/healthz")
    check_problem(answer, 500, "INTERNAL")
    assert "canary" not in answer.text
    error, request = logs().splitlines()
    assert json.loads(error)["level"] == "error"
    assert "canary" not in error
    assert (json.loads(request)["status"], json.loads(request)["code"]) == (500, "INTERNAL")


@pytest.mark.parametrize("path", [PATH, "/llms.txt", "/healthz", "/v1/attempts"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_line_break_after_a_path_is_another_path(shared_service: Service, method: str, path: str) -> None:
    check_problem(await shared_service.client.request(method, f"{path}%0A"), 404, "NOT_FOUND")


async def test_a_caller_that_leaves_is_no_bug(
    service: Service, logs: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def left(*given: Any) -> bytes:
        raise ClientDisconnect

    monkeypatch.setattr(routes, "read_body", left)
    for path in ("/preflight", PATH):
        with pytest.raises(AssertionError):  # Nobody hears an answer.
            await service.post(path=path)
    statuses = [json.loads(line).get("status") for line in logs().splitlines()]
    assert statuses == [None, 0, None, 0]


async def test_a_body_that_comes_too_slowly_is_told_of_once(service: Service, logs: Callable[[], str]) -> None:
    config = configuration(
        service.app,
        limits=Limits(body_seconds=0.2),
        refusals=EarlyRefusals(service.app.state.parts.header_names, service.app.state.parts.cors),
        client_of=counted_as,
        trusted_proxies=(),
        graceful_seconds=2,
    )
    config.lifespan = "off"
    running = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        serving = asyncio.create_task(running.serve(sockets=[listener]))
        while not running.started:  # noqa: ASYNC110 - The server has no event for it.
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: {KEY}\r\n"
        writer.write(head.encode() + b"Origin: https://shop.example\r\nContent-Length: 10\r\n\r\n{")
        answer = (await reader.read()).decode()
        writer.close()
        running.should_exit = True
        await serving
    assert answer.startswith("HTTP/1.1 408 ")
    assert "access-control-allow-origin: *\r\n" in answer
    told = [line for line in map(json.loads, logs().splitlines()) if line["event"] == "request"]
    assert [(line["route"], line["status"], line["code"]) for line in told] == [(PATH, 408, "REQUEST_TIMEOUT")]
    assert f"x-request-id: {told[0]['request_id']}" in answer


async def test_the_service_serves_on_after_a_bug(service: Service) -> None:
    service.protocol.challenge, whole = broken, service.protocol.challenge  # type: ignore[method-assign]
    check_problem(await service.post(), 500, "INTERNAL")
    service.protocol.challenge = whole  # type: ignore[method-assign]
    assert (await service.post()).status_code == 402


async def test_nothing_a_caller_sent_is_echoed(service: Service) -> None:
    canary = "CANARYcanary0123456789"
    lines = [
        (("Idempotency-Key", canary + "."), *JSON.items()),
        (("Idempotency-Key", KEY), ("Content-Type", canary)),
        (("Idempotency-Key", KEY), *JSON.items(), ("Content-Encoding", canary)),
        (("Idempotency-Key", KEY), *JSON.items(), ("x-scripted-payment", canary)),
    ]
    for headers in lines:
        answer = await service.post(*headers)
        assert 400 <= answer.status_code < 500
        assert canary not in answer.text
    body = b'{"queries":[{"id":"CANARY","retrieved":["CANARY","CANARY"],"judgments":[]}],"k":"CANARY"}'
    answer = await service.post(body=body)
    assert (answer.status_code, "CANARY" in answer.text) == (422, False)
