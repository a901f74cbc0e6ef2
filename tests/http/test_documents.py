"""Documents are served as they are rendered, with their media types and ETags; looking at a price sells nothing."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

import httpx
import pytest

from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract import reference
from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.http.documents import MEDIA_TYPES, documents, show_security_contact
from ranking_evaluate.http.routes import free_routes
from ranking_evaluate.payments.protocol import Readiness
from tests.fakes import ScriptedProtocol
from tests.http.conftest import BODY, JSON, PATH, Service
from tests.http.test_app import check_common, check_problem

pytestmark = pytest.mark.anyio

STATIC = ["/reference/", *(f"/{path}" for path in reference.render((ScriptedProtocol.wire,)) if path != "llms.txt")]
WITHOUT_ENDING = {"/reference/": MEDIA_TYPES[".md"], "/.well-known/x402": MEDIA_TYPES[".json"]}
LIVE = ["/llms.txt", "/openapi.json", "/.well-known/x402"]


@pytest.mark.parametrize("path", [*STATIC, *LIVE])
async def test_a_document_has_its_type_and_is_not_sent_again_to_who_has_it(service: Service, path: str) -> None:
    answer = await service.client.get(path)
    check_common(answer)
    assert answer.status_code == 200
    expected = WITHOUT_ENDING.get(path) or MEDIA_TYPES[PurePosixPath(path).suffix]
    assert answer.headers["content-type"] == expected
    assert answer.headers["cache-control"].startswith("public, max-age=")
    etag = answer.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        again = await service.client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert (await service.client.get(path, headers={"If-None-Match": '"other"'})).content == answer.content
    head = await service.client.head(path)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(answer.content)))


@pytest.mark.parametrize("path", STATIC)
async def test_the_reference_is_served_as_it_is_rendered(service: Service, path: str) -> None:
    name = path.removeprefix("/") if path != "/reference/" else "reference/README.md"
    assert (await service.client.get(path)).content == reference.render((ScriptedProtocol.wire,))[name]


async def test_no_document_takes_a_post(service: Service) -> None:
    for path in ("/", "/llms.txt", "/openapi.json", "/reference/errors.md", "/.well-known/x402"):
        check_problem(await service.client.post(path), 405, "METHOD_NOT_ALLOWED")


async def test_what_is_not_in_the_reference_is_404(service: Service) -> None:
    for path in ("/reference/none.md", "/reference/../llms.txt/x", "/reference/%2e%2e/settings.py"):
        check_problem(await service.client.get(path), 404, "NOT_FOUND")


def test_a_protocol_that_is_not_configured_is_sold_in_no_document() -> None:
    found = documents(free_routes(WIRES), "https://rank.example", WIRES, (), "https://rank.example/security")
    described = json.loads(found["/openapi.json"].content)
    assert not [path for path in described["paths"] if path.startswith(("/v1/x402", "/v1/mpp"))]
    assert described["info"]["contact"] == {"url": "https://rank.example/security"}
    assert json.loads(found["/.well-known/x402"].content)["resources"] == []
    said = found["/llms.txt"].content.decode()
    assert "- ORIGIN=https://rank.example\n- x402: not taken here" in said
    assert "- mpp: not taken here" in said


# The home page.


async def test_the_home_page_says_what_is_ready_now(service: Service) -> None:
    answer = await service.client.get("/")
    check_common(answer)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "ready to sell" in answer.text
    service.protocol.readiness = Readiness(False, "<b>asleep</b>")
    answer = await service.client.get("/")
    assert answer.status_code == 200
    assert "not selling at the moment" in answer.text
    assert "<b>asleep" not in answer.text


async def test_the_home_page_needs_nothing_else_and_allows_nothing_else(service: Service) -> None:
    answer = await service.client.get("/")
    assert "<script" not in answer.text
    assert not re.findall(r'(?:src|href)="https?:', answer.text)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


# security.txt.


async def test_security_txt_is_404_without_a_contact(service: Service) -> None:
    check_problem(await service.client.get("/.well-known/security.txt"), 404, "NOT_FOUND")


def test_security_txt_expires_half_a_year_from_now() -> None:
    answer = show_security_contact("mailto:security@rank.example", "https://rank.example")
    fields = dict(line.split(": ", 1) for line in bytes(answer.body).decode().splitlines())
    assert fields["Contact"] == "mailto:security@rank.example"
    expires = datetime.fromisoformat(fields["Expires"]) - datetime.now(UTC)
    assert abs(expires - timedelta(days=180)) < timedelta(minutes=1)


# Terms for who only looks.


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_looking_at_a_paid_path_is_a_challenge_that_stores_nothing(service: Service, method: str) -> None:
    answer = await service.client.request(method, PATH)
    assert answer.status_code == 402
    assert answer.headers["x-scripted-challenge"] == DISCOVERY_KEY
    assert answer.headers["cache-control"] == "no-store"
    if method == "GET":
        check_problem(answer, 402, "PAYMENT_REQUIRED")
        assert "POST" in answer.json()["detail"]
    assert (await service.store.read(DISCOVERY_KEY)).standing is None


async def test_looking_with_a_credential_is_405_and_never_settled(service: Service) -> None:
    answer = await service.client.get(PATH, headers={"X-Scripted-Payment": "anything"})
    check_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "POST"
    assert service.protocol.ledger.calls == {}


async def test_looking_while_the_protocol_is_down_is_503(service: Service) -> None:
    service.protocol.readiness = Readiness(False, "asleep")
    check_problem(await service.client.get(PATH), 503, "PAYMENT_UNAVAILABLE")


async def test_the_published_key_gets_a_challenge_and_takes_no_credential(service: Service) -> None:
    lines = (("Idempotency-Key", DISCOVERY_KEY), *JSON.items())
    check_problem(await service.post(*lines, body=BODY), 402, "PAYMENT_REQUIRED")
    check_problem(await service.pay(key=DISCOVERY_KEY), 400, "DISCOVERY_KEY")
    assert service.protocol.ledger.calls == {}


async def test_an_allow_header_names_every_method_of_a_paid_path(service: Service) -> None:
    answer: httpx.Response = await service.client.put(PATH)
    check_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert {name.strip() for name in answer.headers["allow"].split(",")} == {"GET", "HEAD", "POST"}
