"""The official client pays the sandbox as every kind of Tempo wallet, unpatched: a first payment and a later one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from tests.judges.tempo_wallets import Wallets
from tests.payments.tempo_wallet import Key, TempoWallet, call, send

OPERATION: Final = "ranking-evaluate"
PATH: Final = f"/v1/mpp/{OPERATION}"
PRICE: Final = 10_000
ROOTS: Final = ("secp256k1", "p256", "passkey")
KEYS: Final = (None, "secp256k1", "p256", "webcrypto")


@pytest.fixture(scope="module")
def mpp(sandbox: Sandbox) -> FundedProtocol:
    return next(funded for funded in sandbox.protocols if funded.protocol == "mpp")


@pytest.fixture(scope="module")
def wallets(mpp: FundedProtocol) -> Iterator[Wallets]:
    with Wallets(mpp.rpc) as running:
        yield running


def fund(mpp: FundedProtocol, account: str, amount: int = 1_000_000) -> None:
    """Give an account money out of the sandbox's payer."""
    payer = TempoWallet(Key("secp256k1", bytes.fromhex(mpp.payer.key[2:])))
    send(payer.sign(call(mpp.asset, f"0xa9059cbb{account[2:].lower().rjust(64, '0')}{amount:064x}")), mpp.rpc)


@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key or "itself")
@pytest.mark.parametrize("root", ROOTS)
def test_every_wallet_pays_first_and_later_and_each_payment_is_one_transfer(
    sandbox: Sandbox, mpp: FundedProtocol, wallets: Wallets, body: bytes, root: str, key: str | None, bounded: bool
) -> None:
    name = f"{root} {key} {bounded}"
    bounds = {"expiry": int(time.time()) + 3600, "limits": [{"token": mpp.asset, "limit": "900000"}]} if bounded else {}
    fund(mpp, wallets.open(name, root, key, **bounds))
    for _ in ("first", "later"):
        purchase, before = f"wallet_{secrets.token_hex(12)}", mpp.balance(mpp.payee)
        bought = wallets.buy(name, url=sandbox.origin + PATH, body=body, key=purchase)
        assert (bought["status"], bought["body"].encode()) == (200, evaluate(OPERATION, body)), bought["body"]
        assert bought["receipt"]["externalId"] == purchase
        assert mpp.is_confirmed(bought["receipt"]["reference"])
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": purchase,
            "Authorization": bought["credential"],
        }
        again = httpx.post(sandbox.origin + PATH, content=body, headers=headers, trust_env=False, timeout=30)
        assert (again.status_code, again.content) == (200, bought["body"].encode())
        assert again.headers["idempotent-replayed"] == "true"
        assert mpp.balance(mpp.payee) == before + PRICE
