"""The authorization of a new access key that a transaction carries: the first payment of a wallet's key has one.

Its fields are chain, kind and address of the key, then an expiry, limits of spending and a scope of calls, of which the
last ones may be left out; then the signature of the account's own key. One encoding is taken of what may be written in
several, or the chain would file the transaction under another hash than ours. Fields that came later (a witness, which
can be revoked before we send; the mark of an admin key; a bound account) are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import rlp  # type: ignore[import-untyped]
from eth_utils.crypto import keccak

from ranking_evaluate.payments.mpp.fields import address, hexadecimal, integer, octets, sequence
from ranking_evaluate.payments.mpp.scope import CallScope, permits
from ranking_evaluate.payments.mpp.signature import Key, KeyKind, Signer, key_of

_MIN_FIELDS: Final = 3
_MAX_FIELDS: Final = 6
_SELECTOR_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAuthorization:
    """What an account's own key permits to a new one.

    Attributes:
        authority: The key that signed it.
        chain_id: Where it is good.
        kind: The kind of the new key.
        key: The address of the new key.
        expiry: The second from which it is good no more; None for never.
        limits: What may be spent of each token, by its address; None for all. What is not named may not be spent.
        scopes: Which calls may be made; None for all.
        rpc: The same as a node takes it in a request.
    """

    authority: Key
    chain_id: int
    kind: KeyKind
    key: str
    expiry: int | None
    limits: Mapping[str, int] | None
    scopes: tuple[CallScope, ...] | None
    rpc: Mapping[str, object]

    def objection(self, signer: Signer, *, chain_id: int, valid_before: int) -> str | None:
        """Return why it does not let this signer sign for the account until `valid_before`, or None when it does."""
        if not signer.is_access_key or (self.key, self.kind) != (signer.key.address, signer.key.kind):
            return "it authorizes another key than the one that signed"
        if self.authority.address != signer.account:
            return "it is not signed by the account's own key"
        if self.chain_id != chain_id:
            return "it is for another chain"
        if self.expiry is not None and self.expiry <= valid_before:
            return "it ends before the transaction does"
        return None

    def allows(self, token: str, amount: int) -> bool:
        """Return whether the new key may spend this much of a token."""
        return self.limits is None or self.limits.get(token.lower(), 0) >= amount

    def permits(self, target: str, selector: str, recipient: str) -> bool:
        """Return whether the new key may make a call."""
        return permits(self.scopes, target, selector, recipient)


def read_key_authorization(field: Any) -> KeyAuthorization:  # noqa: ANN401 - RLP.
    """Return what a transaction's key authorization says.

    Raises:
        ValueError: It is not whole, not canonical, or says what is not taken.
    """
    if not isinstance(field, list) or len(field) != 2:
        raise ValueError("the key authorization is not one with its signature")
    inner, signature = sequence(field[0]), octets(field[1])
    if len(inner) < _MIN_FIELDS:
        raise ValueError("the key authorization is not whole")
    if len(inner) > _MAX_FIELDS:
        raise ValueError("the key authorization has a witness, a bound account or the mark of an admin key")
    if len(inner) > _MIN_FIELDS and inner[-1] == b"":
        raise ValueError("the key authorization is not in its canonical form: it ends in an empty field")
    expiry, limits, scopes = (*inner[_MIN_FIELDS:], b"", b"", b"")[:3]
    kind = KeyKind(integer(inner[1]) or 0)
    allowances = None if limits == b"" else _limits(sequence(limits))
    calls = None if scopes == b"" else _scopes(sequence(scopes))
    chain_id, key, ends = integer(inner[0]) or 0, address(inner[2]), integer(expiry)
    authority = key_of(signature, keccak(rlp.encode(inner)))
    return KeyAuthorization(
        authority=authority,
        chain_id=chain_id,
        kind=kind,
        key=key,
        expiry=ends,
        limits=None if allowances is None else {token: limit for token, limit, _ in allowances},
        scopes=calls,
        rpc={
            "chainId": hex(chain_id),
            "keyType": kind.rpc_name,
            "keyId": key,
            "expiry": None if ends is None else hex(ends),
            "signature": _signature_in_rpc(authority.kind, signature),
            **({} if allowances is None else {"limits": [_limit_in_rpc(*each) for each in allowances]}),
            **({} if calls is None else {"allowedCalls": [scope.in_rpc() for scope in calls]}),
        },
    )


def _limits(items: list[Any]) -> list[tuple[str, int, int | None]]:
    """Return token, amount and period of each limit; a period is the time after which as much may be spent again."""
    limits = []
    for item in items:
        token, amount, *period = sequence(item)
        if len(period) > 1 or (period and not integer(period[0])):
            raise ValueError("the key authorization is not in its canonical form: it has an empty period")
        limits.append((address(token), integer(amount) or 0, integer(period[0]) if period else None))
    if len({token for token, _, _ in limits}) < len(limits):
        raise ValueError("the key authorization limits a token twice")
    return limits


def _scopes(items: list[Any]) -> tuple[CallScope, ...]:
    scopes = []
    for item in items:
        target, rules = sequence(item)
        read = []
        for rule in sequence(rules):
            selector, recipients = sequence(rule)
            if len(octets(selector)) != _SELECTOR_BYTES:
                raise ValueError("the key authorization names no function")
            read.append((hexadecimal(selector), tuple(address(each) for each in sequence(recipients))))
        if len({selector for selector, _ in read}) < len(read):
            raise ValueError("the key authorization names a function twice")
        scopes.append(CallScope(address(target), tuple(read)))
    if len({scope.target for scope in scopes}) < len(scopes):
        raise ValueError("the key authorization names a contract twice")
    return tuple(scopes)


def _limit_in_rpc(token: str, amount: int, period: int | None) -> dict[str, str]:
    return {"token": token, "limit": hex(amount), **({} if period is None else {"period": hex(period)})}


def _signature_in_rpc(kind: KeyKind, signature: bytes) -> dict[str, object]:
    """Return a signature as viem writes it for a node."""
    data = signature if kind is KeyKind.SECP256K1 else signature[1:]
    if kind is KeyKind.SECP256K1:
        return {"type": kind.rpc_name, **_words(data, "r", "s"), "yParity": hex(data[64] - 27)}
    if kind is KeyKind.P256:
        return {"type": kind.rpc_name, **_words(data, "r", "s", "pubKeyX", "pubKeyY"), "preHash": data[128] == 1}
    words = _words(data[-128:], "r", "s", "pubKeyX", "pubKeyY")
    return {"type": kind.rpc_name, **words, "webauthnData": "0x" + data[:-128].hex()}


def _words(data: bytes, *names: str) -> dict[str, object]:
    return {name: "0x" + data[32 * at : 32 * at + 32].hex() for at, name in enumerate(names)}
