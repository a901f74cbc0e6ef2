"""A page of another origin may send what a payment needs and read every answer; who is no browser is told nothing."""

from __future__ import annotations

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from ranking_evaluate import telemetry
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.http.cors import Cors
from ranking_evaluate.http.early_refusals import EarlyRefusals
from ranking_evaluate.http.headers import header_names
from ranking_evaluate.server.limits import Limits
from tests.http.conftest import JSON, KEY, PATH, Options, Service, Start
from tests.http.test_app import broken, check_common, check_problem

pytestmark = pytest.mark.anyio

ORIGIN = "https://shop.example"
PREFLIGHT = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type,idempotency-key,x-scripted-payment",
}
EXPOSED = {
    "x-scripted-challenge",
    "x-scripted-receipt",
    "retry-after",
    "idempotent-replayed",
    "x-request-id",
}


def listed(answer: httpx.Response, header: str) -> set[str]:
    return {name.strip().lower() for name in answer.headers[header].split(",")}


def cors_headers(answer: httpx.Response) -> list[str]:
    return [name for name in answer.headers if name.startswith("access-control-")]


# Preflights.


async def test_any_origin_may_send_the_headers_that_a_payment_needs(service: Service) -> None:
    answer = await service.client.options(PATH, headers=PREFLIGHT)
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-type" not in answer.headers
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    allowed = listed(answer, "access-control-allow-headers")
    assert {"content-type", "idempotency-key", "x-scripted-payment"} <= allowed
    assert {"x-request-id", "traceparent", "tracestate"} <= allowed
    assert listed(answer, "access-control-allow-methods") == {"get", "head", "post"}
    check_common(answer)


@pytest.mark.parametrize(
    "added",
    [
        "access-control-expose-headers",  # @x402/fetch 2.27
        "accept-payment",  # mppx 0.11
        "x-payment",
        "X-Request-Id, traceparent,tracestate",
        "",
    ],
)
def test_what_official_clients_add_by_themselves_is_allowed(added: str) -> None:
    lines = ((b"origin", b"null"), (b"access-control-request-method", b"POST"))
    asked = (*lines, (b"access-control-request-headers", b"content-type, " + added.encode()))
    assert preflight(*asked).status_code == 204


def preflight(*lines: tuple[bytes, bytes]) -> Response:
    state = {"told": telemetry.Request("the id")}
    scope = {"type": "http", "method": "OPTIONS", "path": PATH, "headers": list(lines), "state": state}
    return Cors(("*",), header_names(WIRES)).answer_preflight(Request(scope))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"Access-Control-Request-Headers": "content-type, x-secret-of-mine"}, "Idempotency-Key"),
        ({"Access-Control-Request-Method": "DELETE"}, "GET, HEAD, POST"),
    ],
)
async def test_a_preflight_that_asks_for_more_is_told_what_there_is(
    service: Service, asked: dict[str, str], named: str
) -> None:
    answer = await service.client.options(PATH, headers={**PREFLIGHT, **asked})
    check_problem(answer, 400, "HEADER_INVALID")
    assert named in answer.json()["detail"]
    assert "x-secret-of-mine" not in answer.text
    assert answer.headers["access-control-allow-origin"] == "*"


async def test_what_is_no_preflight_is_405(service: Service) -> None:
    for headers in ({}, {"Origin": ORIGIN}, {"Access-Control-Request-Method": "POST"}):
        check_problem(await service.client.options(PATH, headers=headers), 405, "METHOD_NOT_ALLOWED")


# Answers.


async def test_a_page_can_read_every_answer_and_its_payment_headers(service: Service) -> None:
    origin = ("Origin", ORIGIN)
    good = (("Idempotency-Key", KEY), *JSON.items(), origin)
    answers = [
        await service.post(*good),
        await service.post(*good, body=b"{"),
        await service.post(*good, path="/nowhere"),
        await service.client.put(PATH, headers=[origin]),
    ]
    service.protocol.challenge = broken  # type: ignore[method-assign]
    answers.append(await service.post(*good))
    assert [answer.status_code for answer in answers] == [402, 400, 404, 405, 500]
    for answer in answers:
        check_common(answer)
        assert answer.headers.get_list("access-control-allow-origin") == ["*"]
        assert listed(answer, "access-control-expose-headers") == EXPOSED
        assert len(answer.headers.get_list("vary")) == 1


async def test_who_is_no_browser_is_told_nothing_of_it(service: Service) -> None:
    for answer in (await service.post(), await service.pay(), await service.client.get("/llms.txt")):
        assert cors_headers(answer) == []
        # A cache must not give this answer to a page.
        assert "origin" in listed(answer, "vary")


async def test_cors_can_be_narrowed_and_switched_off(start: Start) -> None:
    narrow = await start(Options(cors_origins=(ORIGIN, "https://b.example")))
    allowed = await narrow.client.options(PATH, headers=PREFLIGHT)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, ORIGIN)
    mine = await narrow.client.get("/healthz", headers={"Origin": ORIGIN})
    assert mine.headers["access-control-allow-origin"] == ORIGIN
    for other in ("https://other.example", "null"):
        refused = await narrow.client.options(PATH, headers={**PREFLIGHT, "Origin": other})
        check_problem(refused, 400, "HEADER_INVALID")
        assert cors_headers(refused) == []
        answer = await narrow.client.get("/healthz", headers={"Origin": other})
        assert (answer.status_code, cors_headers(answer)) == (200, [])
    off = await start(Options(cors_origins=()))
    answer = await off.client.options(PATH, headers=PREFLIGHT)
    check_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert cors_headers(answer) == []


# What the server answers before the application.


@pytest.mark.parametrize(
    ("origins", "of_the_body", "of_the_head"),
    [(("*",), "*", "*"), ((ORIGIN,), ORIGIN, None), (("https://other.example",), None, None), ((), None, None)],
)
def test_a_page_can_read_what_the_server_itself_refuses(
    origins: tuple[str, ...], of_the_body: str | None, of_the_head: str | None
) -> None:
    names = header_names(WIRES)
    refusals = EarlyRefusals(names, Cors(origins, names))
    scope = {"headers": [(b"origin", ORIGIN.encode())], "state": {}}
    answers = (refusals.body_too_slow(Limits(), scope), refusals.head_too_long(Limits(), None))
    for answer, expected in zip(answers, (of_the_body, of_the_head), strict=True):
        headers = httpx.Headers(answer.headers)
        assert headers.get("access-control-allow-origin") == expected
        assert ("access-control-expose-headers" in headers) == (expected is not None)
        assert "Origin" in headers["vary"]
