"""The signed Tempo transaction of a credential: its hash, known before it is sent, and what it would do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import rlp  # type: ignore[import-untyped]
from mpp.methods.tempo.attribution import verify_challenge_binding, verify_server
from mpp.methods.tempo.intents import _canonical_raw_transaction, _raw_transaction_hash, _transaction_sender

TYPE: Final = 0x76
MAX_BYTES: Final = 16_384

TRANSFER_WITH_MEMO: Final = "95777d59"
"""Selector of transferWithMemo(address,uint256,bytes32), TIP-20."""

ATTODOLLARS_PER_BASE_UNIT: Final = 10**12
"""Gas is priced in 10**-18 dollars, tokens count 10**-6."""

_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})+")
_PLAIN_FIELD_COUNT: Final = 14
_FIELD_COUNTS: Final = (_PLAIN_FIELD_COUNT, 15)
_SECP256K1_SIGNATURE: Final = 65
_SECP256K1_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0


class Call(NamedTuple):
    """One call of a transaction, in lower-case hexadecimal."""

    to: str
    value: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTransaction:
    """What a signed transaction says; `valid_before` is the first second at which a block can no longer take it.

    Attributes:
        hash: The hash that its receipt will bear.
        sender: The account that it debits, by its signature; None when the signature names none.
        is_plain: Whether it is signed with the sender's own secp256k1 key and holds calls alone: no sponsor, access
            list, authorization or new key. Only then the signature proves the sender, and the trial tries all of it.
    """

    hash: str
    chain_id: int
    sender: str | None
    is_plain: bool
    calls: tuple[Call, ...]
    max_priority_fee: int
    max_fee: int
    gas: int
    nonce_key: int
    nonce: int
    valid_before: int | None
    valid_after: int | None
    fee_token: str | None

    @property
    def highest_fee(self) -> int:
        """Return what its gas may cost, in base units of the fee token, rounded up."""
        return -(-self.gas * self.max_fee // ATTODOLLARS_PER_BASE_UNIT)

    def pays_for(self, challenge_id: str, realm: str) -> bool:
        """Return whether one of its transfers bears the memo of this challenge."""
        memos = (f"0x{call.data[-64:]}" for call in self.calls if call.data.startswith(f"0x{TRANSFER_WITH_MEMO}"))
        return any(is_memo_of(memo, challenge_id, realm) for memo in memos)

    def simulation(self) -> dict[str, object]:
        """Return the request with which a node can try the transaction without its signature."""
        fields: dict[str, object] = {
            "from": self.sender,
            "type": hex(TYPE),
            "chainId": hex(self.chain_id),
            "calls": [{"to": call.to, "value": hex(call.value), "input": call.data} for call in self.calls],
            "maxPriorityFeePerGas": hex(self.max_priority_fee),
            "maxFeePerGas": hex(self.max_fee),
            "gas": hex(self.gas),
            "nonceKey": hex(self.nonce_key),
            "nonce": hex(self.nonce),
        }
        if self.valid_before is not None:
            fields["validBefore"] = hex(self.valid_before)
        if self.valid_after is not None:
            fields["validAfter"] = hex(self.valid_after)
        if self.fee_token is not None:
            fields["feeToken"] = self.fee_token
        return fields


def is_memo_of(memo: str, challenge_id: str, realm: str) -> bool:
    """Return whether a transfer's memo (0x and 64 hex digits) was made for this challenge of ours."""
    return verify_server(memo, realm) and verify_challenge_binding(memo, challenge_id)


def read_transaction(raw: str) -> SignedTransaction:
    """Return what a signed 0x76 transaction says, given in hexadecimal.

    One signed transaction has one hash here, however it is written: other letter cases and the node's other spelling
    of the recovery id are brought into one form, any other encoding is refused.

    Raises:
        ValueError: It is not a whole signed 0x76 transaction in its canonical encoding.
    """
    if len(raw) > 2 * MAX_BYTES or not _HEX.fullmatch(raw):
        raise ValueError("the transaction is not hexadecimal")
    canonical, identity, sender = _identity(raw)
    envelope = bytes.fromhex(canonical[2:])
    if envelope[0] != TYPE:
        raise ValueError("the transaction is not of type 0x76")
    try:
        fields = rlp.decode(envelope[1:])
        if not isinstance(fields, list) or len(fields) not in _FIELD_COUNTS or rlp.encode(fields) != envelope[1:]:
            raise ValueError("the transaction has another number of fields")
        return _read_fields(fields, identity, sender)
    except (rlp.exceptions.RLPException, TypeError, IndexError) as error:
        raise ValueError("the transaction is not a whole RLP list") from error


def _identity(raw: str) -> tuple[str, str, str | None]:
    """Return the canonical envelope, its hash and its sender: the one place that leans on the SDK's private helpers.

    They are the very ones with which the SDK sends the transaction and checks its receipt, so what we record before
    the call is what the call can produce; test_mpp.py compares them with the chain's own hashes.
    """
    canonical = _canonical_raw_transaction(raw)
    return canonical, _raw_transaction_hash(canonical), _transaction_sender(canonical)


def _read_fields(fields: list[Any], identity: str, sender: str | None) -> SignedTransaction:
    signature, access_list, sponsor, authorizations = fields[-1], fields[5], fields[11], fields[12]
    if not isinstance(signature, bytes) or not signature:
        raise ValueError("the transaction is not signed")
    if len(signature) == _SECP256K1_SIGNATURE and int.from_bytes(signature[32:64], "big") > _SECP256K1_HALF_ORDER:
        # Its mirror image would be the same payment under another hash.
        raise ValueError("the signature is not in its canonical form")
    chain_id, max_priority_fee, max_fee, gas = (_integer(field) or 0 for field in fields[0:4])
    return SignedTransaction(
        hash=identity,
        chain_id=chain_id,
        sender=sender,
        is_plain=len(fields) == _PLAIN_FIELD_COUNT
        and len(signature) == _SECP256K1_SIGNATURE
        and not (access_list or sponsor or authorizations),
        calls=tuple(_call(call) for call in fields[4]),
        max_priority_fee=max_priority_fee,
        max_fee=max_fee,
        gas=gas,
        nonce_key=_integer(fields[6]) or 0,
        nonce=_integer(fields[7]) or 0,
        valid_before=_integer(fields[8]),
        valid_after=_integer(fields[9]),
        fee_token=_hexadecimal(fields[10]) if fields[10] else None,
    )


def _call(call: Any) -> Call:  # noqa: ANN401 - RLP.
    to, value, data = call
    return Call(_hexadecimal(to), _integer(value) or 0, _hexadecimal(data))


def _integer(field: Any) -> int | None:  # noqa: ANN401 - RLP.
    """Return an integer field, or None for an empty one, which stands for 0 or for absent."""
    if not isinstance(field, bytes) or len(field) > 32 or field.startswith(b"\0"):
        raise ValueError("a field of the transaction is not an integer")
    return int.from_bytes(field, "big") if field else None


def _hexadecimal(field: Any) -> str:  # noqa: ANN401 - RLP.
    if isinstance(field, bytes):
        return "0x" + field.hex()
    raise ValueError("a field of the transaction is not a string of bytes")
