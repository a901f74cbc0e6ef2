"""One variable's text -> its value, or a ValueError that says what it should have been; it never quotes the text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from eth_utils.address import is_checksum_address
from limits import parse

from ranking_evaluate.payments.config import CDP_FACILITATOR

MAX_CURRENCIES: Final = 2

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_NETWORK: Final = re.compile(r"eip155:[1-9][0-9]{0,17}")
_PAIR: Final = re.compile(rf"{_NETWORK.pattern}\s*=")
# A comma may stand in a value: only one before another pair ends it.
_NEXT_PAIR: Final = re.compile(rf",\s*(?={_PAIR.pattern})")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address(value: str) -> str:
    """Return an EVM address whose checksum, where it has one, is right."""
    if not _ADDRESS.fullmatch(value) or int(value, 16) == 0:
        raise ValueError("not an address of 0x and 40 hexadecimal digits")
    digits = value[2:]
    if digits not in (digits.lower(), digits.upper()) and not is_checksum_address(value):
        raise ValueError("its checksum (EIP-55, the case of its letters) is wrong: one digit may be mistyped")
    return value


def currencies(value: str) -> tuple[str, ...]:
    """Return the addresses of one token or two, each named once: a 402's head has room for two challenges."""
    found = tuple(address(part.strip()) for part in value.split(","))
    if len({each.lower() for each in found}) < len(found):
        raise ValueError("names an address twice")
    if len(found) > MAX_CURRENCIES:
        raise ValueError(f"more than {MAX_CURRENCIES} addresses, for which the head of a 402 has no room")
    return found


def networks(value: str) -> tuple[str, ...]:
    """Return CAIP-2 networks of EVM chains, each once."""
    networks = tuple(part.strip() for part in value.split(","))
    if not all(map(_NETWORK.fullmatch, networks)):
        raise ValueError("not a CAIP-2 network such as eip155:8453, or several separated by commas")
    if len(set(networks)) < len(networks):
        raise ValueError("names a network twice")
    return networks


def on_networks(check: Callable[[str], str]) -> Callable[[str], Mapping[str, str]]:
    """Return a check of one value, for the one network, or of `network=value` pairs separated by commas.

    Args:
        check: The check of one value.

    Returns:
        A check whose result has the values by network; the one value of the one network stands under an empty name.
    """

    def checked(value: str) -> Mapping[str, str]:
        if not _PAIR.match(value):
            return {"": check(value)}
        pairs = [pair.partition("=") for pair in _NEXT_PAIR.split(value)]
        found = {network.strip(): check(text.strip()) for network, _, text in pairs}
        if len(found) < len(pairs):
            raise ValueError("names a network twice")
        return found

    return checked


def url(value: str) -> str:
    """Return a provider's URL without query and fragment: https, but for a loopback address."""
    parts = urlsplit(value)
    # Asking for a port that is none raises a ValueError of its own.
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0 or parts.query or parts.fragment:
        raise ValueError("not an http or https URL")
    if "," in parts.netloc:
        raise ValueError("not one http or https URL: each of several needs its network, as network=url")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("must be https, except for a loopback address: use a tunnel to one, or TLS")
    return value


def facilitator(value: str) -> str:
    """Return a facilitator's URL; `cdp` stands for Coinbase's."""
    if urlsplit(value).username is not None:
        raise ValueError("must not hold a user name: set X402_FACILITATOR_AUTHORIZATION instead")
    return CDP_FACILITATOR if value.rstrip("/") in {"cdp", CDP_FACILITATOR} else url(value)


def public_origin(value: str) -> str:
    """Return an origin, which is https unless only this machine reaches it."""
    parts = urlsplit(value)
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    # Asking for a port that is none raises a ValueError of its own.
    if not parts.hostname or parts.port == 0 or not plain or parts.scheme not in {"http", "https"}:
        raise ValueError("not an origin such as https://your.host, without a path")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("must be https, except for a loopback address")
    return value.rstrip("/")


