"""Crowds of connections hold nobody up who comes from elsewhere: idle ones, and those that ask whether all is well."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.hostile import flood
from tests.hostile.service import HOST, JSON, Neighbourhood, Service, buyer, request
from tests.judges.x402_buyer import new_key
from tests.postgres import PostgresServer

CROWD: Final = "127.0.0.2"
"""The address of a crowd; everybody else comes from 127.0.0.1."""

OF_ONE: Final = 64
SOON: Final = 2.0
"""Seconds that nobody waits while a crowd is idle, on a busy machine; without the caps it was for ever."""

SOON_AMONG_MANY: Final = 4.0
"""The same while 64 others ask as often as they can; it takes a second, and once took 20."""


class Crowd:
    """A crowd in a process of its own; after `leave` it tells what became of it."""

    def __init__(self, service: Service, number: int, path: str = "", source: str = CROWD) -> None:
        command = [sys.executable, flood.__file__, str(service.port), source, str(number), *([path] if path else [])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_until_open(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "open\n"

    def leave(self) -> tuple[int, int]:
        """Return how many connections were still open, and how many answers came."""
        out, _ = self._process.communicate(timeout=60)
        still_open, answers = out.split()[-2:]
        return int(still_open), int(answers)


@contextlib.contextmanager
def crowd(service: Service, number: int, path: str = "", source: str = CROWD) -> Iterator[Crowd]:
    coming = Crowd(service, number, path, source)
    try:
        yield coming
    finally:
        coming._process.kill()
        coming._process.communicate()


def ask_anew(service: Service) -> float:
    """Make an unpaid request on a connection of its own; return how long it took."""
    started = time.monotonic()
    answer = service.send(request(HOST, JSON, f"Idempotency-Key: {new_key()}"))
    assert answer.status == 402, "cut off"
    return time.monotonic() - started


def open_sockets(service: Service) -> int:
    """Return how many sockets the service has open."""
    found = 0
    for entry in Path(f"/proc/{service.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(entry.readlink()).startswith("socket:")
    return found


@pytest.mark.parametrize("hard", [1_024, 4_096], ids=lambda limit: f"{limit} files")
def test_2800_idle_connections_of_one_address_cut_nobody_off(place: Neighbourhood, hard: int) -> None:
    with place.running(f"idle-crowd-{hard}", open_files=f"1024/{hard}") as service, buyer(service) as shopper:
        waits: list[float] = []
        with crowd(service, 2_800) as coming:
            began = time.monotonic()
            while len(waits) < 60 or time.monotonic() - began < 2:
                waits.append(ask_anew(service))
            coming.wait_until_open()
            for _ in range(6):
                key = new_key()
                assert shopper.post(key, shopper.sign(key)).status_code == 200
            assert max(waits) < SOON
            assert open_sockets(service) < OF_ONE + 50
            assert coming.leave()[0] <= OF_ONE
        assert service.metrics()['ranking_evaluate_cut_off_total{reason="crowded"}'] >= 2_800 - OF_ONE


def test_crowds_of_many_addresses_make_room_for_each_other(place: Neighbourhood) -> None:
    """Sixty connections each from thirty addresses are more than all that there may be: 768 with 1,024 files."""
    with place.running("many-crowds", open_files="1024/1024") as service, contextlib.ExitStack() as stack:
        crowds = [stack.enter_context(crowd(service, 60, source=f"127.0.1.{number}")) for number in range(1, 31)]
        waits = [ask_anew(service) for _ in range(40)]
        for one in crowds:
            one.wait_until_open()
        waits += [ask_anew(service) for _ in range(20)]
        assert max(waits) < SOON
        assert open_sockets(service) < 1_024 - 200
        assert sum(one.leave()[0] for one in crowds) <= 768


def test_a_trusted_proxy_has_more_connections_than_one_caller(place: Neighbourhood) -> None:
    with place.running("behind-one", TRUSTED_PROXIES=CROWD) as service, crowd(service, 200) as coming:
        coming.wait_until_open()
        ask_anew(service)
        assert coming.leave()[0] == 200


def test_1500_connections_that_ask_for_readiness_keep_neither_the_store_nor_a_buyer_waiting(
    place: Neighbourhood, postgres_server: PostgresServer
) -> None:
    url = postgres_server.new_database()
    with place.running("asked", DATABASE_URL=url, TRUSTED_PROXIES=CROWD) as service:
        reads = 'ranking_evaluate_store_seconds_count{call="read"}'
        with crowd(service, 200, "/readyz") as coming:
            coming.wait_until_open()
            before, began = service.metrics()[reads], time.monotonic()
            while time.monotonic() - began < 3:
                httpx.get(f"{service.origin}/", trust_env=False, timeout=20).raise_for_status()
                time.sleep(0.05)
            seconds = time.monotonic() - began
            asked = service.metrics()[reads] - before
            _, answers = coming.leave()
        assert answers > 500
        # One more than there are seconds, and two when the service looks at what is uncertain.
        assert asked <= seconds + 4
    with place.running("asked-alone", DATABASE_URL=url) as service, buyer(service) as shopper:
        with crowd(service, 1_500, "/readyz") as coming:
            coming.wait_until_open()
            waits = [ask_anew(service)]
            for _ in range(6):
                key = new_key()
                payload = shopper.sign(key)
                started = time.monotonic()
                assert shopper.post(key, payload).status_code == 200
                waits.append(time.monotonic() - started)
            still_open, _ = coming.leave()
        assert still_open <= OF_ONE
        assert max(waits) < SOON_AMONG_MANY
    postgres_server.give_back(url)


@pytest.mark.parametrize("proxy", ["127.0.0.1", "127.0.0.0/8", "::ffff:127.0.0.1"])
def test_an_ipv4_proxy_is_believed_on_a_socket_for_both_families(place: Neighbourhood, proxy: str) -> None:
    settings = {"TRUSTED_PROXIES": proxy, "REQUEST_RATE": "2/minute", "PUBLIC_ORIGIN": "https://rank.example"}
    with place.running("both-families", host="::", **settings) as service:
        lines = [f"X-Forwarded-For: 192.0.2.{number}" for number in range(1, 9)]
        assert [service.send(request(HOST, JSON, line)).status for line in lines] == [400] * 8
        assert [service.send(request(HOST, JSON, lines[0])).status for _ in range(2)] == [400, 429]


def test_callers_on_a_socket_for_both_families_are_told_apart(place: Neighbourhood) -> None:
    settings = {"REQUEST_RATE": "1/minute", "PUBLIC_ORIGIN": "https://rank.example"}
    with place.running("told-apart", host="::", **settings) as service:
        statuses = []
        for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1"):
            transport = httpx.HTTPTransport(local_address=source)
            with httpx.Client(transport=transport, base_url=service.origin, trust_env=False) as client:
                statuses.append(client.get("/preflight").status_code)
        assert statuses == [200, 200, 200, 429]
