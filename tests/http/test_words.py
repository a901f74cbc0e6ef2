"""What the answers say beside their codes: who is paid what, what is sold here, and no word of money on free routes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ranking_evaluate import bootstrap
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.contract.problems import PROBLEMS
from ranking_evaluate.payments.protocol import Readiness, Rejected, Uncertain
from ranking_evaluate.settings import read_settings
from tests.faults.facilitator import FaultyFacilitator, ledger_only
from tests.http.conftest import BODY, JSON, KEY, PATH, Options, Service, Start

pytestmark = pytest.mark.anyio

ASKED = {
    "payment": [
        {"protocol": "scripted", "amount": "10000", "asset": "token", "network": "scripted:1", "recipient": "payee"}
    ],
    "documentation": "https://rank.example/llms.txt",
}


async def test_every_402_says_who_is_paid_what_and_where_to_read(service: Service) -> None:
    answers = [await service.post(), await service.client.get(PATH)]
    service.protocol.verifier = lambda signed: Rejected("no money")
    answers.append(await service.pay())
    assert [answer.json()["code"] for answer in answers] == ["PAYMENT_REQUIRED", "PAYMENT_REQUIRED", "PAYMENT_REJECTED"]
    for answer in answers:
        assert answer.status_code == 402
        assert {name: answer.json()[name] for name in ASKED} == ASKED
        # Heads are short of room; the body is not.
        assert "documentation" not in str(answer.headers)


@pytest.fixture
async def x402_only(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The service as an operator starts it who takes x402 and not MPP."""
    with FaultyFacilitator(ledger_only("eip155:84532")) as facilitator:
        variables = {
            "DATABASE_URL": f"sqlite:///{tmp_path}/attempts.db",
            "X402_PAY_TO": "0x" + "11" * 20,
            "X402_NETWORK": "eip155:84532",
            "X402_FACILITATOR_URL": facilitator.url,
        }
        app = bootstrap.build(read_settings({f"RANKING_EVALUATE_{name}": text for name, text in variables.items()}))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        origin = app.state.parts.public_origin
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=origin) as client:
            yield client


async def test_a_version_1_client_is_told_what_is_taken_here(x402_only: httpx.AsyncClient) -> None:
    paid = {**JSON, "Idempotency-Key": KEY, "X-PAYMENT": "eyJ4NDAyVmVyc2lvbiI6MX0="}
    answer = await x402_only.post("/v1/x402/ranking-evaluate", content=BODY, headers=paid)
    said = answer.json()
    assert (answer.status_code, said["code"], said["cause"]) == (402, "PAYMENT_REQUIRED", "version")
    assert (
        "X-PAYMENT is the header of x402 version 1; version 2 is taken here, which sends PAYMENT-SIGNATURE."
        in (said["detail"])
    )
    assert "sign nothing more with version 1" in said["nextStep"]
    plain = await x402_only.post("/v1/x402/ranking-evaluate", content=BODY, headers={**JSON, "Idempotency-Key": KEY})
    assert plain.headers["payment-required"] == answer.headers["payment-required"]
    assert "cause" not in plain.json()


async def test_a_protocol_that_is_not_taken_is_not_to_be_waited_for(x402_only: httpx.AsyncClient) -> None:
    sent = {**JSON, "Idempotency-Key": KEY}
    path = "/v1/mpp/ranking-evaluate"
    for answer in (
        await x402_only.post(path, content=BODY, headers=sent),
        await x402_only.post(path, content=BODY, headers={**sent, "Authorization": "Payment e30"}),
        await x402_only.get(path),
    ):
        said = answer.json()
        assert (answer.status_code, said["code"], said["cause"]) == (503, "PAYMENT_UNAVAILABLE", "unconfigured")
        assert (said["retryable"], said["retryAfter"], answer.headers.get("retry-after")) == (False, None, None)
        assert said["nextStep"] == "GET /readyz names what is sold here; use the other path with a new key."
    asked = {"operation": "ranking-evaluate", "requirements": {"payment.mpp": True, "payment.x402": True}}
    compared = (await x402_only.post("/preflight", json=asked)).json()
    assert {name: one["status"] for name, one in compared["requirements"].items()} == {
        "payment.mpp": "incompatible",
        "payment.x402": "compatible",
    }
    facts = (await x402_only.get("/preflight")).json()["operations"][0]["facts"]
    assert (facts["payment.x402"], facts["payment.mpp"]) == (True, False)
    # The contract is of the release, which speaks both.
    contract = (await x402_only.get("/reference/services/ranking-evaluate.json")).json()
    assert contract["requirementsProfile"]["facts"]["payment.mpp"] is True


