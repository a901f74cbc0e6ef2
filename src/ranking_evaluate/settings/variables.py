"""The one table of settings: reading, refusals, defaults and docs/settings.md come from it.

A new setting is a row here and a field of that name, in lower case, in `Settings`; for a variable of a protocol, in
`X402Config` or `MppConfig`, without the protocol's prefix. `settings/networks.py` reads those that x402 has by network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ranking_evaluate.settings import values

PREFIX: Final = "RANKING_EVALUATE_"


class Group(Enum):
    """What a variable belongs to; the value is its heading in docs/settings.md."""

    SERVICE = "The service"
    LIMITS = "Limits and deadlines"
    X402 = "x402"
    COINBASE = "Coinbase's facilitator"
    MPP = "MPP"
    BUYER = "Buying with `ranking-evaluate pay`"


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Args:
        group: What it belongs to.
        name: Its name without the prefix; Coinbase names its own variables, which have none.
        check: Returns the value of a text, or raises ValueError saying what it should have been, without quoting it.
        meaning: What an operator reads about it, as Markdown.
        default: The text that holds while the variable is not set; an empty one stands for `nothing`.
        default_rule: The default in words, where it depends on something else.
        nothing: The value of an empty text.
        may_be_empty: Whether an empty variable means `nothing`; otherwise it means the default.
        required: Whether its protocol cannot be configured without it.
    """

    group: Group
    name: str
    check: Callable[[str], object]
    meaning: str
    default: str = ""
    default_rule: str = ""
    nothing: object = None
    may_be_empty: bool = False
    required: bool = False

    @property
    def full_name(self) -> str:
        """The name of the environment variable."""
        return self.name if self.group is Group.COINBASE else PREFIX + self.name

    @property
    def field(self) -> str:
        """The name of the field that takes the value."""
        protocol = f"{self.group.name}_" if self.group in {Group.X402, Group.MPP} else ""
        return self.name.removeprefix(protocol).lower()

    def value(self, text: str | None) -> object:
        """Return the value of a text, or of the default where the variable is not set.

        Raises:
            ValueError: The text is wrong.
        """
        text = self.default if text is None else text.strip()
        if not text and not self.may_be_empty:
            text = self.default
        return self.check(text) if text else self.nothing


