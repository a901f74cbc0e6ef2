"""Documents are served as they are rendered, with their media types and ETags; looking at a price sells nothing."""

from __future__ import annotations

import json
import re
import struct
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from urllib.robotparser import RobotFileParser

import httpx
import pytest

from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract import reference
from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.http.documents import MEDIA_TYPES, documents, show_security_contact
from ranking_evaluate.http.routes import free_routes
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.payments.protocol import Readiness
from tests.fakes import ScriptedProtocol
from tests.http.conftest import BODY, JSON, KEY, PATH, Service
from tests.http.test_app import check_common, check_problem

pytestmark = pytest.mark.anyio

PAGES = ["/reference", "/reference/"]
INDEX = "/reference/services"
STATIC = [*PAGES, *(f"/{path}" for path in reference.render((ScriptedProtocol.wire,)) if path != "llms.txt")]
WITHOUT_ENDING = {
    **dict.fromkeys(PAGES, MEDIA_TYPES[".md"]),
    **dict.fromkeys([INDEX, "/.well-known/x402"], MEDIA_TYPES[".json"]),
}
LIVE = ["/llms.txt", "/openapi.json", "/.well-known/x402"]
OWN = [INDEX, "/favicon.ico", "/robots.txt"]


@pytest.mark.parametrize("path", [*STATIC, *LIVE, *OWN])
async def test_a_document_has_its_type_and_is_not_sent_again_to_who_has_it(shared_service: Service, path: str) -> None:
    answer = await shared_service.client.get(path)
    check_common(answer)
    assert answer.status_code == 200
    expected = WITHOUT_ENDING.get(path) or MEDIA_TYPES[PurePosixPath(path).suffix]
    assert answer.headers["content-type"] == expected
    assert answer.headers["cache-control"].startswith("public, max-age=")
    etag = answer.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        again = await shared_service.client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert (await shared_service.client.get(path, headers={"If-None-Match": '"other"'})).content == answer.content
    head = await shared_service.client.head(path)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(answer.content)))


@pytest.mark.parametrize("path", STATIC)
async def test_the_reference_is_served_as_it_is_rendered(shared_service: Service, path: str) -> None:
    name = path.removeprefix("/") if path not in PAGES else "reference/README.md"
    assert (await shared_service.client.get(path)).content == reference.render((ScriptedProtocol.wire,))[name]


# What finds the documents.


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        ("application/json", True),
        # What @agentcash/discovery and axios send.
        ("application/json, text/plain;q=0.9, */*;q=0.8", True),
        ("APPLICATION/JSON; q=0.5", True),
        ("text/html;q=0.4, application/json;q=0.5", True),
        # What a browser and curl send.
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", False),
        ("*/*", False),
        ("", False),
        ("text/markdown, application/json;q=0.9", False),
        ("application/json;q=0", False),
        ("application/json;q=nonsense", False),
    ],
)
async def test_the_index_is_a_page_or_a_list(shared_service: Service, path: str, accept: str, is_json: bool) -> None:
    answer = await shared_service.client.get(path, headers={"Accept": accept})
    check_common(answer)
    assert "accept" in {name.strip().lower() for line in answer.headers.get_list("vary") for name in line.split(",")}
    listed = await shared_service.client.get(INDEX)
    if is_json:
        assert (answer.headers["content-type"], answer.content) == ("application/json", listed.content)
        assert answer.headers["etag"] == listed.headers["etag"]
    else:
        assert answer.headers["content-type"] == MEDIA_TYPES[".md"]
        assert answer.headers["etag"] != listed.headers["etag"]


async def test_the_list_leads_to_everything_about_every_operation(service: Service) -> None:
    listed = (await service.client.get(INDEX)).json()
    assert [entry["id"] for entry in listed] == [operation.id for operation in OPERATIONS]
    for entry in listed:
        assert set(entry) == {"id", "contract", "tool", "example", "paths"}
        contract = (await service.client.get(entry["contract"])).json()
        assert (contract["id"], contract["paths"]) == (entry["id"], entry["paths"])
        assert f"(`{entry['id']}`)" in (await service.client.get(entry["tool"])).text
        assert (await service.client.get(entry["example"])).json()["operation"] == entry["id"]
        for path in entry["paths"].values():
            assert (await service.client.get(path)).status_code == 402


async def test_the_index_says_what_is_not_sold_here(service: Service) -> None:
    page = (await service.client.get("/reference")).text
    assert "not sold here: classification-evaluate, span-evaluate." in page
    for path in ("/v1/scripted/span-evaluate", "/reference/services/span-evaluate.json"):
        assert (await service.client.get(path)).status_code == 404


async def test_the_icon_is_one(service: Service) -> None:
    icon = (await service.client.get("/favicon.ico")).content
    # The head of the form ICO, and three images of it.
    assert struct.unpack_from("<HHH", icon) == (0, 1, 3)
    for place in range(3):
        *_, length, offset = struct.unpack_from("<BBBBHHII", icon, 6 + 16 * place)
        assert icon[offset : offset + length].startswith(b"\x89PNG\r\n\x1a\n")


async def test_everything_may_be_read_by_crawlers(service: Service) -> None:
    robots = RobotFileParser()
    robots.parse((await service.client.get("/robots.txt")).text.splitlines())
    assert all(robots.can_fetch("any", f"https://rank.example{path}") for path in [*STATIC, *LIVE, *OWN, "/", PATH])


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/preflight", "/v1/attempts", "/.well-known/security.txt"]
)
async def test_head_is_answered_wherever_get_is(service: Service, path: str) -> None:
    headers = {"Idempotency-Key": KEY}
    await service.pay()
    get, head = [await service.client.request(method, path, headers=headers) for method in ("GET", "HEAD")]
    assert head.status_code == get.status_code
    for name in ("content-type", "content-length", "cache-control"):
        assert head.headers.get(name) == get.headers.get(name)


async def test_no_route_has_a_get_without_a_head(service: Service) -> None:
    methods: dict[str, set[str]] = {}
    for route in service.app.routes:
        methods.setdefault(route.path, set()).update(route.methods)  # type: ignore[attr-defined]
    assert [path for path, found in methods.items() if ("GET" in found) != ("HEAD" in found)] == []


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
