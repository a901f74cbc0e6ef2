"""A caller may ask where its key stands, in every state, and learns what to do next; never a result."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.attempts.events import Event, Grounds, OperatorRelease, OperatorSettle
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.payments.protocol import Refused, Settlement, Spent, Uncertain, Verification
from tests.http.conftest import BODY, KEY, Service

pytestmark = pytest.mark.anyio

MEMBERS = [
    "protocol",
    "operation",
    "state",
    "amount",
    "asset",
    "network",
    "transaction",
    "reportedTransaction",
    "reason",
    "receipt",
    "outputSha256",
    "createdAt",
    "expiresAt",
    "nextStep",
]


async def ask(service: Service, *lines: tuple[str, str]) -> httpx.Response:
    return await service.client.get("/v1/attempts", headers=list(lines or (("Idempotency-Key", KEY),)))


async def document(service: Service) -> dict[str, Any]:
    answer = await ask(service)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    content: dict[str, Any] = answer.json()
    assert list(content) == MEMBERS
    facts = {name: content[name] for name in ("protocol", "operation", "amount", "asset", "network")}
    assert facts == {
        "protocol": "scripted",
        "operation": "ranking-evaluate",
        "amount": "10000",
        "asset": "token",
        "network": "scripted:1",
    }
    result = json.loads(evaluate("ranking-evaluate", BODY))
    assert content["outputSha256"] == result["provenance"]["outputSha256"]
    assert content["createdAt"] == "2027-01-15T08:00:00Z"
    return content


async def test_a_key_that_stands_for_nothing_is_404(service: Service) -> None:
    answer = await ask(service)
    said = answer.json()
    assert (answer.status_code, said["code"]) == (404, "ATTEMPT_UNKNOWN")
    assert said["title"] == "No purchase is recorded under this key"
    assert said["nextStep"].startswith("Nothing was charged here under this key.")
    assert "a challenge under this key may be answered" in said["nextStep"]
    assert (await service.post()).status_code == 402
    assert (await ask(service)).status_code == 404


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ((("X-Other", "x"),), "IDEMPOTENCY_KEY_REQUIRED"),
        ((("Idempotency-Key", "short"),), "IDEMPOTENCY_KEY_INVALID"),
        ((("Idempotency-Key", KEY), ("Idempotency-Key", KEY)), "HEADER_INVALID"),
    ],
)
async def test_the_key_is_held_to_its_form(service: Service, lines: tuple[tuple[str, str], ...], code: str) -> None:
    answer = await ask(service, *lines)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_a_settled_purchase_shows_its_receipt_until_its_window_ends(service: Service) -> None:
    await service.pay()
    found = await document(service)
    assert found["state"] == "settled"
    assert (found["transaction"], found["receipt"]) == ("0x" + "ab" * 32, "the receipt")
    assert found["expiresAt"] == "2027-01-16T08:00:00Z"
    assert "identical body, key and credential" in found["nextStep"]
    service.clock.advance(24 * 3600)
    over = await document(service)
    assert over["state"] == "settled"
    assert "no longer delivered" in over["nextStep"]
    assert "identical" not in over["nextStep"]


async def test_a_paid_key_is_still_known_after_its_row_was_purged(service: Service) -> None:
    await service.pay()
    service.clock.advance(86_401)
    await service.store.purge()
    content = (await ask(service)).json()
    assert list(content) == MEMBERS
    assert content["state"] == "settled"
    assert content["receipt"] is None
    assert content["nextStep"].endswith("Stop: the answer is no longer delivered.")


async def test_an_attempt_under_way_says_wait(service: Service) -> None:
    verification: asyncio.Future[Verification] = asyncio.get_running_loop().create_future()
    settlement: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    service.protocol.verifier = lambda signed: verification
    service.protocol.settler = lambda signed, offer: settlement
    buyer = asyncio.create_task(service.pay())
    while not (await service.store.read(KEY)).rows:  # noqa: ASYNC110 - A row has no event.
        await asyncio.sleep(0.001)
    found = await document(service)
    assert (found["state"], found["expiresAt"], found["transaction"], found["receipt"]) == (
        "reserved",
        None,
        None,
        None,
    )
    assert "Do not sign another credential" in found["nextStep"]
    verification.set_result(type(service.protocol)().verifier(None))  # type: ignore[arg-type]
    while not service.protocol.ledger.calls:  # noqa: ASYNC110 - A dict has no event.
        await asyncio.sleep(0.001)
    assert (await document(service))["state"] == "settling"
    service.clock.advance(12)
    late = await document(service)
    assert late["state"] == "uncertain"
    assert "Do not pay again" in late["nextStep"]
    settlement.set_result(Uncertain("script"))
    assert (await buyer).status_code == 409


async def uncertain(service: Service) -> None:
    service.protocol.settler = lambda signed, offer: Uncertain("script")
    assert (await service.pay()).status_code == 409


async def decide(service: Service, event: Event) -> None:
    row = (await service.store.read(KEY)).standing
    assert row is not None
    assert (await service.store.move(row.claim, event)).owned


async def test_an_uncertain_purchase_says_never_again_and_stays(service: Service) -> None:
    await uncertain(service)
    for _ in range(2):
        found = await document(service)
        assert (found["state"], found["expiresAt"], found["receipt"]) == ("uncertain", None, None)
        assert "Do not pay again" in found["nextStep"]
        service.clock.advance(30 * 24 * 3600)


async def test_a_spent_authorization_is_uncertain(service: Service) -> None:
    service.protocol.verifier = lambda signed: Spent("used")
    assert (await service.pay()).json()["code"] == "PAYMENT_UNCERTAIN"
    assert (await document(service))["state"] == "uncertain"


async def test_a_failed_purchase_may_be_bought_again(service: Service) -> None:
    service.protocol.settler = lambda signed, offer: Refused("no money", "a receipt of the refusal")
    assert (await service.pay()).status_code == 402
    found = await document(service)
    assert (found["state"], found["receipt"], found["transaction"]) == ("failed", None, None)
    assert "Nothing was charged" in found["nextStep"]
    service.clock.advance(24 * 3600)
    assert (await ask(service)).status_code == 404


async def test_an_operators_decisions_show(service: Service) -> None:
    await uncertain(service)
    await decide(service, OperatorRelease("operator", "never landed"))
    released = await document(service)
    assert released["state"] == "released"
    assert "new challenge" in released["nextStep"]
    await decide(service, OperatorSettle("reconciled receipt", "0x" + "cd" * 32, "operator", "the chain"))
    settled = await document(service)
    assert (settled["state"], settled["receipt"], settled["transaction"]) == (
        "settled",
        "reconciled receipt",
        "0x" + "cd" * 32,
    )


TRANSACTION = "0x" + "cd" * 32


@pytest.mark.parametrize(
    ("grounds", "words", "transaction"),
    [
        (Grounds.NEVER_LANDED, "nothing was charged", None),
        (Grounds.OWN_WORD, "If your wallet shows it, stop and ask the operator", None),
        (Grounds.ALTHOUGH_PAID, "You were charged", TRANSACTION),
    ],
)
async def test_what_is_told_of_a_release_is_true_on_its_grounds(
    service: Service, grounds: Grounds, words: str, transaction: str | None
) -> None:
    await uncertain(service)
    await decide(service, OperatorRelease("operator", "evidence", grounds, transaction))
    released = await document(service)
    assert (released["state"], released["transaction"], released["receipt"]) == ("released", transaction, None)
    assert released["reason"] == grounds
    assert words in released["nextStep"]
    assert ("nothing was charged" in released["nextStep"].lower()) == (grounds is Grounds.NEVER_LANDED)
    again = await service.pay()
    assert (again.status_code, again.json()["code"]) == (402, "PAYMENT_REJECTED")
    assert grounds in again.json()["detail"]


async def test_the_answer_holds_no_result_and_nobodys_credential(service: Service) -> None:
    await service.pay()
    text = (await ask(service)).text
    body = evaluate("ranking-evaluate", BODY)
    for secret in ("precision", "first", hashlib.sha256(b"first").hexdigest(), body.decode()):
        assert secret not in text


async def test_a_store_that_cannot_be_read_is_503(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreadable(key: str, proofs: Any = ()) -> Any:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(service.store, "read", unreadable)
    answer = await ask(service)
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "STATE_UNAVAILABLE", "2")
    assert "disk" not in answer.text
