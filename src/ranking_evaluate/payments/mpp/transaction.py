"""The signed Tempo transaction of a credential: its hash, known before it is sent, its signer, and what it would do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import rlp  # type: ignore[import-untyped]
from eth_utils.crypto import keccak
from mpp.methods.tempo.attribution import verify_challenge_binding, verify_server
from mpp.methods.tempo.intents import _canonical_raw_transaction, _raw_transaction_hash

from ranking_evaluate.payments.json_rpc import word
from ranking_evaluate.payments.mpp.fields import address, hexadecimal, integer, octets, sequence
from ranking_evaluate.payments.mpp.key_authorization import KeyAuthorization, read_key_authorization
from ranking_evaluate.payments.mpp.signature import KeyKind, Signer, signer_of

TYPE: Final = 0x76
MAX_BYTES: Final = 16_384

TRANSFER_WITH_MEMO: Final = "0x95777d59"
"""Selector of transferWithMemo(address,uint256,bytes32), TIP-20."""

ATTODOLLARS_PER_BASE_UNIT: Final = 10**12
"""Gas is priced in 10**-18 dollars, tokens count 10**-6."""

_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})+")
_FIELDS: Final = 14
_FIELDS_WITH_AUTHORIZATION: Final = 15


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
        signer: The account that it debits and the key that signed it, proved; None with a sponsor, whose part in what
            is signed is not read here.
        new_key: The authorization of a new access key, which it carries.
        has_extras: Whether it holds an access list or authorizations of accounts, which the trial would leave out.
    """

    hash: str
    chain_id: int
    signer: Signer | None
    new_key: KeyAuthorization | None
    has_extras: bool
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
    def sender(self) -> str | None:
        """Return the account that it debits, in lower case."""
        return None if self.signer is None else self.signer.account

    @property
    def highest_fee(self) -> int:
        """Return what its gas may cost, in base units of the fee token, rounded up."""
        return -(-self.gas * self.max_fee // ATTODOLLARS_PER_BASE_UNIT)

    def bears_memo_of(self, challenge_id: str, realm: str) -> bool:
        """Return whether one of its transfers bears the memo of this challenge."""
        memos = (f"0x{call.data[-64:]}" for call in self.calls if call.data.startswith(TRANSFER_WITH_MEMO))
        return any(is_memo_of(memo, challenge_id, realm) for memo in memos)

    def pays(self, token: str, recipient: str, amount: int) -> bool:
        """Return whether its last call is the transfer that is asked; what may stand before it the SDK decides."""
        if not self.calls:
            return False
        last = self.calls[-1]
        transfer = f"{TRANSFER_WITH_MEMO}{word(recipient)}{amount:064x}"
        is_transfer = last.data.startswith(transfer) and len(last.data) == len(transfer) + 64
        return is_transfer and (last.to, last.value) == (token.lower(), 0)

    def simulation(self) -> dict[str, object]:
        """Return the request with which a node can try the transaction without its signature.

        The last call stands at the top, where a node appends it to the others: some execute nothing of `calls` alone.
        """
        *leading, last = self.calls
        fields: dict[str, object] = {
            "from": self.sender,
            "type": hex(TYPE),
            "chainId": hex(self.chain_id),
            "to": last.to,
            "value": hex(last.value),
            "input": last.data,
            "maxPriorityFeePerGas": hex(self.max_priority_fee),
            "maxFeePerGas": hex(self.max_fee),
            "gas": hex(self.gas),
            "nonceKey": hex(self.nonce_key),
            "nonce": hex(self.nonce),
        }
        if leading:
            fields["calls"] = [{"to": call.to, "value": hex(call.value), "input": call.data} for call in leading]
        if self.valid_before is not None:
            fields["validBefore"] = hex(self.valid_before)
        if self.valid_after is not None:
            fields["validAfter"] = hex(self.valid_after)
        if self.fee_token is not None:
            fields["feeToken"] = self.fee_token
        if self.new_key is not None:
            fields["keyAuthorization"] = self.new_key.rpc
        return {**fields, **self._signing()}

    def _signing(self) -> dict[str, object]:
        """Return what a node must know of the signature, to count its gas and to hold an access key to its bounds."""
        if self.signer is None:
            return {}
        key = self.signer.key
        fields: dict[str, object] = {"keyType": key.kind.rpc_name}
        if key.kind is KeyKind.WEBAUTHN:
            # Two bytes say how long a passkey's data is; the data itself the node does not want.
            fields["keyData"] = f"0x{key.webauthn_bytes:04x}"
        if self.signer.is_access_key:
            fields["keyId"] = key.address
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
    canonical, identity = _identity(raw)
    envelope = bytes.fromhex(canonical[2:])
    if envelope[0] != TYPE:
        raise ValueError("the transaction is not of type 0x76")
    try:
        fields = rlp.decode(envelope[1:])
        if not isinstance(fields, list) or rlp.encode(fields) != envelope[1:]:
            raise ValueError("the transaction is not a whole RLP list")
    except (rlp.exceptions.RLPException, TypeError, IndexError) as error:
        raise ValueError("the transaction is not a whole RLP list") from error
    return _read_fields(fields, identity)


def _identity(raw: str) -> tuple[str, str]:
    """Return the canonical envelope and its hash: the one place that leans on the SDK's private helpers.

    They are the very ones with which the SDK sends the transaction and checks its receipt, so what we record before
    the call is what the call can produce; test_mpp.py compares them with the chain's own hashes.
    """
    canonical = _canonical_raw_transaction(raw)
    return canonical, _raw_transaction_hash(canonical)


def _read_fields(fields: list[Any], identity: str) -> SignedTransaction:
    if len(fields) not in (_FIELDS, _FIELDS_WITH_AUTHORIZATION):
        raise ValueError("the transaction has another number of fields")
    extras = [*sequence(fields[5]), *sequence(fields[12])]
    signature = octets(fields[-1])
    if not signature:
        raise ValueError("the transaction is not signed")
    is_sponsored = fields[11] != b""
    signer = None if is_sponsored else signer_of(signature, keccak(bytes([TYPE]) + rlp.encode(fields[:-1])))
    chain_id, max_priority_fee, max_fee, gas = (integer(field) or 0 for field in fields[0:4])
    return SignedTransaction(
        hash=identity,
        chain_id=chain_id,
        signer=signer,
        new_key=read_key_authorization(fields[13]) if len(fields) == _FIELDS_WITH_AUTHORIZATION else None,
        has_extras=bool(extras),
        calls=tuple(_call(call) for call in sequence(fields[4])),
        max_priority_fee=max_priority_fee,
        max_fee=max_fee,
        gas=gas,
        nonce_key=integer(fields[6]) or 0,
        nonce=integer(fields[7]) or 0,
        valid_before=integer(fields[8]),
        valid_after=integer(fields[9]),
        fee_token=address(fields[10]) if fields[10] else None,
    )


def _call(call: Any) -> Call:  # noqa: ANN401 - RLP.
    to, value, data = sequence(call)
    return Call(hexadecimal(to), integer(value) or 0, hexadecimal(data))
