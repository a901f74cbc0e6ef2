"""The places for connections: how many there are in all and for one client, and who makes room for one more."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

C = TypeVar("C", bound=Hashable)


class Places(Generic[C]):
    """The open connections of one server, by whose they are, and which of them wait for a request.

    Args:
        most: How many there may be.
        most_of_one: How many a single client may have.
        client_of: Returns whom an address counts as: a host may own many addresses.
        proxies: Who speaks for many clients, so that `most_of_one` does not hold for them.
    """

    def __init__(
        self, most: int, most_of_one: int, client_of: Callable[[str], str], proxies: Iterable[Network]
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._client_of = client_of
        self._proxies = tuple(proxies)
        self._is_proxy = lru_cache(maxsize=4096)(self._find_proxy)
        self._clients: dict[C, str | None] = {}
        # Dicts, because sets have no order: the first one has been idle for the longest.
        self._idle: dict[C, None] = {}
        self._of_client: dict[str, dict[C, None]] = {}
        self._idle_of_client: dict[str, dict[C, None]] = {}

    def take(self, connection: C, address: str | None) -> C | None:
        """Give a new connection a place; return the one that must end for it, which may be itself.

        That is the one of its client's, or of all, that has been idle for the longest.
        """
        client = None if address is None or self._is_proxy(address) else self._client_of(address)
        self._clients[connection] = client
        if client is not None:
            own = self._of_client.setdefault(client, {})
            own[connection] = None
            if len(own) > self._most_of_one:
                return next(iter(self._idle_of_client.get(client, {})), connection)
        if len(self._clients) > self._most:
            return next(iter(self._idle), connection)
        return None

    def leave(self, connection: C) -> None:
        """Give back the place of a connection; one that has none is of no account."""
        self.work(connection)
        client = self._clients.pop(connection, None)
        if client is not None:
            _remove(self._of_client, client, connection)

    def wait(self, connection: C) -> None:
        """Note that a connection waits for a request; while it waits already, its place in the line stays."""
        client = self._clients.get(connection)
        self._idle[connection] = None
        if client is not None:
            self._idle_of_client.setdefault(client, {})[connection] = None

    def work(self, connection: C) -> None:
        """Note that a connection waits no longer: it has a request, or ends."""
        self._idle.pop(connection, None)
        client = self._clients.get(connection)
        if client is not None:
            _remove(self._idle_of_client, client, connection)

    def _find_proxy(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in proxy for proxy in self._proxies)


def networks_of(proxies: Iterable[str]) -> Iterator[Network]:
    """Yield the networks of some addresses and networks, those of IPv4 in both their forms.

    A socket for both families shows the peer 192.0.2.1 as ::ffff:192.0.2.1.
    """
    for proxy in proxies:
        network = ipaddress.ip_network(proxy)
        yield network
        mapped = getattr(network.network_address, "ipv4_mapped", None)
        if network.version == 4:
            yield ipaddress.ip_network(f"::ffff:{network.network_address}/{96 + network.prefixlen}")
        elif mapped is not None and network.prefixlen >= 96:
            yield ipaddress.ip_network(f"{mapped}/{network.prefixlen - 96}")


def _remove(found: dict[str, dict[C, None]], client: str, connection: C) -> None:
    """Remove a connection of a client's, and the client with its last one."""
    own = found.get(client)
    if own is not None:
        own.pop(connection, None)
        if not own:
            del found[client]
