"""Who signed: held against what viem, pytempo, eth_account and an RFC have signed, and against each damage to it."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from eth_account import Account
from eth_account._utils.signing import sign_message_hash
from eth_keys.datatypes import PrivateKey
from pytempo import Call, TempoTransaction  # type: ignore[import-untyped]

from ranking_evaluate.payments.mpp.signature import KeyKind, Signer, key_of, signer_of

FILE: Final = json.loads((Path(__file__).parent / "signatures.json").read_text(encoding="utf-8"))
"""Made by viem: see signatures.mjs."""

DIGEST: Final = bytes.fromhex(FILE["digest"][2:])
MADE: Final[list[dict[str, str]]] = FILE["made"]
KINDS: Final = {
    "secp256k1": KeyKind.SECP256K1,
    "p256": KeyKind.P256,
    "webcrypto": KeyKind.P256,
    "passkey": KeyKind.WEBAUTHN,
}
SECP256K1_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def raw(made: dict[str, str]) -> bytes:
    return bytes.fromhex(made["signature"][2:])


def name(made: dict[str, str]) -> str:
    return f"{made['root']}-{made.get('access', 'itself')}"


def plain(root: str) -> bytes:
    [made] = [made for made in MADE if made["root"] == root and "access" not in made]
    return raw(made)


every_kind = pytest.mark.parametrize("made", MADE, ids=name)


@every_kind
def test_what_viem_signs_names_its_account_and_its_key(made: dict[str, str]) -> None:
    found = signer_of(raw(made), DIGEST)
    assert (found.account, found.key.address) == (made["account"].lower(), made["key"].lower())
    assert found.key.kind is KINDS[made.get("access", made["root"])]
    assert found.is_access_key is ("access" in made)


@every_kind
def test_no_bit_of_a_signature_can_be_flipped_without_naming_another_account_or_being_refused(
    made: dict[str, str],
) -> None:
    good = raw(made)
    true = signer_of(good, DIGEST)
    for place in range(len(good)):
        flipped = bytes([good[place] ^ 1 << place % 8])
        assert said(good[:place] + flipped + good[place + 1 :], DIGEST) != true, place
    for damaged in (good[:-1], good + b"\0", good[1:], b""):
        assert said(damaged, DIGEST) is None
    other = hashlib.sha256(DIGEST).digest()
    assert said(good, other) != true


def said(signature: bytes, digest: bytes) -> Signer | None:
    """Return who is said to have signed, or None for a refusal; nothing else may be raised."""
    try:
        return signer_of(signature, digest)
    except ValueError:
        return None


def test_pytempo_and_eth_account_sign_as_we_read_it() -> None:
    wallet, root = Account.create(), "0x" + "5e" * 20
    transaction = TempoTransaction.create(
        chain_id=42431, gas_limit=1, max_fee_per_gas=1, calls=(Call.create(to=root, value=0, data="0x"),)
    )
    digest = transaction.get_signing_hash()
    own = transaction.sign(wallet.key.to_0x_hex()).sender_signature.to_bytes()
    access = transaction.sign_access_key(wallet.key.to_0x_hex(), root).sender_signature.to_bytes()
    assert signer_of(own, digest) == Signer(wallet.address.lower(), key_of(own, digest), is_access_key=False)
    found = signer_of(access, digest)
    assert (found.account, found.key.address, found.is_access_key) == (root, wallet.address.lower(), True)
    v, r, s, _ = sign_message_hash(PrivateKey(bytes(wallet.key)), digest)
    assert key_of(r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([v]), digest).address == found.key.address


# RFC 6979, A.2.5: P-256, SHA-256, the message "sample"; of s and its mirror image we take the lower.
RFC_X = "60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6"
RFC_Y = "7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299"
RFC_R = "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
RFC_S = "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"


def test_the_signature_of_the_rfc_holds_and_its_mirror_image_does_not() -> None:
    digest = hashlib.sha256(b"sample").digest()
    low = P256_ORDER - int(RFC_S, 16)
    point = bytes.fromhex(RFC_X + RFC_Y)
    good = b"\x01" + bytes.fromhex(RFC_R) + low.to_bytes(32, "big") + point + b"\x00"
    assert key_of(good, digest).kind is KeyKind.P256
    high = b"\x01" + bytes.fromhex(RFC_R + RFC_S) + point + b"\x00"
    with pytest.raises(ValueError, match="canonical"):
        key_of(high, digest)
    # The same numbers over the digest itself, which WebCrypto hashes once more.
    with pytest.raises(ValueError, match="does not hold"):
        key_of(good[:-1] + b"\x01", digest)


@pytest.mark.parametrize("root", ["p256", "webcrypto"])
def test_the_last_byte_of_a_p256_signature_is_0_or_1_and_nothing_else(root: str) -> None:
    good = plain(root)
    taken = [last for last in range(256) if said(good[:-1] + bytes([last]), DIGEST) is not None]
    assert taken == [good[-1]]


def test_the_last_byte_of_a_secp256k1_signature_is_27_or_28() -> None:
    good = plain("secp256k1")
    taken = {last for last in range(256) if said(good[:-1] + bytes([last]), DIGEST) is not None}
    assert {good[-1]} <= taken <= {27, 28}


@pytest.mark.parametrize(
    ("root", "order", "at"),
    [("secp256k1", SECP256K1_ORDER, 32), ("p256", P256_ORDER, 33), ("passkey", P256_ORDER, -96)],
)
def test_the_higher_s_is_refused(root: str, order: int, at: int) -> None:
    good = plain(root)
    at %= len(good)
    s = int.from_bytes(good[at : at + 32], "big")
    mirrored = good[:at] + (order - s).to_bytes(32, "big") + good[at + 32 :]
    if root == "secp256k1":
        mirrored = mirrored[:-1] + bytes([55 - good[-1]])
    with pytest.raises(ValueError, match="canonical"):
        signer_of(mirrored, DIGEST)


@pytest.mark.parametrize("number", [0, SECP256K1_ORDER, SECP256K1_ORDER - 1, 2**256 - 1])
@pytest.mark.parametrize("at", [0, 32])
def test_numbers_that_are_no_signature_are_refused_and_nothing_worse(number: int, at: int) -> None:
    for root, shift in (("secp256k1", 0), ("p256", 1), ("passkey", -128)):
        good = plain(root)
        start = (shift + at) % len(good)
        assert said(good[:start] + number.to_bytes(32, "big") + good[start + 32 :], DIGEST) != said(good, DIGEST)


@pytest.mark.parametrize("x", [0, 1, 2**256 - 1, 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF])
def test_a_point_off_the_curve_is_no_key(x: int) -> None:
    good = plain("p256")
    assert said(good[:65] + x.to_bytes(32, "big") + good[97:], DIGEST) is None


# A passkey of our own, whose client says what we like.

CHALLENGE: Final = base64.urlsafe_b64encode(DIGEST).rstrip(b"=").decode()


def passkey(client: bytes, flags: int = 0x01, authenticator: bytes | None = None) -> bytes:
    key = ec.derive_private_key(7, ec.SECP256R1())
    data = hashlib.sha256(b"wallet.example").digest() + bytes([flags]) + bytes(4)
    data = data if authenticator is None else authenticator
    r, s = decode_dss_signature(key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256())))
    s = min(s, P256_ORDER - s)
    point = key.public_key().public_numbers()
    return b"\x02" + data + client + b"".join(n.to_bytes(32, "big") for n in (r, s, point.x, point.y))


def client_data(**changes: Any) -> bytes:
    said = {"type": "webauthn.get", "challenge": CHALLENGE, "origin": "https://wallet.example", "crossOrigin": False}
    return json.dumps({name: value for name, value in {**said, **changes}.items() if value is not None}).encode()


def test_a_passkey_signs_in_the_presence_of_its_user_for_this_very_digest() -> None:
    assert said(passkey(client_data()), DIGEST) is not None
    assert said(passkey(client_data(), flags=0x04), DIGEST) is not None
    assert said(passkey(client_data(), flags=0x1D), DIGEST) is not None
    for flags in (0x00, 0x18, 0x41, 0x81, 0xC5):
        assert said(passkey(client_data(), flags=flags), DIGEST) is None, flags


@pytest.mark.parametrize(
    "client",
    [
        client_data(type="webauthn.create"),
        client_data(type=None),
        client_data(challenge=None),
        client_data(challenge=FILE["digest"]),
        client_data(challenge=CHALLENGE + "="),
        client_data()[:-1] + b',"challenge":"x"}',
        b"[]",
        b"{",
        b"\xff\xfe{}",
        b"[" * 1500,
        client_data().decode().encode("utf-16"),
    ],
)
def test_what_a_passkeys_client_says_must_be_plain(client: bytes) -> None:
    assert said(passkey(client), DIGEST) is None


def test_a_passkeys_signature_has_a_bound() -> None:
    room = 2049 - len(passkey(client_data(more="")))
    assert said(passkey(client_data(more="x" * room)), DIGEST) is not None
    assert said(passkey(client_data(more="x" * (room + 1))), DIGEST) is None


def test_kinds_that_are_not_taken_say_what_to_do() -> None:
    inner = plain("secp256k1")
    with pytest.raises(ValueError, match="sign with version 2"):
        signer_of(b"\x03" + bytes(20) + inner, DIGEST)
    for kind in (b"\x00", b"\x05", b"\x06", b"\xff"):
        with pytest.raises(ValueError, match="of no kind that is taken"):
            signer_of(kind + bytes(20) + inner, DIGEST)
    nested = b"\x04" + bytes(20) + b"\x04" + bytes(20) + inner
    assert said(nested, DIGEST) is None
