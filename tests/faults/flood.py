"""Many unpaid requests at once, the most expensive that there are, while others pay. For long runs start the module:

    python -m tests.faults.flood --addresses 12 --minutes 5

Callers and probes are processes of their own, so that what is measured is the service and not Python's threads. Each
caller has an address of its own on the loopback interface, by which the service counts it. The probe asks a server that
does nothing too: how late that one answers is the machine's own lateness, which nobody can hold against the service.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.sandbox.processes import LOOPBACK
from tests import expensive
from tests.faults.facilitator import FaultyFacilitator
from tests.hostile.service import BODY, Neighbourhood, Service, neighbourhood
from tests.judges.x402_buyer import Buyer, Payload, new_key, signed

MINUTE_OF_ONE_ADDRESS: Final = 120
"""The requests that the default REQUEST_RATE lets one address send at once."""

CONNECTIONS: Final = 40
"""Over which an address sends them."""

PROBE_SECONDS: Final = 0.005


def flooding_bodies() -> Iterator[tuple[str, bytes]]:
    """Yield, for ever, operations with their most expensive bodies; a third are refused with OUTPUT_LIMIT."""
    dear = [
        (operation.id, body.body)
        for operation in OPERATIONS
        for body in (expensive.evaluated(operation.id)[-1], *expensive.refused(100_000))
    ]
    for operation, body in itertools.cycle(dear):
        yield "lexical-retrieval", expensive.OUTPUT_LIMIT
        yield "lexical-retrieval", expensive.LARGE_SALE
        yield operation, body


async def _one_connection(port: int, address: str, requests: list[bytes], seen: Counter[str]) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, local_addr=(address, 0))
    for request in requests:
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            problem = await reader.readexactly(int(length.split(b":")[1]))
        except (ConnectionError, asyncio.IncompleteReadError):
            seen["cut off"] += 1
            return
        status = int(head.split(b" ", 2)[1])
        seen[f"{status} {json.loads(problem)['code']}" if status >= 400 else str(status)] += 1
    writer.close()


async def _send(ports: list[int], addresses: list[str], count: int) -> Counter[str]:
    """Send the requests of every address at once, to the services in turn; return how often each answer came."""
    seen: Counter[str] = Counter()
    made = []
    for number, (operation, body) in zip(range(count), flooding_bodies(), strict=False):
        path = f"/preflight?validate={operation}" if number % 10 == 9 else f"/v1/x402/{operation}"
        lines = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        made.append(f"{lines}Idempotency-Key: {new_key()}\r\n\r\n".encode() + body)
    async with asyncio.TaskGroup() as group:
        for address in addresses:
            for number in range(CONNECTIONS):
                port = ports[number % len(ports)]
                group.create_task(_one_connection(port, address, made[number::CONNECTIONS], seen))
    return seen


async def _probe(port: int) -> None:
    """Ask /healthz and a server that does nothing until standard input ends; print the seconds that each took."""
    nothing = await asyncio.start_server(_answer_nothing, LOOPBACK, 0)
    null_port = nothing.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    seconds = await asyncio.gather(_time_requests(port, ended), _time_requests(null_port, ended))
    print(json.dumps(dict(zip(("healthz", "nothing"), seconds, strict=True))))


async def _answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def _time_requests(port: int, ended: asyncio.Future[str]) -> list[float]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    seconds: list[float] = []
    while not ended.done():
        started = time.perf_counter()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        (length,) = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        seconds.append(time.perf_counter() - started)
        await asyncio.sleep(PROBE_SECONDS)
    writer.close()
    return seconds


@dataclass(frozen=True)
class Lateness:
    """How late /healthz answered, and how late a server that does nothing did at the same time: sorted seconds."""

    healthz: list[float]
    nothing: list[float]

    def p99(self) -> float:
        return percentile(self.healthz, 0.99)

    def machine_p99(self) -> float:
        return percentile(self.nothing, 0.99)

    def __str__(self) -> str:
        return ", ".join(
            f"{name} p50 {percentile(times, 0.5) * 1e3:.1f} p99 {percentile(times, 0.99) * 1e3:.1f} "
            f"max {times[-1] * 1e3:.1f} ms of {len(times)}"
            for name, times in (("healthz", self.healthz), ("nothing", self.nothing))
        )


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Probe:
    """A context manager: a process that probes one service; `lateness` is there at the end of the block."""

    def __init__(self, service: Service) -> None:
        command = [sys.executable, "-m", "tests.faults.flood", "--probe", str(service.port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        out, _ = self._process.communicate(timeout=60)
        self.lateness = Lateness(*(sorted(json.loads(out)[name]) for name in ("healthz", "nothing")))


class Flood:
    """A context manager: a process that floods services from so many addresses; `seen` is there after `wait`."""

    def __init__(self, services: list[Service], addresses: int, count: int = MINUTE_OF_ONE_ADDRESS) -> None:
        self.seen: Counter[str] = Counter()
        ports = ",".join(str(service.port) for service in services)
        arguments = ["--send", ports, "--addresses", str(addresses), "--count", str(count)]
        command = [sys.executable, "-m", "tests.faults.flood", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __enter__(self) -> Self:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        return self

    def wait(self) -> None:
        """Wait until every request was answered."""
        assert self._process.stdout is not None
        self.seen = Counter(json.loads(self._process.stdout.read()))

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True)
class Bought:
    """One purchase: the last answer, and the seconds that its paying request took."""

    answer: httpx.Response
    seconds: float
    key: str
    payload: Payload


class Shopper:
    """A buyer with an address of its own, who pays for one kind of body."""

    def __init__(self, service: Service, number: int, body: bytes = BODY, operation: str = "ranking-evaluate") -> None:
        transport = httpx.HTTPTransport(local_address=f"127.0.9.{number + 1}")
        client = httpx.Client(base_url=service.origin, transport=transport, trust_env=False, timeout=60)
        self.buyer = Buyer(client, "0x" + f"{number + 1:064x}", body, f"/v1/x402/{operation}")

    def buy(self) -> Bought:
        """Ask for the terms and pay, as any client does."""
        key = new_key()
        asked = self.buyer.post(key)
        assert asked.status_code == 402, asked.text
        payload = signed(asked, self.buyer.wallet_key)
        return self.pay(key, payload)

    def pay(self, key: str, payload: Payload) -> Bought:
        started = time.perf_counter()
        answer = self.buyer.post(key, payload)
        return Bought(answer, time.perf_counter() - started, key, payload)


def six_buy(services: list[Service]) -> list[Bought]:
    """Return what became of six purchases at once, at the services in turn."""
    shoppers = [Shopper(services[number % len(services)], number) for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        return list(pool.map(Shopper.buy, shoppers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addresses", type=int, default=3, help="how many addresses flood")
    parser.add_argument("--minutes", type=int, default=2, help="how often each sends its minute")
    parser.add_argument("--count", type=int, default=MINUTE_OF_ONE_ADDRESS, help="what an address sends at once")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.probe is not None:
        asyncio.run(_probe(given.probe))
    elif given.send is not None:
        _flood(given)
    else:
        torture(given.addresses, given.minutes)


def _flood(given: Any) -> None:
    ports = [int(port) for port in given.send.split(",")]
    addresses = [f"127.0.8.{number + 1}" for number in range(given.addresses)]
    list(itertools.islice(flooding_bodies(), 100))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(_send(ports, addresses, given.count))))


def torture(addresses: int, minutes: int) -> None:
    """Flood a service for some minutes while six buyers pay again and again; print what came of it."""
    with neighbourhood() as place, place.running("flood", SETTLE_TIMEOUT="30", LOG_LEVEL="error") as service:
        for minute in range(minutes):
            began = time.monotonic()
            with Probe(service) as probe, Flood([service], addresses) as flood:
                bought = six_buy([service])
                flood.wait()
            statuses = Counter(purchase.answer.status_code for purchase in bought)
            slowest = max(purchase.seconds for purchase in bought)
            print(f"minute {minute + 1}: {probe.lateness}")
            print(f"  six purchases {dict(statuses)}, the slowest paid in {slowest:.3f} s; flood {dict(flood.seen)}")
            print(f"  {service.memory() / 2**20:.1f} MiB resident")
            if minute + 1 < minutes:
                time.sleep(max(0.0, began + 61 - time.monotonic()))
        assert place_is_certain(place, service)


def place_is_certain(place: Neighbourhood, service: Service) -> bool:
    """Return whether every payment that moved was sold, and none is uncertain."""
    return service.metrics()["ranking_evaluate_uncertain_attempts"] == 0 and money_moved_once(place.facilitator)


def money_moved_once(facilitator: FaultyFacilitator) -> bool:
    return set(facilitator.attempts.values()) == set(facilitator.moves.values()) == {1}


if __name__ == "__main__":
    main()
