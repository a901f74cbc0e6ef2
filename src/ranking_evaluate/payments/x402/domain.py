"""Whether what payers sign is for the token that is there: its EIP-712 domain."""

from __future__ import annotations

from typing import Final

from eth_account.messages import encode_typed_data

from ranking_evaluate.payments.config import Token
from ranking_evaluate.payments.json_rpc import JsonRpc, integer

DOMAIN_SEPARATOR: Final = "0x3644e515"
"""Selector of DOMAIN_SEPARATOR(), EIP-2612, which tokens with signed transfers have as well."""


async def has_domain(rpc: JsonRpc, network: str, token: Token) -> bool:
    """Return whether the token calls itself by the configured name and version, on this network (CAIP-2).

    Raises:
        NodeError: The node gave no usable answer, or the token does not tell.
    """
    said = integer(await rpc.ask("eth_call", {"to": token.asset, "data": DOMAIN_SEPARATOR}, "latest"))
    domain = {
        "name": token.name,
        "version": token.version,
        "chainId": int(network.removeprefix("eip155:")),
        "verifyingContract": token.asset,
    }
    return said == int.from_bytes(encode_typed_data(domain, {"Nothing": []}, {}).header, "big")