def database(value: str) -> str:
    """Return a store's URL."""
    if value.startswith("sqlite:///") and len(value) > len("sqlite:///"):
        return value
    if value.startswith("postgresql://"):
        return value
    raise ValueError("not sqlite:///path (four slashes for an absolute path) or postgresql://...")


def seconds(value: str) -> float:
    """Return a time, in seconds."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 600:
        raise ValueError("not a number of seconds between 0.1 and 600")
    return seconds


def max_timeout(value: str) -> int:
    """Return how long a payment may be valid, in seconds."""
    seconds = count(value)
    if not 30 <= seconds <= 600:
        raise ValueError("not a number of seconds between 30 and 600")
    return seconds


def challenge_seconds(value: str) -> int:
    """Return how long a challenge may be answered, in seconds."""
    seconds = count(value)
    if not 20 <= seconds <= 300:
        raise ValueError("not a number of seconds between 20 and 300")
    return seconds


def metrics_host(value: str) -> str:
    """Return an IP address to listen on."""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise ValueError("not an IP address, such as 127.0.0.1 or 0.0.0.0") from None


def reconcile(value: str) -> bool:
    """Return whether the service asks the chain about uncertain payments."""
    if value not in {"chain", "off"}:
        raise ValueError("neither chain nor off")
    return value == "chain"


def count(value: str) -> int:
    """Return a whole number above zero."""
    if not value.isascii() or not value.isdigit() or int(value) == 0:
        raise ValueError("not a whole number above zero")
    return int(value)


def port(value: str) -> int:
    """Return a port."""
    port = count(value)
    if port > 65535:
        raise ValueError("not a port")
    return port


def rate(value: str) -> str:
    """Return a rate in the notation of `limits`."""
    try:
        amount = parse(value).amount
    except ValueError:
        raise ValueError("not a rate such as 120/minute") from None
    if amount == 0:
        raise ValueError("a rate of nothing would refuse everybody; an empty variable switches the limit off")
    return value


def payment_rate(value: str) -> str:
    """Return a rate in the notation of `limits`, or `0/day`, which ends sales."""
    return value if re.fullmatch(r"0\s*/\s*day", value) else rate(value)


def rate_storage(value: str) -> str:
    """Return where rates are counted."""
    if value == "memory://" or value.startswith(("redis://", "rediss://")):
        return value
    raise ValueError("not memory:// or redis://host:port")


def proxies(value: str) -> tuple[str, ...]:
    """Return addresses and networks."""
    proxies = tuple(part.strip() for part in value.split(","))
    for proxy in proxies:
        try:
            network = ipaddress.ip_network(proxy, strict=False)
        except ValueError:
            raise ValueError("not a comma-separated list of IP addresses or networks") from None
        if ipaddress.ip_interface(proxy).ip != network.network_address:
            raise ValueError("a network with bits set behind its prefix: write 10.0.0.0/8 for 10.0.0.5/8")
    return proxies


def origins(value: str) -> tuple[str, ...]:
    """Return origins; `*` stands for all."""
    origins = tuple(part.strip().rstrip("/") for part in value.split(","))
    for origin in origins:
        if origin != "*" and not (urlsplit(origin).scheme in {"http", "https"} and urlsplit(origin).hostname):
            raise ValueError("not * or a comma-separated list of origins")
    return origins


def level(value: str) -> str:
    """Return a log level in lower case."""
    if value.lower() not in {"debug", "info", "warning", "error"}:
        raise ValueError("not one of debug, info, warning, error")
    return value.lower()


def contact(value: str) -> str:
    """Return a mailto: or https: address."""
    if not value.startswith(("mailto:", "https://")):
        raise ValueError("not a mailto: or https: address")
    return value


def secret(value: str) -> str:
    """Return a secret of 32 bytes or more."""
    if len(value.encode()) < 32:
        raise ValueError("shorter than 32 bytes: make one with `openssl rand -hex 32`")
    return value


def header_value(value: str) -> str:
    """Return what may stand in a header."""
    if not value.isascii() or not value.isprintable():
        raise ValueError("not a header value of printable ASCII characters")
    return value
