"""The only reader of the environment: RANKING_EVALUATE_* variables, checked once into a frozen object."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast
from urllib.parse import urlsplit

from ranking_evaluate.payments.config import (
    CDP_FACILITATOR,
    TEMPO_MAINNET,
    TESTNETS,
    USDC,
    CdpKey,
    MppConfig,
    X402Config,
)
from ranking_evaluate.settings import values

PREFIX: Final = "RANKING_EVALUATE_"

VARIABLES: Final[Mapping[str, str]] = {
    "PUBLIC_ORIGIN": "https://..., the origin in challenges and documents; required except on loopback",
    "DATABASE_URL": "sqlite:///ranking-evaluate.db (default) or postgresql://...",
    "X402_PAY_TO": "address that x402 payments go to",
    "X402_NETWORK": "eip155:8453 (mainnet), eip155:84532, ...",
    "X402_ASSET": "token address; default: the network's known USDC",
    "X402_ASSET_NAME": "the token's EIP-712 domain name",
    "X402_ASSET_VERSION": "the token's EIP-712 domain version",
    "X402_FACILITATOR_URL": "base URL of the facilitator, or cdp (Coinbase, with CDP_API_KEY_ID and _SECRET)",
    "X402_FACILITATOR_AUTHORIZATION": "value of the Authorization header for the facilitator",
    "X402_MAX_TIMEOUT": "maxTimeoutSeconds of the challenge, 120",
    "X402_RPC_URL": "JSON-RPC node for `attempts show --check`",
    "MPP_RECIPIENT": "address that MPP payments go to",
    "MPP_CHAIN_ID": "4217 (mainnet) or 42431 (testnet)",
    "MPP_RPC_URL": "JSON-RPC node of the Tempo chain",
    "MPP_CURRENCY": "token address",
    "MPP_SECRET_KEY": "secret of 32 bytes or more that binds challenges",
    "MPP_PREVIOUS_SECRET_KEY": "the secret before, honoured during rotation",
    "VERIFY_TIMEOUT": "seconds in all for a verification, 10",
    "SETTLE_TIMEOUT": "seconds in all for a settlement, 90",
    "REQUEST_RATE": "requests per client, 120/minute; empty switches it off",
    "PAYMENT_RATE": "payment attempts per client, 30/minute; empty switches it off",
    "RATE_STORAGE_URL": "where rates are counted, memory:// or redis://...",
    "MAX_IN_FLIGHT": "requests served at once, 256",
    "TRUSTED_PROXIES": "addresses or networks whose X-Forwarded-For is believed, comma-separated; none",
    "CORS_ORIGINS": "origins that browsers may call from, comma-separated, *; empty switches CORS off",
    "LOG_LEVEL": "debug, info, warning or error; info",
    "METRICS_PORT": "loopback port for metrics; off",
    "SECURITY_CONTACT": "mailto: or https: address for security.txt; none",
    "WALLET_KEY": "private key that `pay` signs with; no other command reads it",
}
"""Every variable, without the prefix, and what it means."""

CDP_VARIABLES: Final = ("CDP_API_KEY_ID", "CDP_API_KEY_SECRET")
"""Named by Coinbase, hence without the prefix; read with X402_FACILITATOR_URL `cdp` alone."""

_X402_NEEDED: Final = ("X402_PAY_TO", "X402_NETWORK", "X402_FACILITATOR_URL")
_MPP_NEEDED: Final = ("MPP_RECIPIENT", "MPP_CHAIN_ID", "MPP_RPC_URL", "MPP_CURRENCY", "MPP_SECRET_KEY")

T = TypeVar("T")


class SettingsError(Exception):
    """The environment is not usable; `faults` holds one line for each wrong variable."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that an operator configures; times are seconds, rates are in the notation of `limits`, None is off."""

    public_origin: str
    database_url: str = field(repr=False)
    x402: X402Config | None
    mpp: MppConfig | None
    verify_timeout: float
    settle_timeout: float
    request_rate: str | None
    payment_rate: str | None
    rate_storage_url: str = field(repr=False)
    max_in_flight: int
    trusted_proxies: tuple[str, ...]
    cors_origins: tuple[str, ...]
    log_level: str
    metrics_port: int | None
    security_contact: str | None


