"""What the chain says of an access key: Tempo's AccountKeychain, and why a key may not make a payment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError

from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError, word
from ranking_evaluate.payments.mpp.scope import CallScope, permits
from ranking_evaluate.payments.mpp.signature import KeyKind, Signer

ACCOUNT_KEYCHAIN: Final = "0xaaaaaaaa00000000000000000000000000000000"

GET_KEY: Final = "0xbc298553"
"""Selector of getKey(address,address)."""

GET_REMAINING: Final = "0xa7f72cab"
"""Selector of getRemainingLimitWithPeriod(address,address,address)."""

GET_ALLOWED_CALLS: Final = "0x0163e7ec"
"""Selector of getAllowedCalls(address,address)."""

_KEY: Final = ("uint8", "address", "uint64", "bool", "bool")
_REMAINING: Final = ("uint256", "uint64")
_ALLOWED_CALLS: Final = ("bool", "(address,(bytes4,address[])[])[]")


@dataclass(frozen=True, slots=True)
class KnownKey:
    """An access key as the chain knows it; `has_limits` says that it may spend a bounded amount."""

    kind: int
    expiry: int
    has_limits: bool
    is_revoked: bool

    @property
    def is_known(self) -> bool:
        """Return whether the account has ever authorized it; a revoked key cannot be authorized again."""
        return self.expiry > 0 or self.is_revoked

    def objection(self, kind: KeyKind, valid_before: int) -> str | None:
        """Return why it may not sign until `valid_before`, or None when it may."""
        if not self.is_known:
            return (
                "the account has not authorized this access key: sign with its key authorization, or with another key"
            )
        if self.is_revoked:
            return "the account has revoked this access key: sign with another key"
        if self.kind != kind:
            return "the account has authorized this access key as one of another kind"
        if self.expiry <= valid_before:
            return "the access key ends before the transaction does: authorize a new key"
        return None


class Keychain:
    """Asks a node about one access key of one account."""

    def __init__(self, node: JsonRpc, signer: Signer) -> None:
        self._node = node
        self._names = word(signer.account) + word(signer.key.address)

    async def key(self) -> KnownKey:
        """Return what the chain knows of the key; one that it does not know has neither expiry nor revocation."""
        kind, _, expiry, has_limits, is_revoked = await self._ask(GET_KEY + self._names, _KEY)
        return KnownKey(kind, expiry, has_limits, is_revoked)

    async def remaining(self, token: str) -> int:
        """Return how much of a token the key may still spend, where its spending is limited."""
        remaining, _ = await self._ask(GET_REMAINING + self._names + word(token), _REMAINING)
        return int(remaining)

    async def permits(self, target: str, selector: str, recipient: str) -> bool:
        """Return whether the key may make a call."""
        is_scoped, found = await self._ask(GET_ALLOWED_CALLS + self._names, _ALLOWED_CALLS)
        scopes = [
            CallScope(contract, tuple((f"0x{function.hex()}", tuple(to)) for function, to in rules))
            for contract, rules in found
        ]
        return permits(scopes if is_scoped else None, target, selector, recipient)

    async def _ask(self, data: str, types: tuple[str, ...]) -> tuple[Any, ...]:
        answer = await self._node.ask("eth_call", {"to": ACCOUNT_KEYCHAIN, "data": data}, "latest")
        try:
            return decode(types, bytes.fromhex(str(answer).removeprefix("0x")))
        except (DecodingError, ValueError, OverflowError) as error:
            raise NodeError("the node's answer about an access key cannot be read") from error
