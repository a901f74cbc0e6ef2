"""The facilitator verifies and settles what the official client signs, and gives its reasons when it does not."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from eth_account import Account
from x402 import x402ClientSync
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.schemas import PaymentRequired, PaymentRequirements

from ranking_evaluate.sandbox.wallets import new_wallet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ranking_evaluate.sandbox import FundedProtocol, Wallet

PRICE = 10_000


@pytest.fixture
def client(funded: FundedProtocol) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=str(funded.info["facilitator"]), trust_env=False, timeout=30) as opened:
        yield opened


def requirements(funded: FundedProtocol) -> PaymentRequirements:
    return PaymentRequirements(
        scheme="exact",
        network=funded.network,
        asset=funded.asset,
        amount=str(PRICE),
        pay_to=funded.payee,
        max_timeout_seconds=120,
        extra={"name": funded.info["assetName"], "version": funded.info["assetVersion"]},
    )


def payment(funded: FundedProtocol, payer: Wallet | None = None) -> dict[str, Any]:
    """Return the body of /verify and /settle for one payment that the official client has signed."""
    offered = requirements(funded)
    client = x402ClientSync()
    client.set_spend_controls(
        {"allowed_assets": [{"network": funded.network, "asset": funded.asset, "max_amount_per_payment": str(PRICE)}]}
    )
    register_exact_evm_client(client, Account.from_key((payer or funded.payer).key), networks=funded.network)
    signed = client.create_payment_payload(PaymentRequired(x402_version=2, accepts=[offered]))
    return {
        "x402Version": 2,
        "paymentPayload": signed.model_dump(by_alias=True, exclude_none=True),
        "paymentRequirements": offered.model_dump(by_alias=True, exclude_none=True),
    }


def test_it_supports_exact_payments_on_its_chain(funded: FundedProtocol, client: httpx.Client) -> None:
    kinds = client.get("/supported").json()["kinds"]
    assert {"x402Version": 2, "scheme": "exact", "network": funded.network} in kinds


def test_a_verified_payment_settles_once(funded: FundedProtocol, client: httpx.Client) -> None:
    body = payment(funded)
    before = funded.balance(funded.payer.address), funded.balance(funded.payee)
    assert client.post("/verify", json=body).json() == {"isValid": True, "payer": funded.payer.address}
    assert (funded.balance(funded.payer.address), funded.balance(funded.payee)) == before

    settled = client.post("/settle", json=body).json()
    assert settled["success"] is True
    assert settled["network"] == funded.network
    assert settled["payer"] == funded.payer.address
    assert funded.is_confirmed(settled["transaction"])
    assert (funded.balance(funded.payer.address), funded.balance(funded.payee)) == (
        before[0] - PRICE,
        before[1] + PRICE,
    )

    used = "invalid_exact_evm_nonce_already_used"
    assert client.post("/verify", json=body).json()["invalidReason"] == used
    # The SDK's facilitator does not try a settlement before it sends it: the transaction is mined, and reverts.
    again = client.post("/settle", json=body).json()
    assert (again["success"], again["errorReason"]) == (False, "transaction_failed")
    assert not funded.is_confirmed(again["transaction"])
    assert funded.balance(funded.payee) == before[1] + PRICE


def test_a_wallet_without_tokens_is_refused(funded: FundedProtocol, client: httpx.Client) -> None:
    body = payment(funded, new_wallet())
    poor = "invalid_exact_evm_insufficient_balance"
    assert client.post("/verify", json=body).json()["invalidReason"] == poor
    settled = client.post("/settle", json=body).json()
    assert (settled["success"], settled["errorReason"]) == (False, "transaction_failed")
    assert not funded.is_confirmed(settled["transaction"])


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("validBefore", "1", "invalid_exact_evm_payload_authorization_valid_before"),
        ("validAfter", str(2**40), "invalid_exact_evm_payload_authorization_valid_after"),
        ("value", str(PRICE - 1), "invalid_exact_evm_payload_authorization_value_mismatch"),
        ("to", "0x" + "11" * 20, "invalid_exact_evm_payload_recipient_mismatch"),
        ("nonce", "0x" + "22" * 32, "invalid_exact_evm_payload_signature"),
    ],
)
def test_changed_terms_are_refused(
    funded: FundedProtocol, client: httpx.Client, member: str, value: str, reason: str
) -> None:
    body = copy.deepcopy(payment(funded))
    body["paymentPayload"]["payload"]["authorization"][member] = value
    assert client.post("/verify", json=body).json()["invalidReason"] == reason


def test_another_scheme_is_refused(funded: FundedProtocol, client: httpx.Client) -> None:
    body = copy.deepcopy(payment(funded))
    body["paymentPayload"]["accepted"]["scheme"] = body["paymentRequirements"]["scheme"] = "upto"
    assert client.post("/verify", json=body).json() == {"isValid": False, "invalidReason": "unsupported_scheme"}
    settled = client.post("/settle", json=body).json()
    assert (settled["success"], settled["errorReason"]) == (False, "unsupported_scheme")


def test_concurrent_settlements_do_not_disturb_each_other(funded: FundedProtocol, client: httpx.Client) -> None:
    before = funded.balance(funded.payee)
    bodies = [payment(funded) for _ in range(12)]
    with ThreadPoolExecutor(len(bodies)) as threads:
        answers = list(threads.map(lambda body: client.post("/settle", json=body).json(), bodies))
    assert [answer["success"] for answer in answers] == [True] * len(bodies)
    assert len({answer["transaction"] for answer in answers}) == len(bodies)
    assert funded.balance(funded.payee) == before + len(bodies) * PRICE


def test_an_unknown_transaction_is_not_confirmed(funded: FundedProtocol) -> None:
    assert not funded.is_confirmed("0x" + "ab" * 32)
