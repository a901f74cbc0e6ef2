"""The buyer's side of MPP in the tests: pympp's own client, and transactions that it would never sign."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import coincurve
import httpx
import rlp  # type: ignore[import-untyped]
from coincurve._libsecp256k1 import ffi  # type: ignore[import-not-found]
from eth_utils.crypto import keccak
from mpp import Challenge, Credential
from mpp.client.transport import _payment_challenges as challenges_in
from mpp.methods.tempo import TempoAccount
from mpp.methods.tempo import client as tempo
from mpp.methods.tempo._attribution import encode as memo_of
from mpp.runtime import CredentialParams
from pytempo import Call, TempoTransaction  # type: ignore[import-untyped]

from ranking_evaluate.sandbox.funded import Wallet
from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD

EXPIRING_NONCE = 2**256 - 1
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
ORDER = 2 * HALF_ORDER + 1


async def sign(header: str, wallet: Wallet, rpc: str, seconds: float = 24) -> str:
    """Return the Authorization header with which pympp's client answers a challenge.

    The client signs 60 s ahead, and T4 takes 30 s: it is shown a nearer expiry, and the answer repeats the true one.
    """
    challenge = Challenge.from_www_authenticate(header)
    expires = datetime.now(UTC) + timedelta(seconds=seconds)
    nearer = replace(challenge, expires=expires.isoformat())
    method = tempo.charge(
        account=TempoAccount.from_key(wallet.key), chain_id=CHAIN_ID, rpc_url=rpc, currencies=[PATH_USD]
    )
    signed = Credential.from_authorization(await method.create_credential(CredentialParams(challenge=nearer)))
    return replace(signed, challenge=challenge.to_echo()).to_authorization()


def craft(header: str, wallet: Wallet, **changes: Any) -> str:
    """Return an Authorization header with a transaction of our own making; `changes` say what is unusual about it.

    Of several challenges the first is answered.
    """
    challenge = Challenge.from_www_authenticate(challenges_in(header)[0])
    raw = craft_transaction(challenge, wallet, **changes)
    return present(challenge, {"type": "transaction", "signature": raw})


def present(challenge: Challenge, payload: dict[str, Any]) -> str:
    return Credential(challenge=challenge.to_echo(), payload=payload).to_authorization()


def craft_transaction(
    challenge: Challenge,
    wallet: Wallet,
    *,
    recipient: str | None = None,
    amount: int | None = None,
    token: str = PATH_USD,
    memo: str | None = None,
    chain_id: int = CHAIN_ID,
    gas_price: int = 2 * 10**10,
    root: str | None = None,
    **fields: Any,
) -> str:
    request = challenge.request
    words = [
        (recipient or request["recipient"]).removeprefix("0x").lower().rjust(64, "0"),
        f"{int(request['amount']) if amount is None else amount:064x}",
        (memo or memo_of(challenge.id, challenge.realm)).removeprefix("0x"),
    ]
    given = {
        "nonce": 0,
        "nonce_key": EXPIRING_NONCE,
        "valid_before": int(time.time()) + 24,
        "fee_token": PATH_USD,
        "gas_limit": 1_000_000,
        **fields,
    }
    transaction = TempoTransaction.create(
        chain_id=chain_id,
        max_fee_per_gas=gas_price,
        max_priority_fee_per_gas=1,
        calls=(Call.create(to=token, value=0, data="0x95777d59" + "".join(words)),),
        **given,
    )
    signed = transaction.sign_access_key(wallet.key, root) if root else transaction.sign(wallet.key)
    return f"0x{signed.encode().hex()}"


def mirror_signature(raw: str) -> str:
    """Return the same signed transaction with the other of the two ECDSA signatures that a signer can have made."""
    return raw[:-130] + mirrored(bytes.fromhex(raw[-130:])).hex()


def mirrored(signature: bytes) -> bytes:
    """Return the other one of the two signatures."""
    s, v = int.from_bytes(signature[32:64], "big"), signature[64]
    return signature[:32] + (ORDER - s).to_bytes(32, "big") + bytes([55 - v])


def sign_again(raw: str, wallet: Wallet) -> str:
    """Return the same content with another signature of the same key: ECDSA leaves the signer a choice."""
    fields = rlp.decode(bytes.fromhex(raw[4:]))
    digest = keccak(b"\x76" + rlp.encode(fields[:-1]))
    nonce = (ffi.NULL, ffi.new("unsigned char[32]", secrets.token_bytes(32)))
    made = coincurve.PrivateKey.from_hex(wallet.key[2:]).sign_recoverable(digest, hasher=None, custom_nonce=nonce)
    signature = made[:64] + bytes([made[64] + 27])
    assert signature != fields[-1]
    return f"0x76{rlp.encode([*fields[:-1], signature]).hex()}"


async def send_oneself(raw: str, rpc: str) -> dict[str, Any]:
    """Send a transaction past the service, and return its receipt."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransactionSync", "params": [raw]}
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        answer = (await client.post(rpc, json=call)).json()
    receipt: dict[str, Any] = answer["result"]
    return receipt


def in_seconds(seconds: float) -> int:
    return int(time.time() + seconds)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
