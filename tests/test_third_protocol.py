"""A payment protocol that is added to bootstrap's list stands in everything that lists protocols."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from ranking_evaluate import bootstrap, cli
from ranking_evaluate.bootstrap import PROTOCOLS, Known
from ranking_evaluate.cli import pay
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import Mandate, Payer, ReceiptFacts, Signed
from ranking_evaluate.contract import reference
from ranking_evaluate.contract.document import path_of
from ranking_evaluate.contract.wire import Client
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.payments.protocol import Offer, Settled, Settlement
from ranking_evaluate.settings import read_settings
from tests import fakes
from tests.fakes import ScriptedProtocol

pytestmark = pytest.mark.anyio

KEY = "purchase-of-monday-0001"
ORIGIN = "http://127.0.0.1:8402"
BODY = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'
RECEIPT = "eyJzdWNjZXNzIjogdHJ1ZX0="
JSON = {"Content-Type": "application/json", "Idempotency-Key": KEY}

WIRE = replace(
    ScriptedProtocol.wire,
    title="The Scripted Way",
    facts=(("sdk", "a script"),),
    guide="**Paying by script**\n\nFirst $first:\n\n```python\n$pay_scripted_py\n```\n",
    clients=(Client("pay_scripted.py", "print('paid')\n"),),
)
WIRES = (*bootstrap.WIRES, WIRE)


class Third(ScriptedProtocol):
    """The third protocol, which settles every payment."""

    wire = WIRE

    def __init__(self) -> None:
        super().__init__()
        self.settler = self._settle

    def _settle(self, signed: fakes.Signed, offer: Offer) -> Settlement:
        return Settled(RECEIPT, "0x" + "ab" * 32, "payer")


LISTED = (*PROTOCOLS, Known(WIRE, lambda settings: Third()))


@asynccontextmanager
async def running(tmp_path: Path, known: tuple[Known, ...]) -> AsyncIterator[httpx.AsyncClient]:
    """Serve these protocols, of which only the third needs no settings."""
    variables = {"DATABASE_URL": f"sqlite:///{tmp_path}/attempts.db", "CORS_ORIGINS": "https://shop.example"}
    settings = read_settings({f"RANKING_EVALUATE_{name}": value for name, value in variables.items()})
    app = bootstrap.build(settings, known)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
        yield client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with running(tmp_path, LISTED) as started:
        yield started


def credential() -> dict[str, str]:
    return fakes.Signed(KEY, "first", 4_000_000_000.0).header()


async def test_it_has_a_route_for_each_operation_and_sells_there(client: httpx.AsyncClient) -> None:
    for operation in OPERATIONS:
        assert (await client.get(path_of(operation, "scripted"))).status_code == 402
    paid = await client.post(path_of(OPERATIONS[0], "scripted"), content=BODY, headers={**JSON, **credential()})
    assert (paid.status_code, paid.headers["x-scripted-receipt"]) == (200, RECEIPT)


async def test_its_credential_is_refused_on_the_routes_of_others(client: httpx.AsyncClient) -> None:
    refused = await client.post(path_of(OPERATIONS[0], "mpp"), content=BODY, headers={**JSON, **credential()})
    assert (refused.status_code, refused.json()["code"]) == (400, "PAYMENT_PROTOCOL_MISMATCH")


async def test_it_stands_in_every_document(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    paths = {path_of(operation, "scripted") for operation in OPERATIONS}
    assert paths == {path for path in described["paths"] if path.startswith("/v1/") and path != "/v1/attempts"}
    post = described["paths"][path_of(OPERATIONS[0], "scripted")]["post"]
    assert "X-Scripted-Payment" in [parameter["name"] for parameter in post["parameters"]]
    assert "X-Scripted-Receipt" in post["responses"]["200"]["headers"]
    assert "X-Scripted-Challenge" in described["components"]["responses"]["402-scripted"]["headers"]

    agents = (await client.get("/llms.txt")).text
    assert "paid over x402 or MPP or The Scripted Way" in agents
    assert "The five clients below" in agents
    assert "- scripted: SCRIPTED_NETWORK=scripted:1 SCRIPTED_ASSET=token SCRIPTED_PAY_TO=payee\n" in agents
    assert "**Paying by script**\n\nFirst ranking-evaluate:\n\n```python\nprint('paid')\n```\n" in agents

    listed = (await client.get("/.well-known/x402")).json()
    # What announces its terms in x402's form stands there, whatever its name.
    assert {entry["resource"] for entry in listed["resources"]} == {ORIGIN + path for path in paths}

    page = (await client.get("/")).text
    assert "<strong>scripted</strong>" in page
    assert f"POST {' · '.join(path_of(OPERATIONS[0], wire.name) for wire in WIRES)}" in page


async def test_it_stands_in_the_reference(client: httpx.AsyncClient) -> None:
    rendered = reference.render(WIRES)
    assert rendered["reference/examples/pay_scripted.py"] == b"print('paid')\n"
    contract = json.loads(rendered[f"reference/services/{OPERATIONS[0].id}.json"])
    assert contract["paths"]["scripted"] == path_of(OPERATIONS[0], "scripted")
    assert contract["paymentWorkflow"]["supportedProtocols"] == ["x402", "mpp", "scripted"]
    assert contract["paymentWorkflow"]["scripted"]["sdk"] == "a script"
    for path in ("reference/README.md", f"reference/tools/{OPERATIONS[0].id}.md", "reference/examples/pay_scripted.py"):
        assert (await client.get(f"/{path}")).content == rendered[path]


async def test_it_is_among_the_facts_of_the_preflight(client: httpx.AsyncClient) -> None:
    for declared in (await client.get("/preflight")).json()["operations"]:
        assert declared["facts"]["payment.scripted"] is True
    asked = await client.post("/preflight", json={"requirements": {"payment.scripted": True}})
    assert [found["overall"] for found in asked.json()] == ["compatible"] * len(OPERATIONS)


async def test_it_is_ready_beside_those_that_are_not_configured(client: httpx.AsyncClient) -> None:
    said = (await client.get("/readyz")).json()
    assert said["ready"]
    assert {name: (one["configured"], one["reason"]) for name, one in said["rails"].items()} == {
        "x402": (False, "not configured"),
        "mpp": (False, "not configured"),
        "scripted": (True, None),
    }


async def test_a_protocol_that_nobody_configured_has_routes_that_take_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, (*PROTOCOLS, Known(WIRE, lambda settings: None))) as client:
        path = path_of(OPERATIONS[0], "scripted")
        for answer in (await client.get(path), await client.post(path, content=BODY, headers=JSON)):
            assert (answer.status_code, answer.json()["code"]) == (503, "PAYMENT_UNAVAILABLE")
            assert answer.json()["detail"] == "No payment can be taken at the moment: not configured."
        refused = await client.post(path, content=BODY, headers={**JSON, **credential()})
        assert (refused.status_code, refused.json()["code"]) == (503, "PAYMENT_UNAVAILABLE")
        assert refused.json()["detail"] == "This service takes no scripted payments."
        assert (await client.post(path, content=b"{}", headers=JSON)).status_code == 422
        other = {**JSON, "PAYMENT-SIGNATURE": "e30="}
        assert (await client.post(path, content=BODY, headers=other)).json()["code"] == "PAYMENT_PROTOCOL_MISMATCH"
        assert "- scripted: not taken here; its paths answer 503\n" in (await client.get("/llms.txt")).text
        assert not [
            name for name in (await client.get("/openapi.json")).json()["paths"] if name.startswith("/v1/scripted")
        ]


async def test_its_credential_stands_on_one_line(client: httpx.AsyncClient) -> None:
    ((name, value),) = credential().items()
    lines = [*JSON.items(), (name, value), (name, value)]
    refused = await client.post(path_of(OPERATIONS[0], "scripted"), content=BODY, headers=lines)
    assert (refused.status_code, refused.json()["code"]) == (400, "HEADER_INVALID")


async def test_browsers_may_send_and_read_its_headers(client: httpx.AsyncClient) -> None:
    origin = {"Origin": "https://shop.example"}
    asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-scripted-payment"}
    allowed = await client.options(path_of(OPERATIONS[0], "scripted"), headers=asked)
    assert "X-Scripted-Payment" in allowed.headers["access-control-allow-headers"]
    answer = await client.get(path_of(OPERATIONS[0], "scripted"), headers=origin)
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert {"X-Scripted-Challenge", "X-Scripted-Receipt"} <= set(exposed)


async def test_caches_are_told_that_answers_vary_by_it(client: httpx.AsyncClient) -> None:
    assert "X-Scripted-Payment" in (await client.get("/healthz")).headers["vary"].split(", ")


# The command that pays.


def sign(challenge: httpx.Response, mandate: Mandate) -> Signed:
    assert challenge.headers["x-scripted-challenge"] == mandate.key
    ((header, value),) = credential().items()
    return Signed(header=header, value=value, expires_at=4_000_000_000, terms="a token")


def facts(receipt: Any) -> ReceiptFacts:
    return ReceiptFacts(success=True, transaction="", network=None, payer=None, amount=None, key=None)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAYERS, "scripted", Payer(wire=WIRE, sign=sign, facts=facts))
    monkeypatch.setenv("RANKING_EVALUATE_WALLET_KEY", "0x" + "11" * 32)


def test_every_listed_protocol_has_a_payer() -> None:
    assert [payer.wire for payer in PAYERS.values()] == list(bootstrap.WIRES)


@pytest.mark.usefixtures("offered")
def test_pay_buys_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(404, json={"code": "NOT_FOUND"})
        if "x-scripted-payment" in request.headers:
            return httpx.Response(200, content=b"answer", headers={"X-Scripted-Receipt": RECEIPT})
        return httpx.Response(402, headers={"X-Scripted-Challenge": KEY})

    monkeypatch.setattr(pay, "http_client", lambda url: httpx.Client(transport=httpx.MockTransport(answer)))
    (tmp_path / "input.json").write_bytes(BODY)
    options = ["--protocol", "scripted", "--input", f"{tmp_path}/input.json", "--key", KEY]
    command = ["pay", "https://shop.example/v1/scripted/ranking-evaluate", *options]
    done = CliRunner().invoke(cli.app, [*command, "--state-dir", f"{tmp_path}/state"])
    assert (done.exit_code, done.stdout) == (0, "answer")
    assert 'Paid. Receipt: {"success": true}' in done.stderr


def test_pay_names_the_protocols_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "input.json").write_bytes(BODY)
    command = ["pay", "https://shop.example/", "--protocol", "cash", "--input", f"{tmp_path}/input.json"]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 2
    assert "'cash' is not one of 'x402', 'mpp'." in done.stderr
