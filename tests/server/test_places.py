"""Who makes room for one connection more: the one of the client, or of all, that has been idle for the longest."""

from __future__ import annotations

import ipaddress
import random

import pytest

from ranking_evaluate.server.places import Places, networks_of

A, B, C = "192.0.2.1", "192.0.2.2", "192.0.2.3"


def places(most: int = 100, most_of_one: int = 2, *proxies: str) -> Places[int]:
    return Places(most, most_of_one, str, networks_of(proxies))


def test_over_its_own_cap_a_client_gives_up_its_own_longest_idle_connection() -> None:
    held = places()
    for number, address in enumerate([B, A, A]):
        assert held.take(number, address) is None
        held.wait(number)
    held.work(1)
    held.wait(1)
    assert held.take(3, A) == 2
    held.leave(2)
    held.wait(3)
    assert held.take(4, A) == 1


def test_a_client_whose_connections_are_all_at_work_gets_no_further_one() -> None:
    held = places()
    for number in range(2):
        held.take(number, A)
    assert held.take(2, A) == 2
    held.leave(2)
    assert held.take(3, B) is None


def test_over_the_cap_of_all_the_longest_idle_of_all_makes_room() -> None:
    held = places(2)
    for number, address in enumerate([A, B]):
        held.take(number, address)
        held.wait(number)
    assert held.take(2, C) == 0


@pytest.mark.parametrize("proxies", [(A,), ("192.0.2.0/24", B)])
def test_a_proxy_has_as_many_as_there_are_places(proxies: tuple[str, ...]) -> None:
    held = places(10, 2, *proxies)
    for number in range(10):
        assert held.take(number, A) is None
        held.wait(number)
    assert held.take(10, A) == 0
    held.leave(0)
    assert held.take(11, None) == 1, "what has no address is no client"


def test_addresses_of_one_client_are_counted_together() -> None:
    held: Places[int] = Places(100, 1, lambda address: address[:4], ())
    held.take(0, A)
    held.wait(0)
    assert held.take(1, "192.0.99.99") == 0
    held.leave(0)
    assert held.take(2, "198.51.100.1") is None


def test_nothing_is_remembered_of_connections_that_are_gone() -> None:
    """Random lives of 200 connections, held against a count by hand."""
    held, alive, rng = places(1_000, 1_000), {}, random.Random(15)
    for number in range(200):
        address = rng.choice([A, B, C])
        assert held.take(number, address) is None
        alive[number] = address
        for one in rng.sample(sorted(alive), k=min(len(alive), 3)):
            rng.choice([held.wait, held.work, held.leave])(one)
            if one not in held._clients:
                del alive[one]
        assert {client: len(own) for client, own in held._of_client.items()} == {
            client: count for client in (A, B, C) if (count := list(alive.values()).count(client))
        }
    for one in list(alive):
        held.leave(one)
        held.leave(one)
    assert not any((held._clients, held._idle, held._of_client, held._idle_of_client))


@pytest.mark.parametrize(
    ("given", "members", "strangers"),
    [
        ("192.0.2.1", ["192.0.2.1", "::ffff:192.0.2.1"], ["192.0.2.2", "::ffff:192.0.2.2", "::192.0.2.1"]),
        ("10.0.0.0/8", ["10.9.8.7", "::ffff:10.9.8.7"], ["11.0.0.1", "::ffff:11.0.0.1"]),
        ("::ffff:192.0.2.1", ["192.0.2.1", "::ffff:192.0.2.1"], ["192.0.2.2"]),
        ("::ffff:10.0.0.0/104", ["10.9.8.7", "::ffff:10.9.8.7"], ["11.0.0.1"]),
        ("2001:db8::/32", ["2001:db8::1"], ["192.0.2.1", "2001:db9::1"]),
        ("0.0.0.0/0", ["192.0.2.1", "::ffff:192.0.2.1"], ["2001:db8::1"]),
    ],
)
def test_an_ipv4_network_stands_for_both_forms_of_its_addresses(
    given: str, members: list[str], strangers: list[str]
) -> None:
    networks = list(networks_of([given]))
    for address in members:
        assert any(ipaddress.ip_address(address) in network for network in networks), address
    for address in strangers:
        assert not any(ipaddress.ip_address(address) in network for network in networks), address