_TABLE: Final = (
    Variable(
        Group.SERVICE,
        "PUBLIC_ORIGIN",
        values.public_origin,
        "The origin that callers use, such as `https://rank.example.org`; challenges and documents name it.",
        default_rule="the address that is bound, if it is a loopback address; otherwise required",
    ),
    Variable(
        Group.SERVICE,
        "DATABASE_URL",
        values.database,
        "Where purchases are kept: `sqlite:///path` (four slashes for an absolute path) or `postgresql://...`.",
        default="sqlite:///ranking-evaluate.db",
    ),
    Variable(
        Group.SERVICE,
        "CORS_ORIGINS",
        values.origins,
        "The origins that browsers may call from, separated by commas; `*` stands for all, an empty variable for none.",
        default="*",
        nothing=(),
        may_be_empty=True,
    ),
    Variable(
        Group.SERVICE,
        "SECURITY_CONTACT",
        values.contact,
        "The `mailto:` or `https:` address for /.well-known/security.txt, which is there only with it.",
    ),
    Variable(
        Group.SERVICE,
        "PREVIOUS_ORIGIN",
        values.public_origin,
        "The origin at which the release before this one still answers what it sold; the 409 to what that one sold "
        "names it.",
    ),
    Variable(
        Group.SERVICE,
        "RECONCILE",
        values.reconcile,
        "`chain`: the service asks the chain about uncertain payments and records what it says finally. `off`: an "
        "operator decides about each.",
        default="chain",
    ),
    Variable(Group.SERVICE, "LOG_LEVEL", values.level, "`debug`, `info`, `warning` or `error`.", default="info"),
    Variable(Group.SERVICE, "METRICS_PORT", values.port, "The port that serves Prometheus metrics."),
    Variable(
        Group.SERVICE,
        "METRICS_HOST",
        values.metrics_host,
        "The address that METRICS_PORT listens on. Metrics have no names of callers and need no secret: give them to a "
        "network of your own alone.",
        default="127.0.0.1",
    ),
    Variable(
        Group.LIMITS,
        "REQUEST_RATE",
        values.rate,
        "Requests per client, such as `120/minute` or `5/second`; an empty variable switches the limit off.",
        default="120/minute",
        may_be_empty=True,
    ),
    Variable(
        Group.LIMITS,
        "PAYMENT_RATE",
        values.payment_rate,
        "Payment attempts per client; an empty variable switches the limit off. `0/day` ends sales: no challenge goes "
        "out and no payment is taken, and what was bought is delivered as before.",
        default="30/minute",
        may_be_empty=True,
    ),
    Variable(
        Group.LIMITS,
        "RATE_STORAGE_URL",
        values.rate_storage,
        "Where both rates are counted: `memory://` for one process, `redis://host:port` for all replicas.",
        default="memory://",
    ),
    Variable(
        Group.LIMITS,
        "TRUSTED_PROXIES",
        values.proxies,
        "The addresses or networks whose X-Forwarded-For is believed, separated by commas; "
        "they may open more than 64 connections.",
        nothing=(),
    ),
    Variable(Group.LIMITS, "MAX_IN_FLIGHT", values.count, "How many requests are served at once.", default="256"),
    Variable(
        Group.LIMITS,
        "EVALUATION_WORKERS",
        values.count,
        "How many processes evaluate what takes more than 2 ms.",
        default_rule="one less than the processor cores that the service may use, at least one",
    ),
    Variable(
        Group.LIMITS,
        "EVALUATION_RATE",
        values.rate,
        "Seconds that these processes may work for one client, counted by each service process alone; an empty "
        "variable switches the limit off.",
        default="20/minute",
        may_be_empty=True,
    ),
    Variable(
        Group.LIMITS,
        "VERIFY_TIMEOUT",
        values.seconds,
        "Seconds that a verification may take, 0.1 to 600.",
        default="10",
    ),
    Variable(
        Group.LIMITS, "SETTLE_TIMEOUT", values.seconds, "Seconds that a settlement may take, 0.1 to 600.", default="90"
    ),
    Variable(Group.X402, "X402_PAY_TO", values.address, "The address that is paid.", required=True),
    Variable(
        Group.X402,
        "X402_NETWORK",
        values.networks,
        "The CAIP-2 name of the network, such as `eip155:8453` (Base) or `eip155:84532` (its testnet); or several, "
        "separated by commas, the preferred one first.",
        required=True,
    ),
    Variable(
        Group.X402,
        "X402_FACILITATOR_URL",
        values.facilitator,
        "The base URL of the facilitator, which verifies and settles; `cdp` stands for Coinbase's.",
        required=True,
    ),
    Variable(
        Group.X402,
        "X402_FACILITATOR_AUTHORIZATION",
        values.header_value,
        "The value of the Authorization header that the facilitator wants; not with `cdp`.",
    ),
    Variable(
        Group.X402,
        "X402_ASSET",
        values.on_networks(values.address),
        "The address of the token, which must have six decimals. The three `X402_ASSET` variables go together. With "
        "several networks each holds `network=value` pairs, separated by commas; networks with a known USDC may be "
        "left out.",
        nothing={},
        default_rule="the network's USDC, where it is known",
    ),
    Variable(
        Group.X402,
        "X402_ASSET_NAME",
        values.on_networks(str),
        "The name in the token's EIP-712 domain.",
        nothing={},
        default_rule="that USDC's",
    ),
    Variable(
        Group.X402,
        "X402_ASSET_VERSION",
        values.on_networks(str),
        "The version in the token's EIP-712 domain.",
        nothing={},
        default_rule="that USDC's",
    ),
    Variable(
        Group.X402,
        "X402_MAX_TIMEOUT",
        values.max_timeout,
        "The challenge's `maxTimeoutSeconds`: how long a signed payment may be valid, 30 to 600.",
        default="120",
    ),
    Variable(
        Group.X402,
        "X402_RPC_URL",
        values.on_networks(values.url),
        "A JSON-RPC node of the network: with it uncertain payments end by themselves, and what a payer's purchases "
        "under way may take counts against its balance. With several networks, `network=url` pairs, separated by "
        "commas; the start names the networks that are left out.",
        nothing={},
    ),
    Variable(Group.COINBASE, "CDP_API_KEY_ID", str, "The id of the API key that requests are signed with."),
    Variable(Group.COINBASE, "CDP_API_KEY_SECRET", str, "The secret of that key."),
    Variable(Group.MPP, "MPP_RECIPIENT", values.address, "The address that is paid.", required=True),
    Variable(
        Group.MPP,
        "MPP_CHAIN_ID",
        values.count,
        "The Tempo chain: `4217` (mainnet) or `42431` (testnet).",
        required=True,
    ),
    Variable(
        Group.MPP,
        "MPP_RPC_URL",
        values.url,
        "A JSON-RPC node of the chain; payments are sent through it.",
        required=True,
    ),
    Variable(
        Group.MPP,
        "MPP_CURRENCY",
        values.currencies,
        "The address of the token that is taken, or of two, separated by a comma, in the order in which they are "
        "offered: on mainnet USDC.e, `0x20C000000000000000000000b9537d11c60E8b50`, which wallets hold by default; on "
        "the testnet pathUSD, `0x20c0000000000000000000000000000000000000`.",
        required=True,
    ),
    Variable(
        Group.MPP,
        "MPP_CHALLENGE_SECONDS",
        values.challenge_seconds,
        "How long a challenge may be answered, 20 to 300. A transaction may be valid for as long, which must not be "
        "longer than the chain takes: 300 seconds, and 30 before Tempo's hardfork T11.",
        default="300",
    ),
    Variable(
        Group.MPP,
        "MPP_SECRET_KEY",
        values.secret,
        "The secret, of 32 bytes or more, that binds challenges; `openssl rand -hex 32` makes one.",
        required=True,
    ),
    Variable(
        Group.MPP, "MPP_PREVIOUS_SECRET_KEY", values.secret, "The secret before it, honoured while secrets are rotated."
    ),
    Variable(Group.BUYER, "WALLET_KEY", str, "The private key that `pay` signs with; no other command reads it."),
)

VARIABLES: Final[Mapping[str, Variable]] = {variable.name: variable for variable in _TABLE}
"""Every variable by its name without the prefix, in the order of the documentation."""


def variables_of(*groups: Group) -> list[Variable]:
    """Return the variables of some groups, in the order of the table."""
    return [variable for variable in _TABLE if variable.group in groups]
