"""The application's routes are the ones it describes, and few layers stand around each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Route

from ranking_evaluate.bootstrap import WIRES, build
from ranking_evaluate.contract.document import path_of
from ranking_evaluate.http.middleware import Envelope
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.settings import PREFIX, read_settings
from tests.http.conftest import BODY, JSON, KEY, Service

pytestmark = pytest.mark.anyio

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
VARIABLES = {
    "PUBLIC_ORIGIN": "https://rank.example",
    "X402_PAY_TO": ADDRESS,
    "X402_NETWORK": "eip155:8453",
    "X402_FACILITATOR_URL": "http://127.0.0.1:9",
    "MPP_RECIPIENT": ADDRESS,
    "MPP_CHAIN_ID": "4217",
    "MPP_RPC_URL": "http://127.0.0.1:9",
    "MPP_CURRENCY": "0x20C0000000000000000000000000000000000000",
    "MPP_SECRET_KEY": "a secret of more than 32 characters",
}
MOST_LAYERS = 10


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    """Return the application with both protocols, which is not started."""
    variables = {**VARIABLES, "DATABASE_URL": f"sqlite:///{tmp_path / 'attempts.db'}"}
    return build(read_settings({f"{PREFIX}{name}": value for name, value in variables.items()}))


@pytest.fixture
async def described(app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://rank.example") as client:
        yield (await client.get("/openapi.json")).json()


def methods_of(app: FastAPI) -> dict[str, set[str]]:
    """Return the methods of every path; HEAD is described with GET."""
    found: dict[str, set[str]] = {}
    for route in app.routes:
        assert isinstance(route, Route)
        found.setdefault(route.path, set()).update(route.methods or ())
    for methods in found.values():
        assert "HEAD" not in methods or "GET" in methods
        methods.discard("HEAD")
    return found


async def test_the_description_names_exactly_the_routes_that_exist(app: FastAPI, described: Mapping[str, Any]) -> None:
    named = {path: {method.upper() for method in methods} for path, methods in described["paths"].items()}
    # The index answers under both, and its description is the first one's.
    named["/reference/"] = named["/reference"]
    assert named == methods_of(app)


def test_every_operation_has_a_paid_route_for_each_protocol(app: FastAPI) -> None:
    methods = methods_of(app)
    paid = {path_of(operation, wire.name) for operation in OPERATIONS for wire in WIRES}
    assert len(paid) == 10
    assert all(methods[path] == {"GET", "POST"} for path in paid)


async def test_every_operation_of_the_description_has_a_name_of_its_own(described: Mapping[str, Any]) -> None:
    names = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    # Programs that are generated from the description are named by it.
    assert [name for name in names if not re.fullmatch("[a-z][A-Za-z0-9-]{1,60}", name)] == []


async def test_urls_of_the_description_are_whole(described: Mapping[str, Any]) -> None:
    operations = [operation for methods in described["paths"].values() for operation in methods.values()]
    urls = [operation["externalDocs"]["url"] for operation in operations if "externalDocs" in operation]
    urls += described["x-service-info"]["docs"].values()
    assert len(urls) == len(OPERATIONS) * len(WIRES) + 3
    assert [url for url in urls if not url.startswith("https://rank.example/")] == []


async def test_looking_at_a_price_is_described_as_the_402_that_it_is(described: Mapping[str, Any]) -> None:
    for path in (path_of(operation, wire.name) for operation in OPERATIONS for wire in WIRES):
        get, post = described["paths"][path]["get"], described["paths"][path]["post"]
        assert get["x-payment-info"] == post["x-payment-info"]
        assert "402" in get["responses"]
        assert not [status for status in get["responses"] if status.startswith("2")]


async def test_no_answer_of_the_framework_is_described(described: Mapping[str, Any]) -> None:
    assert "ValidationError" not in str(described)


def test_at_most_ten_layers_stand_around_an_endpoint(app: FastAPI) -> None:
    layer: Any = app.build_middleware_stack()
    layers = [app]
    while layer is not app.router:
        layers.append(layer)
        layer = layer.app
    # The router and its route come last.
    assert len(layers) + 2 <= MOST_LAYERS
    assert sum(isinstance(layer, Envelope) for layer in layers) == 1


def test_a_free_route_declares_what_it_answers(app: FastAPI) -> None:
    paths = {"/healthz", "/readyz", "/v1/attempts", "/preflight"}
    declared = {route.path for route in app.routes if isinstance(route, APIRoute) and route.response_model is not None}
    assert paths == declared


async def test_a_path_with_several_routes_names_the_methods_of_all(service: Service) -> None:
    for path, allowed in (("/preflight", "GET, HEAD, POST"), ("/healthz", "GET, HEAD"), ("/v1/attempts", "GET, HEAD")):
        answer = await service.client.put(path, content=BODY, headers={"Idempotency-Key": KEY, **JSON})
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_a_vary_line_is_said_once(service: Service) -> None:
    for headers in ({}, {"Origin": "https://shop.example"}):
        answer = await service.client.get("/healthz", headers=headers)
        assert answer.headers.get_list("vary") == ["Idempotency-Key, X-Scripted-Payment, Origin"]
