"""The only reader of the environment: checks every variable once and returns a frozen object."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ranking_evaluate.payments.config import (
    CDP_FACILITATOR,
    TESTNETS,
    CdpKey,
    MppConfig,
    X402Config,
)
from ranking_evaluate.settings import networks, values
from ranking_evaluate.settings.variables import PREFIX, VARIABLES, Group, Variable, variables_of


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
    evaluation_workers: int | None
    evaluation_rate: str | None
    trusted_proxies: tuple[str, ...]
    cors_origins: tuple[str, ...]
    reconcile: bool
    log_level: str
    metrics_port: int | None
    metrics_host: str
    security_contact: str | None
    previous_origin: str | None = None


@dataclass(frozen=True, slots=True)
class Wallet:
    """What `pay` signs with, and the node that it may need for that."""

    key: str | None = field(repr=False)
    mpp_rpc_url: str | None


def read_wallet(environment: Mapping[str, str] | None = None) -> Wallet:
    """Return the buyer's settings; unlike a service, a buyer configures no protocol."""
    given = os.environ if environment is None else environment
    return Wallet(given.get(f"{PREFIX}WALLET_KEY") or None, given.get(f"{PREFIX}MPP_RPC_URL") or None)


def read_database_url(environment: Mapping[str, str] | None = None) -> str:
    """Return where attempts are kept, whatever the other variables say: looking at attempts needs no protocol.

    Raises:
        SettingsError: The variable is wrong.
    """
    reader = _Reader(os.environ if environment is None else environment)
    url: str = reader.read(VARIABLES["DATABASE_URL"])
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
        self._environment = environment
        self.faults: list[str] = []

    def settings(self, host: str, port: int) -> Settings:
        self._refuse_unknown()
        # The buyer's key is none of the service's business.
        groups = [group for group in Group if group is not Group.BUYER]
        found = {variable.name: self.read(variable) for variable in variables_of(*groups)}
        if not self._is_set(VARIABLES["PUBLIC_ORIGIN"]):
            found["PUBLIC_ORIGIN"] = self._bound_origin(host, port)
        x402, mpp = self._is_configured(Group.X402), self._is_configured(Group.MPP)
        if x402:
            self._check_coinbase_key(found)
        if x402 and found["X402_NETWORK"]:
            for name, text in networks.faults(found):
                self._fault(name, text)
        if x402 and not self.faults:
            self._refuse_mixed_money(found["X402_NETWORK"], found["MPP_CHAIN_ID"] if mpp else None)
        if self.faults:
            raise SettingsError(self.faults)
        return Settings(
            **_fields(found, Group.SERVICE, Group.LIMITS),
            x402=_x402(found) if x402 else None,
            mpp=_mpp(found) if mpp else None,
        )

    def read(self, variable: Variable) -> Any:  # noqa: ANN401 - the table holds values of every type.
        """Return the checked value or the default; None, with a fault noted, when the text is wrong."""
        try:
            return variable.value(self._environment.get(variable.full_name))
        except ValueError as error:
            self._fault(variable.name, str(error))
            return None

    def _fault(self, name: str, text: str) -> None:
        self.faults.append(f"{VARIABLES[name].full_name}: {text}")

    def _is_set(self, variable: Variable) -> bool:
        return bool(self._environment.get(variable.full_name, "").strip())

    def _refuse_unknown(self) -> None:
        known = {variable.full_name for variable in VARIABLES.values()}
        for name in sorted(self._environment):
            if name.startswith(PREFIX) and name not in known:
                near = difflib.get_close_matches(name.removeprefix(PREFIX), VARIABLES, n=1)
                hint = f"; did you mean {VARIABLES[near[0]].full_name}?" if near else "; docs/settings.md has all"
                self.faults.append(f"{name}: there is no such variable{hint}")

    def _bound_origin(self, host: str, port: int) -> str:
        if not values.is_loopback(host):
            self._fault("PUBLIC_ORIGIN", f"needed, since {host} is not a loopback address: set it to https://your.host")
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def _is_configured(self, protocol: Group) -> bool:
        """Return whether all that a protocol requires is set; half a protocol is a fault."""
        given = [variable for variable in variables_of(protocol) if self._is_set(variable)]
        missing = [variable for variable in variables_of(protocol) if variable.required and variable not in given]
        if given and missing:
            self._fault(
                missing[0].name,
                f"needed, since {given[0].full_name} is set: a protocol is configured whole or not at all",
            )
        return bool(given) and not missing

    def _check_coinbase_key(self, found: Mapping[str, Any]) -> None:
        if found["X402_FACILITATOR_URL"] != CDP_FACILITATOR:
            return
        for variable in variables_of(Group.COINBASE):
            if not self._is_set(variable):
                self._fault(variable.name, f"needed, since {PREFIX}X402_FACILITATOR_URL is cdp")
        if self._is_set(VARIABLES["X402_FACILITATOR_AUTHORIZATION"]):
            self._fault("X402_FACILITATOR_AUTHORIZATION", "not with the facilitator cdp, whose requests are signed")

    def _refuse_mixed_money(self, networks: Sequence[str], mpp_chain_id: int | None) -> None:
        """Note a fault where some networks have real money and others worthless money."""
        kinds = {network in TESTNETS: network for network in networks}
        if mpp_chain_id is not None:
            kinds.setdefault(f"eip155:{mpp_chain_id}" in TESTNETS, f"MPP_CHAIN_ID {mpp_chain_id}")
        if len(kinds) > 1:
            self._fault(
                "X402_NETWORK",
                f"{kinds[False]} and {kinds[True]} mix a mainnet with a testnet: "
                "choose mainnets alone or testnets alone",
            )


def _fields(found: Mapping[str, Any], *groups: Group) -> dict[str, Any]:
    return {variable.field: found[variable.name] for variable in variables_of(*groups)}


def _deadlines(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"verify_timeout": found["VERIFY_TIMEOUT"], "settle_timeout": found["SETTLE_TIMEOUT"]}


def _x402(found: Mapping[str, Any]) -> X402Config:
    fields = {variable.field: found[variable.name] for variable in variables_of(Group.X402)}
    for name in networks.BY_NETWORK:
        del fields[VARIABLES[name].field]
    by_coinbase = fields["facilitator_url"] == CDP_FACILITATOR
    key = CdpKey(found["CDP_API_KEY_ID"], found["CDP_API_KEY_SECRET"]) if by_coinbase else None
    return X402Config(**fields, **_deadlines(found), networks=networks.of(found), cdp_key=key)


def _mpp(found: Mapping[str, Any]) -> MppConfig:
    fields = _fields(found, Group.MPP)
    realm = urlsplit(found["PUBLIC_ORIGIN"]).hostname or ""
    currencies = fields.pop("currency")
    return MppConfig(**fields, **_deadlines(found), currencies=currencies, realm=realm)
