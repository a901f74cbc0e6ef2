"""`pay` and a shop that wants more than the buyer means to give, or answers what cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result
from x402.http.utils import decode_payment_signature_header
from x402.schemas import PaymentPayload

from ranking_evaluate.cli import app
from ranking_evaluate.cli.buying import Order, run_pay
from ranking_evaluate.cli.exchange import http_client
from ranking_evaluate.cli.payers.payer import NOT_CHARGED, UNCLEAR, Mandate, PayError
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.cli.hostile import OFFER, Shop, encoded, shop, x402_offer

WALLET: Final = new_wallet()
KEY: Final = "test_key_0123456789"
BITCOIN: Final = "0xcbB7C0000aB88B473b1f5aFd9ef808440eed33Bf"
"""Coinbase's, of eight decimals: the base units of one cent in a dollar are ten dollars in it."""
BASE_USDC: Final = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"

REFUSED: Final = "No offer can be paid"
UNKNOWN: Final = "no dollar of this address there"
NO_DECIMALS: Final = "name them with --decimals"


def offer(network: str, asset: str, amount: str = "10000") -> dict[str, Any]:
    return {**OFFER, "network": network, "asset": asset, "amount": amount}


def buy(served: Shop, folder: Path, *options: str) -> Result:
    (folder / "input.json").write_text("{}")
    command = ["pay", served.url, "--protocol", "x402", "--input", str(folder / "input.json")]
    environment = {"RANKING_EVALUATE_WALLET_KEY": WALLET.key}
    return CliRunner().invoke(app, [*command, "--state-dir", str(folder / "state"), *options], env=environment)


def paid_with(served: Shop) -> tuple[str, str, str]:
    """Return chain, asset and amount of the one payment that the shop was sent."""
    (credential,) = served.credentials
    payload = decode_payment_signature_header(credential)
    assert isinstance(payload, PaymentPayload)
    return payload.accepted.network, payload.accepted.asset, payload.payload["authorization"]["value"]


@pytest.mark.parametrize(
    ("network", "asset"),
    [
        ("eip155:10", BITCOIN),
        ("eip155:56", BITCOIN),
        ("eip155:987654321", BITCOIN),
        ("eip155:8453", BITCOIN),
        ("eip155:1", BITCOIN),
        ("eip155:10", BASE_USDC),
        ("eip155:987654321", BASE_USDC),
        ("eip155:313370", BITCOIN),
        ("eip155:031337", BITCOIN),
        ("eip155:31337 ", BITCOIN),
        ("solana:31337", BITCOIN),
    ],
)
def test_no_token_is_paid_with_that_is_no_known_dollar(network: str, asset: str, tmp_path: Path) -> None:
    with shop(x402_offer(offer(network, asset), offer(network, asset, "1"))) as served:
        done = buy(served, tmp_path)
    assert (done.exit_code, REFUSED in done.stderr, served.credentials) == (NOT_CHARGED, True, [])
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("network", ["eip155:31337", "eip155:1337"])
def test_on_a_chain_of_ones_own_any_token_will_do(network: str, tmp_path: Path) -> None:
    with shop(x402_offer(offer(network, BITCOIN))) as served:
        assert buy(served, tmp_path).exit_code == 0
        assert paid_with(served) == (network, BITCOIN, "10000")


def test_a_cheaper_token_beside_the_dollar_is_no_bait(tmp_path: Path) -> None:
    with shop(x402_offer(offer("eip155:10", BITCOIN, "1"), offer("eip155:8453", BASE_USDC))) as served:
        assert buy(served, tmp_path).exit_code == 0
        assert paid_with(served) == ("eip155:8453", BASE_USDC, "10000")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        # Nobody guesses the decimals of a token that was named.
        (["--asset", BITCOIN], NO_DECIMALS),
        (["--asset", BASE_USDC], "another asset than --asset"),
        # With two decimals 10000 base units are a hundred of it.
        (["--asset", BITCOIN, "--decimals", "2"], "The price is 100, more than the 0.01 allowed"),
        # Decimals alone name no asset.
        (["--decimals", "8"], UNKNOWN),
    ],
)
def test_a_named_token_is_counted_in_its_own_decimals(options: list[str], words: str, tmp_path: Path) -> None:
    with shop(x402_offer(offer("eip155:10", BITCOIN))) as served:
        done = buy(served, tmp_path, *options)
    assert (done.exit_code, words in done.stderr, served.credentials) == (NOT_CHARGED, True, [])


def test_a_named_token_with_its_decimals_is_paid_and_told(tmp_path: Path) -> None:
    with shop(x402_offer(offer("eip155:10", BITCOIN))) as served:
        done = buy(served, tmp_path, "--asset", BITCOIN.lower(), "--decimals", "8")
        assert paid_with(served) == ("eip155:10", BITCOIN, "10000")
    assert (done.exit_code, f"Paying 0.0001 of {BITCOIN} on eip155:10" in done.stderr) == (0, True)


