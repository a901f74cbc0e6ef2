"""The demonstration believes nothing that it has not seen."""

from __future__ import annotations

import base64
import json
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.cli.demo import INPUT, OPERATION, DemoError, Purchase, _expect, check
from ranking_evaluate.cli.payers import mpp, x402
from ranking_evaluate.sandbox import FundedProtocol, Wallet

TRANSACTION = "0x" + "ab" * 32
PAYER = Wallet(key="0x" + "11" * 32, address="0x" + "Aa" * 20)
RECEIPT = {"success": True, "transaction": TRANSACTION, "network": "eip155:31337", "payer": PAYER.address.lower()}
LOCAL = evaluate(OPERATION, json.dumps(INPUT).encode())

RAIL = FundedProtocol(
    protocol="x402",
    network="eip155:31337",
    asset="0x" + "22" * 20,
    asset_name="Sandbox Dollar",
    payer=PAYER,
    payee="0x" + "33" * 20,
    environment={},
    info={},
    exports={},
    rpc="http://127.0.0.1:1",
    balance=lambda address: 0,
    is_confirmed=lambda transaction: transaction == TRANSACTION,
)


def answer(
    status: int = 200, body: bytes = LOCAL, receipt: bytes = b"receipt", replayed: bool = False
) -> httpx.Response:
    marks = {"Idempotent-Replayed": "true"} if replayed else {}
    return httpx.Response(
        status, content=body, headers={"PAYMENT-RESPONSE": base64.b64encode(receipt).decode(), **marks}
    )


GOOD = Purchase(
    key="demo_key_0123456789",
    challenge=httpx.Response(402),
    paid=answer(),
    replay=answer(replayed=True),
    receipt=x402.facts(RECEIPT),
    before=(50_000, 0),
    after=(40_000, 10_000),
    after_replay=(40_000, 10_000),
)


def failing(purchase: Purchase) -> set[str]:
    return {claim for claim, holds in check(RAIL, purchase, LOCAL) if not holds}


def test_a_good_purchase_passes_every_check() -> None:
    assert failing(GOOD) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"challenge": httpx.Response(200)},
        {"paid": answer(body=LOCAL + b" "), "replay": answer(body=LOCAL + b" ", replayed=True)},
        {"receipt": x402.facts({**RECEIPT, "success": False})},
        {"receipt": x402.facts({**RECEIPT, "transaction": "0x" + "cd" * 32})},
        {"receipt": x402.facts({**RECEIPT, "transaction": ""})},
        {"receipt": x402.facts({**RECEIPT, "payer": RAIL.payee})},
        {"receipt": x402.facts({**RECEIPT, "network": "eip155:1"})},
        {"before": (50_001, 0)},
        {"before": (50_000, 1)},
        {"replay": answer(body=LOCAL + b" ", replayed=True)},
        {"replay": answer(receipt=b"another", replayed=True)},
        {"replay": answer()},
        {"paid": answer(replayed=True)},
        {"after_replay": (30_000, 20_000)},
    ],
)
def test_every_check_can_fail_alone(wrong: dict[str, Any]) -> None:
    assert len(failing(replace(GOOD, **wrong))) == 1


def over_mpp(purchase: Purchase) -> set[str]:
    """Return what is not true of the same purchase over MPP, where the payer pays the chain's fee in the asset."""
    funded = replace(RAIL, protocol="mpp", takes_gas_in_asset=True)

    def relabelled(response: httpx.Response) -> httpx.Response:
        headers = {**response.headers, "Payment-Receipt": response.headers["PAYMENT-RESPONSE"]}
        return httpx.Response(response.status_code, content=response.content, headers=headers)

    paid, replay = relabelled(purchase.paid), relabelled(purchase.replay)
    return {claim for claim, holds in check(funded, replace(purchase, paid=paid, replay=replay), LOCAL) if not holds}


MPP_RECEIPT = {"status": "success", "method": "tempo", "reference": TRANSACTION, "externalId": GOOD.key}
MPP_GOOD = replace(GOOD, receipt=mpp.facts(MPP_RECEIPT), before=(50_000, 0), after=(39_000, 10_000))


def test_a_good_purchase_over_mpp_passes_every_check() -> None:
    assert over_mpp(replace(MPP_GOOD, after_replay=MPP_GOOD.after)) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"receipt": mpp.facts({**MPP_RECEIPT, "status": "failed"})},
        {"receipt": mpp.facts({**MPP_RECEIPT, "reference": "0x" + "cd" * 32})},
        {"receipt": mpp.facts({**MPP_RECEIPT, "externalId": "another_key_0123456789"})},
        {"receipt": mpp.facts({**MPP_RECEIPT, "externalId": None})},
        # The price and more than a cent for the chain, or no fee at all.
        {"before": (60_000, 0)},
        {"before": (49_000, 0)},
        {"after_replay": (38_000, 10_000)},
    ],
)
def test_every_check_over_mpp_can_fail_alone(wrong: dict[str, Any]) -> None:
    assert len(over_mpp(replace(MPP_GOOD, **{"after_replay": MPP_GOOD.after, **wrong}))) == 1


def test_an_unexpected_answer_is_quoted() -> None:
    with pytest.raises(DemoError, match="Instead of 200 the service answered 503: closed"):
        _expect(200, httpx.Response(503, text="closed"))


def test_the_whole_demonstration_runs_and_holds() -> None:
    command = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
    done = subprocess.run([command, "demo"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Everything above was checked and holds." in done.stdout
    assert "FAILED" not in done.stdout