async def test_the_first_words_about_an_uncertain_payment_are_that_it_may_have_been_made(service: Service) -> None:
    service.protocol.settler = lambda signed, offer: Uncertain("no answer", "settlement_pending", "0xreported")
    for answer in (await service.pay(), await service.pay()):
        said = answer.json()
        assert (answer.status_code, said["code"]) == (409, "PAYMENT_UNCERTAIN")
        assert said["title"].startswith("The payment may have been made")
        assert said["detail"].startswith("The payment may have been made")
        assert "settlement_pending" in said["detail"]
        assert "Do not pay again" in said["nextStep"]


# Free routes.

MONEY = re.compile(r"idempotency|\bkeys?\b|charge|pay|credential|sign", re.IGNORECASE)


async def test_a_refusal_on_a_free_route_speaks_neither_of_keys_nor_of_charging(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await start(Options())
    client = service.client
    refused = [
        await client.post("/preflight", content=b"{", headers=JSON),
        await client.post("/preflight", content=b"{}", headers=JSON),
        await client.post("/preflight", content=b"[" * 200_000, headers=JSON),
        await client.post("/preflight", content=BODY, headers={"Content-Type": "text/plain"}),
        await client.post("/preflight", content=BODY, headers={**JSON, "Content-Encoding": "gzip"}),
        await client.post("/preflight", content=b"{}", headers=[("Content-Type", "application/json")] * 2),
        await client.post("/preflight?validate=ranking-evaluate", content=b'{"queries":[]}', headers=JSON),
        await client.post("/preflight?validate=none", content=BODY, headers=JSON),
        await client.get("/nowhere"),
        await client.delete("/healthz"),
    ]
    limited = await start(Options(request_rate="1/minute"))
    refused += [await limited.client.get("/preflight") for _ in range(2)][1:]
    busy = await start(Options(max_in_flight=0))
    refused.append(await busy.client.get("/preflight"))
    monkeypatch.setattr("ranking_evaluate.http.preflight.declare", None)
    refused.append(await client.get("/preflight"))
    statuses = [answer.status_code for answer in refused]
    assert statuses == [400, 422, 413, 415, 415, 400, 422, 404, 404, 405, 429, 503, 500]
    for answer in refused:
        said = answer.json()
        for member in ("title", "detail", "nextStep"):
            assert not MONEY.search(said[member]), said


async def test_a_paid_route_says_what_becomes_of_the_key(service: Service) -> None:
    said = (await service.post(body=b"{")).json()
    assert said["nextStep"] == (
        "Correct the input and send it again. Keep the Idempotency-Key: this request was not charged."
    )


# 503.


@pytest.mark.parametrize("code", ["OVERLOADED", "PAYMENT_UNAVAILABLE", "STATE_UNAVAILABLE"])
async def test_every_503_names_readyz(start: Start, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    service = await start(Options(max_in_flight=0 if code == "OVERLOADED" else 256))
    service.protocol.readiness = Readiness(code != "PAYMENT_UNAVAILABLE", "asleep")

    async def unreadable(key: str, proofs: Any = ()) -> Any:
        raise StoreUnavailable("the disk is full")

    if code == "STATE_UNAVAILABLE":
        monkeypatch.setattr(service.store, "read", unreadable)
    answer: httpx.Response = await service.post()
    said = answer.json()
    assert (answer.status_code, said["code"], said["retryable"]) == (503, code, True)
    assert "GET /readyz" in said["nextStep"]
    assert said["nextStep"] == PROBLEMS[code].next_step


# The answer key of first-usable-rank.


@pytest.mark.parametrize(
    ("value", "code"),
    [({"queries": [{"hits": []}]}, "usable-labels"), ({"queries": [{"hits": [], "usable": []}] * 11}, "score-bounds")],
)
async def test_the_named_refusals_carry_the_answer_keys_own_form(service: Service, value: Any, code: str) -> None:
    body = json.dumps(value).encode()
    for answer in (
        await service.post(body=body, path="/v1/scripted/first-usable-rank"),
        await service.client.post("/preflight?validate=first-usable-rank", content=body, headers=JSON),
    ):
        said = answer.json()
        assert (answer.status_code, said["code"], said["error"]) == (422, code, code)


async def test_no_other_refusal_has_that_member(service: Service) -> None:
    answer = await service.post(body=b'{"queries":[],"more":1}', path="/v1/scripted/first-usable-rank")
    assert (answer.json()["code"], "error" in answer.json()) == ("INVALID_INPUT", False)
