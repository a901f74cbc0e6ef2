"""What an operator configures of each protocol, and the networks that are known by name; no SDK is imported here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple


class Token(NamedTuple):
    """A six-decimal EIP-3009 token: its address and its EIP-712 domain."""

    asset: str
    name: str
    version: str


USDC: Final[dict[str, Token]] = {
    "eip155:8453": Token("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USD Coin", "2"),
    "eip155:84532": Token("0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC", "2"),
    "eip155:1": Token("0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", "USD Coin", "2"),
    "eip155:137": Token("0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359", "USD Coin", "2"),
    "eip155:43114": Token("0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", "USD Coin", "2"),
}
"""The USDC of the networks that need no X402_ASSET settings."""

TEMPO_TESTNET: Final = 42431

_LOCAL_CHAINS: Final = (1337, 31337)
_SDK_TESTNETS: Final = (51, 1328, 2201, 10143, 31611, 72344, 84532, 181228, 421614, 5042002, 11142220)
"""The test networks for which the x402 SDKs know a dollar, so that somebody may name them here."""

TESTNETS: Final = frozenset(
    f"eip155:{chain}" for chain in (TEMPO_TESTNET, 43113, 80002, 11155111, 11155420, *_SDK_TESTNETS, *_LOCAL_CHAINS)
)
"""Networks whose tokens are worth nothing; every other network counts as a mainnet."""


CDP_FACILITATOR: Final = "https://api.cdp.coinbase.com/platform/v2/x402"
"""Coinbase's facilitator, which X402_FACILITATOR_URL calls `cdp`; it takes signed requests only."""


@dataclass(frozen=True, slots=True)
class CdpKey:
    """What requests to Coinbase's facilitator are signed with."""

    id: str = field(repr=False)
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class X402Network:
    """A network on which x402 payments are taken, by its CAIP-2 name, and a node of it, where one may be asked."""

    name: str
    token: Token
    rpc_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class X402Config:
    """x402; challenges offer the networks in this order, timeouts are seconds in all."""

    pay_to: str
    networks: tuple[X402Network, ...]
    facilitator_url: str
    facilitator_authorization: str | None = field(default=None, repr=False)
    cdp_key: CdpKey | None = None
    max_timeout: int = 120
    verify_timeout: float = 10.0
    settle_timeout: float = 90.0

    def on(self, network: str) -> X402Network | None:
        """Return the network of this name; None where payments on it are not taken."""
        return next((taken for taken in self.networks if taken.name == network), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MppConfig:
    """MPP, a Tempo charge; `realm` is the public host, `currencies` are in the order of the challenges.

    Timeouts are seconds in all; `challenge_seconds` is how long a challenge may be answered.
    """

    recipient: str
    chain_id: int
    rpc_url: str = field(repr=False)
    currencies: tuple[str, ...]
    secret_key: str = field(repr=False)
    previous_secret_key: str | None = field(default=None, repr=False)
    realm: str
    challenge_seconds: int = 300
    verify_timeout: float = 10.0
    settle_timeout: float = 90.0

    @property
    def currency_names(self) -> frozenset[str]:
        """The currencies in lower case, as records name them."""
        return frozenset(currency.lower() for currency in self.currencies)
