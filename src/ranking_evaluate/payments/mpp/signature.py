"""Who signed: the account and key behind a Tempo signature, proved here and not left to the node.

The forms are those of Tempo's transactions: secp256k1 (65 bytes), P-256 (0x01), WebAuthn (0x02), and one of these by an
access key for its account (0x04, keychain version 2). Of each form one encoding is taken, so that nobody can write the
same signature, and with it the same transaction, in a second way under another hash. All else is refused: keychain
version 1 (0x03), which does not bind the account, and multisig (0x05).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import coincurve
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature
from eth_utils.crypto import keccak

from ranking_evaluate.core import intake
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.payments.mpp.fields import ADDRESS_BYTES

SECP256K1_BYTES: Final = 65
P256_BYTES: Final = 130
WEBAUTHN_MAX_BYTES: Final = 2_049

_P256, _WEBAUTHN, _KEYCHAIN_V1, _KEYCHAIN_V2 = 0x01, 0x02, 0x03, 0x04

_SECP256K1_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
_P256_HALF_ORDER: Final = 0x7FFFFFFF800000007FFFFFFFFFFFFFFFDE737D56D38BCF4279DCE5617E3192A8

_AUTHENTICATOR_BYTES: Final = 37
"""The hash of the relying party, the flags and a counter; more follows only under the flags that are refused."""

_USER_PRESENT, _USER_VERIFIED, _ATTESTED, _EXTENDED = 0x01, 0x04, 0x40, 0x80


class KeyKind(IntEnum):
    """The kind of a key, by its number in Tempo's encodings."""

    SECP256K1 = 0
    P256 = 1
    WEBAUTHN = 2

    @property
    def rpc_name(self) -> str:
        """What a node calls it in JSON."""
        return ("secp256k1", "p256", "webAuthn")[self]


@dataclass(frozen=True, slots=True)
class Key:
    """The key that made a signature, by its address in lower case; `webauthn_bytes` is how long a passkey's data is."""

    address: str
    kind: KeyKind
    webauthn_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Signer:
    """Whose transaction it is: `account` is debited, `key` signed.

    With `is_access_key` the key signed for an account that is not its own; whether it may, the chain alone knows.
    """

    account: str
    key: Key
    is_access_key: bool


def signer_of(signature: bytes, digest: bytes) -> Signer:
    """Return who signed the transaction with this digest.

    Raises:
        ValueError: The signature does not hold, or is not of a form and encoding that is taken.
    """
    if len(signature) != SECP256K1_BYTES and signature[:1] == bytes([_KEYCHAIN_V2]):
        account, inner = signature[1 : 1 + ADDRESS_BYTES], signature[1 + ADDRESS_BYTES :]
        if len(account) != ADDRESS_BYTES:
            raise ValueError("the signature is not whole")
        # The account is part of what the key signs: a key of two accounts signs for one of them.
        key = key_of(inner, keccak(bytes([_KEYCHAIN_V2]) + digest + account))
        return Signer("0x" + account.hex(), key, is_access_key=True)
    if len(signature) != SECP256K1_BYTES and signature[:1] == bytes([_KEYCHAIN_V1]):
        raise ValueError("the signature is a keychain's of version 1: sign with version 2")
    key = key_of(signature, digest)
    return Signer(key.address, key, is_access_key=False)


def key_of(signature: bytes, digest: bytes) -> Key:
    """Return the key that made a secp256k1, P-256 or WebAuthn signature over a 32-byte digest.

    Raises:
        ValueError: As `signer_of`.
    """
    if len(signature) == SECP256K1_BYTES:
        return _recovered(signature, digest)
    match signature[:1]:
        case b"\x01" if len(signature) == P256_BYTES:
            return _p256(signature[1:], digest)
        case b"\x02" if len(signature) <= WEBAUTHN_MAX_BYTES:
            return _webauthn(signature[1:], digest)
    raise ValueError("the signature is of no kind that is taken: secp256k1, P-256, WebAuthn or keychain version 2")


def _recovered(signature: bytes, digest: bytes) -> Key:
    v = signature[64]
    if v not in (27, 28):
        raise ValueError("the signature is not in its canonical form: its last byte is 27 or 28")
    _refuse_high(signature[32:64], _SECP256K1_HALF_ORDER)
    try:
        public = coincurve.PublicKey.from_signature_and_message(signature[:64] + bytes([v - 27]), digest, hasher=None)
    except Exception as error:
        # The library raises its base class for numbers that are no signature.
        raise ValueError("the signature is not one of a secp256k1 key") from error
    return Key(_address(public.format(compressed=False)[1:]), KeyKind.SECP256K1)


def _p256(data: bytes, digest: bytes) -> Key:
    # The node takes any other byte for 1, and files the transaction under the hash that it has with 1: money would move
    # under a hash that we never look for.
    match data[128]:
        case 0:
            message = digest
        case 1:
            message = hashlib.sha256(digest).digest()
        case _:
            raise ValueError("the signature is not in its canonical form: its last byte is 0 or 1")
    _check_p256(data[:128], message)
    return Key(_address(data[64:128]), KeyKind.P256)


def _webauthn(data: bytes, digest: bytes) -> Key:
    signed, tail = data[:-128], data[-128:]
    authenticator, client = signed[:_AUTHENTICATOR_BYTES], signed[_AUTHENTICATOR_BYTES:]
    if len(tail) != 128 or not client:
        raise ValueError("the signature is not whole")
    flags = authenticator[32]
    if not flags & (_USER_PRESENT | _USER_VERIFIED) or flags & (_ATTESTED | _EXTENDED):
        raise ValueError("the passkey's flags are not those of a signature that its user made")
    try:
        said = intake.read(client)
    except OperationError as error:
        raise ValueError("what the passkey's client says is not JSON") from error
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if not isinstance(said, dict) or (said.get("type"), said.get("challenge")) != ("webauthn.get", challenge):
        raise ValueError("the passkey signed something else")
    _check_p256(tail, hashlib.sha256(authenticator + hashlib.sha256(client).digest()).digest())
    return Key(_address(tail[64:]), KeyKind.WEBAUTHN, len(signed))


def _check_p256(data: bytes, message: bytes) -> None:
    """Raise ValueError unless r, s hold for the public key x, y and a message that was hashed already."""
    _refuse_high(data[32:64], _P256_HALF_ORDER)
    r, s, x, y = (int.from_bytes(data[at : at + 32], "big") for at in (0, 32, 64, 96))
    try:
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        public.verify(encode_dss_signature(r, s), message, ec.ECDSA(Prehashed(hashes.SHA256())))
    except InvalidSignature as error:
        raise ValueError("the signature does not hold") from error


def _refuse_high(s: bytes, half_order: int) -> None:
    """Raise ValueError for the upper of the two values of s, the same signature under another hash."""
    if int.from_bytes(s, "big") > half_order:
        raise ValueError("the signature is not in its canonical form: its s is the higher one of two")


def _address(public_key: bytes) -> str:
    return "0x" + keccak(public_key)[-ADDRESS_BYTES:].hex()
