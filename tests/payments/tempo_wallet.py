"""Tempo wallets in Python: every kind of key, access keys with their authorizations, and what no wallet would sign."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import coincurve
import httpx
import rlp  # type: ignore[import-untyped]
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature
from eth_utils.crypto import keccak
from mpp import Challenge
from pytempo import Call, TempoTransaction  # type: ignore[import-untyped]

from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.payments import mpp_buyer as buyer

KEYCHAIN: Final = "0xaAAAaaAA00000000000000000000000000000000"
P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
NUMBERS: Final = {"secp256k1": 0, "p256": 1, "webcrypto": 1, "passkey": 2}
KINDS: Final = tuple(NUMBERS)


@dataclass(frozen=True)
class Key:
    """A key of some kind, and what it signs."""

    kind: str
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(31), repr=False)

    @property
    def address(self) -> bytes:
        return keccak(self._public())[-20:]

    @property
    def account(self) -> str:
        return f"0x{self.address.hex()}"

    def sign(self, digest: bytes) -> bytes:
        """Return the signature as Tempo takes it."""
        match self.kind:
            case "secp256k1":
                made = coincurve.PrivateKey(self.secret).sign_recoverable(digest, hasher=None)
                return made[:64] + bytes([made[64] + 27])
            case "p256":
                return b"\x01" + self._p256(digest) + self._public() + b"\x00"
            case "webcrypto":
                return b"\x01" + self._p256(hashlib.sha256(digest).digest()) + self._public() + b"\x01"
            case _:
                return self._assertion(digest)

    def _assertion(self, digest: bytes) -> bytes:
        """Return what a passkey signs."""
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        said = {"type": "webauthn.get", "challenge": challenge, "origin": "https://wallet.example"}
        client = json.dumps(said, separators=(",", ":")).encode()
        authenticator = hashlib.sha256(b"wallet.example").digest() + b"\x05" + bytes(4)
        message = hashlib.sha256(authenticator + hashlib.sha256(client).digest()).digest()
        return b"\x02" + authenticator + client + self._p256(message) + self._public()

    def _curve_key(self) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(int.from_bytes(self.secret, "big"), ec.SECP256R1())

    def _public(self) -> bytes:
        if self.kind == "secp256k1":
            return coincurve.PrivateKey(self.secret).public_key.format(compressed=False)[1:]
        point = self._curve_key().public_key().public_numbers()
        return point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big")

    def _p256(self, message: bytes) -> bytes:
        r, s = decode_dss_signature(self._curve_key().sign(message, ec.ECDSA(Prehashed(hashes.SHA256()))))
        return r.to_bytes(32, "big") + min(s, P256_ORDER - s).to_bytes(32, "big")


@dataclass(frozen=True)
class TempoWallet:
    """An account, and the access key that signs for it, if there is one."""

    account: Key
    access: Key | None = None

    def sign(self, fields: list[Any]) -> str:
        """Return the signed transaction of these fields."""
        digest = keccak(b"\x76" + rlp.encode(fields))
        if self.access is None:
            return envelope(fields, self.account.sign(digest))
        root = self.account.address
        return envelope(fields, b"\x04" + root + self.access.sign(keccak(b"\x04" + digest + root)))

    def authorization(self, **changes: Any) -> list[Any]:
        """Return the authorization of the access key."""
        assert self.access is not None
        return authorization(self.account, self.access, **changes)

    def pay(self, challenge: str, authorized: list[Any] | None = None, **changes: Any) -> str:
        """Return an Authorization header that answers a challenge."""
        issued = Challenge.from_www_authenticate(challenge)
        raw = self.sign(payment(issued, authorized, **changes))
        return buyer.present(issued, {"type": "transaction", "signature": raw})


def envelope(fields: list[Any], signature: bytes) -> str:
    return f"0x76{rlp.encode([*fields, signature]).hex()}"


def payment(challenge: Challenge, authorized: list[Any] | None = None, **changes: Any) -> list[Any]:
    """Return the fields of the transaction that pays a challenge, without its signature."""
    raw = buyer.craft_transaction(challenge, new_wallet(), **changes)
    fields: list[Any] = rlp.decode(bytes.fromhex(raw[4:]))[:-1]
    return fields if authorized is None else [*fields, authorized]


def authorization(
    account: Key,
    access: Key,
    *,
    chain_id: int = CHAIN_ID,
    expiry: int | None = None,
    limit: int | None = None,
    scopes: list[Any] | None = None,
    **changes: Any,
) -> list[Any]:
    """Return an account's authorization of a key; `inner` gives its fields, `sign` what becomes of its signature."""
    inner: list[Any] = [number(chain_id), number(NUMBERS[access.kind]), access.address]
    optional = [
        b"" if expiry is None else number(expiry),
        b"" if limit is None else [[bytes.fromhex(PATH_USD[2:]), number(limit)]],
        b"" if scopes is None else scopes,
    ]
    while optional and optional[-1] == b"":
        optional.pop()
    inner = changes["inner"]([*inner, *optional]) if "inner" in changes else [*inner, *optional]
    signature = account.sign(keccak(rlp.encode(inner)))
    return [inner, changes["sign"](signature) if "sign" in changes else signature]


def number(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def transfers_to(recipient: str, selector: str = "95777d59", token: str = PATH_USD) -> list[Any]:
    """Return the scope of a key that may pay one recipient."""
    rule = [bytes.fromhex(selector), [bytes.fromhex(recipient[2:])]]
    return [[bytes.fromhex(token[2:]), [rule]]]


def call_keychain(account: Key, data: str, rpc: str) -> None:
    """Let an account call its keychain, and see that it did."""
    send(TempoWallet(account).sign(call(KEYCHAIN, data)), rpc)


def call(to: str, data: str, authorized: list[Any] | None = None, **changes: Any) -> list[Any]:
    """Return the fields of a transaction that makes one call."""
    fields = TempoTransaction.create(
        chain_id=CHAIN_ID,
        gas_limit=6_000_000,
        max_fee_per_gas=2 * 10**10,
        max_priority_fee_per_gas=1,
        nonce=0,
        nonce_key=buyer.EXPIRING_NONCE,
        valid_before=buyer.in_seconds(24),
        fee_token=PATH_USD,
        calls=(Call.create(to=to, value=0, data=data),),
        **changes,
    )
    decoded: list[Any] = rlp.decode(fields.sign(new_wallet().key).encode()[1:])[:-1]
    return decoded if authorized is None else [*decoded, authorized]


def send(raw: str, rpc: str) -> str:
    """Send a transaction past the service, and return its hash once it has succeeded."""
    ask = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransactionSync", "params": [raw]}
    receipt = httpx.post(rpc, json=ask, trust_env=False, timeout=40).json()["result"]
    assert receipt["status"] == "0x1", receipt
    return str(receipt["transactionHash"])
