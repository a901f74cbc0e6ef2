"""The networks of x402, each with its token and its node, from the variables that may hold a value for each network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ranking_evaluate.payments.config import USDC, Token, X402Network

_TOKEN: Final = ("X402_ASSET", "X402_ASSET_NAME", "X402_ASSET_VERSION")

BY_NETWORK: Final = ("X402_NETWORK", *_TOKEN, "X402_RPC_URL")
"""The variables that `of` turns into networks."""


def faults(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the variable and what is wrong, for each fault that several variables make together.

    Args:
        found: The checked values of all variables; None stands for one that was wrong already.
    """
    networks = found["X402_NETWORK"]
    if any(found[name] is None for name in BY_NETWORK):
        return
    for name in (*_TOKEN, "X402_RPC_URL"):
        if "" in found[name] and len(networks) > 1:
            yield name, f"which network is it for? Write {networks[0]}=value, with a comma before the next pair"
        for stranger in sorted(found[name].keys() - {"", *networks}):
            yield name, f"{stranger} is not in X402_NETWORK"
    for network in networks:
        own = [_value(found[name], network) for name in _TOKEN]
        if not all(own) and (any(own) or network not in USDC):
            why = f"some are set for {network}" if any(own) else f"{network} has no known USDC"
            yield "X402_ASSET", f"{', '.join(_TOKEN[:2])} and {_TOKEN[2]} go together: {why}"


def of(found: Mapping[str, Any]) -> tuple[X402Network, ...]:
    """Return the networks in their order; `found` has no faults."""
    return tuple(
        X402Network(network, _token(found, network), _value(found["X402_RPC_URL"], network))
        for network in found["X402_NETWORK"]
    )


def _token(found: Mapping[str, Any], network: str) -> Token:
    asset, name, version = (_value(found[variable], network) for variable in _TOKEN)
    return USDC[network] if asset is None or name is None or version is None else Token(asset, name, version)


def _value(by_network: Mapping[str, str], network: str) -> str | None:
    return by_network.get(network, by_network.get(""))