def test_decimals_of_a_known_dollar_are_the_sdks(tmp_path: Path) -> None:
    with shop(x402_offer(offer("eip155:8453", BASE_USDC, "20000"))) as served:
        done = buy(served, tmp_path, "--asset", BASE_USDC, "--decimals", "18")
    assert (done.exit_code, "The price is 0.02" in done.stderr, served.credentials) == (NOT_CHARGED, True, [])


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (503, b"{}", {"Retry-After": "\xb2"}),
        (503, b"{}", {"Retry-After": "9" * 400}),
        (503, b"[" * 100_000, {}),
        (503, b'{"detail": "\\ud800", "code": {"a": [1]}}', {}),
        (200, b"no gzip", {"Content-Encoding": "gzip"}),
        (409, b"\xff\xfe", {"Content-Type": "application/json; charset=utf-99"}),
    ],
    ids=["superscript", "endless wait", "deep", "half a character", "no gzip", "no charset"],
)
def test_an_answer_that_cannot_be_read_leaves_it_unclear(
    status: int, body: bytes, headers: dict[str, str], tmp_path: Path
) -> None:
    """A program that broke off here would have said with its exit code that nothing was charged."""
    mandate = Mandate(wallet_key=WALLET.key, key=KEY, max_amount=Decimal("0.01"))
    with shop(x402_offer(OFFER)) as served:
        served.status, served.body, served.headers = status, body, headers
        order = Order(url=served.url, protocol="x402", body=b"{}", key=KEY)
        with http_client(served.url) as client, pytest.raises(PayError) as caught:
            run_pay(order, mandate, state_dir=tmp_path, client=client, say=lambda text: None, patience=0.0)
    assert (caught.value.exit_code, len(served.credentials)) == (UNCLEAR, 1)


@pytest.mark.parametrize("receipt", ["%%%", encoded([]), encoded("["), "W1tb" * 100_000], ids=lambda text: text[:8])
def test_a_receipt_that_cannot_be_read_costs_no_answer(receipt: str, tmp_path: Path) -> None:
    with shop(x402_offer(OFFER)) as served:
        served.body, served.headers = b"{}", {"PAYMENT-RESPONSE": receipt[:50_000]}
        done = buy(served, tmp_path)
    assert (done.exit_code, done.stdout) == (0, "{}")
    assert "Answered, but the receipt does not say that the payment succeeded. Receipt: {}" in done.stderr


def test_a_receipt_of_a_failure_is_not_told_as_a_payment(tmp_path: Path) -> None:
    failed = {
        "success": False,
        "transaction": "",
        "network": OFFER["network"],
        "errorReason": "unexpected_settle_error",
    }
    with shop(x402_offer(OFFER)) as served:
        served.body, served.headers = b"{}", {"PAYMENT-RESPONSE": encoded(failed)}
        done = buy(served, tmp_path)
    assert (done.exit_code, done.stdout, "Paid." in done.stderr) == (0, "{}", False)
    assert "does not say that the payment succeeded" in done.stderr
    assert "settle_error" in done.stderr


@pytest.mark.parametrize("changes", [{"asset": "no address"}, {"payTo": "no address"}, {"extra": None}])
def test_an_offer_that_cannot_be_signed_is_told_as_such(changes: dict[str, Any], tmp_path: Path) -> None:
    with shop(x402_offer({**OFFER, **changes})) as served:
        done = buy(served, tmp_path)
    assert (done.exit_code, "Nothing was paid." in done.stderr, served.credentials) == (NOT_CHARGED, True, [])


@pytest.mark.parametrize("declared", [None, [], {}, "x", {"info": {}}, {"info": {"required": "yes"}}])
def test_a_declaration_that_ties_nothing_to_the_key_is_not_paid(declared: object, tmp_path: Path) -> None:
    """The SDK writes its identifier into a declaration of the specified form alone."""
    required = {"x402Version": 2, "accepts": [OFFER], "extensions": {"payment-identifier": declared}}
    with shop({"PAYMENT-REQUIRED": encoded(required)}) as served:
        done = buy(served, tmp_path)
    assert (done.exit_code, "not tied to" in done.stderr, served.credentials) == (NOT_CHARGED, True, [])


@pytest.mark.parametrize("document", [[], "x", 1, None, {"accepts": 1}])
def test_a_challenge_of_another_form_is_told_as_such(document: object, tmp_path: Path) -> None:
    with shop({"PAYMENT-REQUIRED": encoded(document)}) as served:
        done = buy(served, tmp_path)
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, "Nothing was paid." in done.stderr, served.credentials) == (NOT_CHARGED, True, [])


def test_an_offer_over_another_protocol_is_named(tmp_path: Path) -> None:
    with shop({"WWW-Authenticate": 'Bearer, Payment id="x", method="tempo"'}) as served:
        done = buy(served, tmp_path)
    assert (done.exit_code, served.credentials) == (NOT_CHARGED, [])
    assert "The 402 has no x402 offer, but one over MPP: --protocol mpp. Nothing was paid." in done.stderr


def test_an_offer_of_version_1_is_named(tmp_path: Path) -> None:
    """Version 1 has its terms in the body; many servers still speak it."""
    terms = {
        "scheme": "exact",
        "network": "base",
        "maxAmountRequired": "10000",
        "resource": "https://shop.example/",
        "description": "",
        "mimeType": "application/json",
        "payTo": OFFER["payTo"],
        "maxTimeoutSeconds": 60,
        "asset": BASE_USDC,
        "extra": {"name": "USD Coin", "version": "2"},
    }
    body = {"x402Version": 1, "error": "X-PAYMENT header is required", "accepts": [terms]}
    with shop({}) as served:
        served.terms = json.dumps(body).encode()
        done = buy(served, tmp_path)
    assert (done.exit_code, served.credentials) == (NOT_CHARGED, [])
    assert "The offer is of x402 version 1; version 2 is paid here. Nothing was paid." in done.stderr


def test_a_mandate_shows_no_key() -> None:
    assert WALLET.key not in repr(replace(Mandate(wallet_key=WALLET.key, key=KEY, max_amount=Decimal(1)), decimals=8))
