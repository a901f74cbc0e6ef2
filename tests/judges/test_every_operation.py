"""Every operation is sold alike: over both protocols, replayed, and verified without the service."""

from __future__ import annotations

import json
from decimal import Decimal

import httpx
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.cli.pay import new_key
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import Mandate
from ranking_evaluate.contract.verify import verify
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.sandbox import Sandbox


@pytest.mark.parametrize("protocol", PAYERS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: str(operation.id))
def test_an_operation_is_bought_replayed_and_verified_offline(
    sandbox: Sandbox, operation: Operation[object], protocol: str
) -> None:
    [funded] = [funded for funded in sandbox.protocols if funded.protocol == protocol]
    body = json.dumps(operation.example_input).encode()
    url = f"{sandbox.origin}/v1/{protocol}/{operation.id}"
    headers = {"Content-Type": "application/json", "Idempotency-Key": (key := new_key())}
    mandate = Mandate(
        wallet_key=funded.payer.key, key=key, max_amount=Decimal("0.01"), asset=funded.asset, rpc_url=funded.rpc
    )
    with httpx.Client(trust_env=False, timeout=60) as client:
        challenge = client.post(url, content=body, headers=headers)
        assert challenge.status_code == 402
        said = challenge.json()
        [asked] = said["payment"]
        assert asked.pop("network").startswith("eip155:")
        assert asked == {
            "protocol": protocol,
            "amount": "10000",
            "asset": funded.asset,
            "recipient": funded.payee,
        }
        assert client.get(said["documentation"]).text.startswith("# ranking-evaluate")
        signed = PAYERS[protocol].sign(challenge, mandate)
        before = funded.balance(funded.payee)
        paid, replayed = (
            client.post(url, content=body, headers={**headers, signed.header: signed.value}) for _ in range(2)
        )
    assert paid.status_code == replayed.status_code == 200
    assert paid.content == replayed.content == evaluate(operation.id, body)
    receipt = PAYERS[protocol].wire.receipt_header
    assert paid.headers[receipt] == replayed.headers[receipt]
    assert "Idempotent-Replayed" not in paid.headers
    assert replayed.headers["Idempotent-Replayed"] == "true"
    assert funded.balance(funded.payee) - before == operation.price_base_units
    assert verify(paid.content, body).differences == ()