@dataclass(frozen=True, slots=True)
class Wallet:
    """What `pay` signs with, and the node that it may need for that."""

    key: str | None = field(repr=False)
    mpp_rpc_url: str | None


def read_wallet(environment: Mapping[str, str] | None = None) -> Wallet:
    """Return the buyer's settings; unlike a service, a buyer configures no rail."""
    given = os.environ if environment is None else environment
    return Wallet(given.get(f"{PREFIX}WALLET_KEY") or None, given.get(f"{PREFIX}MPP_RPC_URL") or None)


def read_database_url(environment: Mapping[str, str] | None = None) -> str:
    """Return where attempts are kept, whatever the other variables say: looking at them needs no rail.

    Raises:
        SettingsError: The variable is wrong.
    """
    reader = _Reader(os.environ if environment is None else environment)
    url = reader.database_url()
    if reader.faults:
        raise SettingsError(reader.faults)
    return url


def read_settings(
    environment: Mapping[str, str] | None = None, *, host: str = "127.0.0.1", port: int = 8402
) -> Settings:
    """Return the settings in the process's environment; `host` and `port` are the address that is going to be bound.

    Raises:
        SettingsError: With one line for every wrong variable, saying which it is and what to do.
    """
    return _Reader(os.environ if environment is None else environment).settings(host, port)


