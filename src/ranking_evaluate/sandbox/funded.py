"""What every payment protocol brings to the sandbox: a payer with money, a payee, and the service's settings for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Wallet:
    """A private key (0x and 64 hex digits) and the address it controls."""

    key: str = field(repr=False)
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FundedNetwork:
    """A network beside a protocol's first one, on which its payer has money too.

    `fund` gives an address base units; the other members are as in `FundedProtocol`.
    """

    network: str
    asset: str
    asset_name: str
    rpc: str
    balance: Callable[[str], int] = field(repr=False)
    is_confirmed: Callable[[str], bool] = field(repr=False)
    fund: Callable[[str, int], None] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FundedProtocol:
    """One payment protocol, ready to be used.

    Attributes:
        protocol: Its name in routes and in the info file.
        network: The chain, as people name it.
        asset: The token's address.
        asset_name: The token, as people name it.
        decimals: How many decimals the token's base units stand for.
        payer: A wallet with tokens; a demonstration's customer.
        payee: The address that the service is paid at.
        environment: The settings that the service needs for this protocol.
        info: The protocol's member of the info file.
        exports: The settings of this protocol that the example clients read.
        rpc: The chain's node.
        takes_gas_in_asset: Whether the payer pays the chain's fee in the asset itself, on top of the price.
        balance: Returns an address's balance in base units, as the chain says.
        is_confirmed: Returns whether the chain holds this transaction as a successful one.
        others: The networks beside the first one, in the order of the challenges.
    """

    protocol: str
    network: str
    asset: str
    asset_name: str
    decimals: int = 6
    payer: Wallet
    payee: str
    environment: Mapping[str, str] = field(repr=False)
    info: Mapping[str, Any] = field(repr=False)
    exports: Mapping[str, str]
    rpc: str
    takes_gas_in_asset: bool = False
    balance: Callable[[str], int] = field(repr=False)
    is_confirmed: Callable[[str], bool] = field(repr=False)
    others: tuple[FundedNetwork, ...] = ()