class _Reader:
    """Collects faults while it reads, so that an operator sees all of them at once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._given = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
        self._cdp = {name: environment.get(name, "").strip() for name in CDP_VARIABLES}
        self.faults: list[str] = []

    def settings(self, host: str, port: int) -> Settings:
        self._refuse_unknown()
        verify_timeout = self._read("VERIFY_TIMEOUT", values.seconds, 10.0)
        settle_timeout = self._read("SETTLE_TIMEOUT", values.seconds, 90.0)
        origin = self._origin(host, port)
        settings = Settings(
            public_origin=origin,
            database_url=self.database_url(),
            x402=self._x402(verify_timeout, settle_timeout),
            mpp=self._mpp(origin, verify_timeout, settle_timeout),
            verify_timeout=verify_timeout,
            settle_timeout=settle_timeout,
            request_rate=self._read("REQUEST_RATE", values.rate, "120/minute", empty=None),
            payment_rate=self._read("PAYMENT_RATE", values.rate, "30/minute", empty=None),
            rate_storage_url=self._read("RATE_STORAGE_URL", values.rate_storage, "memory://"),
            max_in_flight=self._read("MAX_IN_FLIGHT", values.count, 256),
            trusted_proxies=self._read("TRUSTED_PROXIES", values.proxies, (), empty=()),
            cors_origins=self._read("CORS_ORIGINS", values.origins, ("*",), empty=()),
            log_level=self._read("LOG_LEVEL", values.level, "info"),
            metrics_port=self._read("METRICS_PORT", values.port, None, empty=None),
            security_contact=self._read("SECURITY_CONTACT", values.contact, None, empty=None),
        )
        self._refuse_mixed_money(settings)
        if self.faults:
            raise SettingsError(self.faults)
        return settings

    def database_url(self) -> str:
        return self._read("DATABASE_URL", values.database, "sqlite:///ranking-evaluate.db")

    def _fault(self, name: str, text: str) -> None:
        self.faults.append(f"{PREFIX}{name}: {text}")

    def _text(self, name: str) -> str | None:
        return self._given.get(PREFIX + name, "").strip() or None

    def _read(self, name: str, check: Callable[[str], T], default: T, *, empty: T | None = None) -> T:
        """Return the checked value, the default when it is not set, `empty` when it is set to nothing."""
        raw = self._given.get(PREFIX + name)
        if raw is None:
            return default
        if not raw.strip():
            return cast("T", empty) if name in _MAY_BE_EMPTY else default
        try:
            return check(raw.strip())
        except ValueError as error:
            self._fault(name, str(error))
            return default

    def _refuse_unknown(self) -> None:
        for name in sorted(self._given):
            if name.removeprefix(PREFIX) not in VARIABLES:
                near = difflib.get_close_matches(name.removeprefix(PREFIX), VARIABLES, n=1)
                hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
                self.faults.append(f"{name}: there is no such variable{hint}")

    def _origin(self, host: str, port: int) -> str:
        bound = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if self._text("PUBLIC_ORIGIN") is None and not values.is_loopback(host):
            self._fault("PUBLIC_ORIGIN", f"needed, since {host} is not a loopback address: set it to https://your.host")
        return self._read("PUBLIC_ORIGIN", values.public_origin, bound)

    def _rail(self, needed: tuple[str, ...], family: str) -> bool:
        """Return whether a rail is wholly configured; half a rail is a fault."""
        given = [name for name in VARIABLES if name.startswith(family) and self._text(name)]
        missing = [name for name in needed if not self._text(name)]
        if given and missing:
            self._fault(
                missing[0], f"needed, since {PREFIX}{given[0]} is set: a rail is configured whole or not at all"
            )
        return bool(given) and not missing

    def _x402(self, verify_timeout: float, settle_timeout: float) -> X402Config | None:
        if not self._rail(_X402_NEEDED, "X402_"):
            return None
        network = self._read("X402_NETWORK", values.network, "")
        known = USDC.get(network)
        own = [self._text(name) for name in ("X402_ASSET", "X402_ASSET_NAME", "X402_ASSET_VERSION")]
        if network and not all(own) and (known is None or any(own)):
            why = f"{network} has no known USDC" if known is None else "one of them is set"
            self._fault("X402_ASSET", f"X402_ASSET, X402_ASSET_NAME and X402_ASSET_VERSION go together: {why}")
        url = self._read("X402_FACILITATOR_URL", values.facilitator, "")
        cdp_key = self._cdp_key() if url == CDP_FACILITATOR else None
        return X402Config(
            pay_to=self._read("X402_PAY_TO", values.address, ""),
            network=network,
            asset=self._read("X402_ASSET", values.address, known.asset if known else ""),
            asset_name=own[1] or (known.name if known else ""),
            asset_version=own[2] or (known.version if known else ""),
            facilitator_url=url,
            facilitator_authorization=self._read("X402_FACILITATOR_AUTHORIZATION", values.header_value, None),
            cdp_key=cdp_key,
            max_timeout=self._read("X402_MAX_TIMEOUT", values.max_timeout, 120),
            rpc_url=self._read("X402_RPC_URL", values.url, None),
            verify_timeout=verify_timeout,
            settle_timeout=settle_timeout,
        )

    def _cdp_key(self) -> CdpKey | None:
        for name in CDP_VARIABLES:
            if not self._cdp[name]:
                self.faults.append(f"{name}: needed, since {PREFIX}X402_FACILITATOR_URL is cdp")
        if self._text("X402_FACILITATOR_AUTHORIZATION"):
            self._fault("X402_FACILITATOR_AUTHORIZATION", "not with the facilitator cdp, whose requests are signed")
        return CdpKey(*(self._cdp[name] for name in CDP_VARIABLES)) if all(self._cdp.values()) else None

    def _mpp(self, origin: str, verify_timeout: float, settle_timeout: float) -> MppConfig | None:
        if not self._rail(_MPP_NEEDED, "MPP_"):
            return None
        return MppConfig(
            recipient=self._read("MPP_RECIPIENT", values.address, ""),
            chain_id=self._read("MPP_CHAIN_ID", values.count, 0),
            rpc_url=self._read("MPP_RPC_URL", values.url, ""),
            currency=self._read("MPP_CURRENCY", values.address, ""),
            secret_key=self._read("MPP_SECRET_KEY", values.secret, ""),
            previous_secret_key=self._read("MPP_PREVIOUS_SECRET_KEY", values.secret, None),
            realm=urlsplit(origin).hostname or "",
            verify_timeout=verify_timeout,
            settle_timeout=settle_timeout,
        )

    def _refuse_mixed_money(self, settings: Settings) -> None:
        if settings.x402 is None or settings.mpp is None or self.faults:
            return
        mpp_is_real = settings.mpp.chain_id == TEMPO_MAINNET
        if mpp_is_real == (settings.x402.network in TESTNETS):
            self._fault(
                "X402_NETWORK",
                f"{settings.x402.network} and MPP_CHAIN_ID {settings.mpp.chain_id} mix a mainnet with a testnet: "
                "choose two mainnets or two testnets",
            )


_MAY_BE_EMPTY: Final = frozenset(
    {"REQUEST_RATE", "PAYMENT_RATE", "TRUSTED_PROXIES", "CORS_ORIGINS", "METRICS_PORT", "SECURITY_CONTACT"}
)
