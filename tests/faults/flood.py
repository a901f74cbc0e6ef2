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
from pathlib import Path
from typing import Any, Final, Self

import httpx

from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.sandbox.processes import LOOPBACK
from tests import expensive
from tests.faults.facilitator import FaultyFacilitator
from tests.hostile.service import BODY, Service, neighbourhood, resident
from tests.judges.x402_buyer import Buyer, Payload, new_key, signed

MINUTE_OF_ONE_ADDRESS: Final = 120
"""The requests that the default REQUEST_RATE lets one address send at once."""

LIMITS: Final = {"REQUEST_RATE": "120/minute", "PAYMENT_RATE": "30/minute", "SETTLE_TIMEOUT": "30"}
"""The defaults, which the hostile tests otherwise switch off, and a settlement's deadline that a flood once passed."""

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


async def _send(ports: list[int], addresses: list[str]) -> Counter[str]:
    """Send the minute of every address at once, to the services in turn; return how often each answer came."""
    seen: Counter[str] = Counter()
    made = []
    for number, (operation, body) in zip(range(MINUTE_OF_ONE_ADDRESS), flooding_bodies(), strict=False):
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

    @property
    def p99(self) -> float:
        return percentile(self.healthz, 0.99)

    @property
    def most(self) -> float:
        return self.healthz[-1]

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

    def __init__(self, services: list[Service], addresses: int, first: int = 1) -> None:
        self.seen: Counter[str] = Counter()
        ports = ",".join(str(service.port) for service in services)
        arguments = ["--send", ports, "--addresses", str(addresses), "--first", str(first)]
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
        # One connection for each request, so that none is left open.
        close = {"Connection": "close"}
        client = httpx.Client(base_url=service.origin, transport=transport, headers=close, trust_env=False, timeout=60)
        self.buyer = Buyer(client, "0x" + f"{number + 1:064x}", body, f"/v1/x402/{operation}")

    def buy(self) -> Bought:
        """Ask for the terms and pay, as any client does."""
        bought = self.buy_or_refusal()
        assert bought.payload, bought.answer.text
        return bought

    def buy_or_refusal(self) -> Bought:
        """Return the purchase; without a payload where no terms came."""
        key = new_key()
        asked = self.buyer.post(key)
        if asked.status_code != 402:
            return Bought(asked, 0.0, key, {})
        return self.pay(key, signed(asked, self.buyer.wallet_key))

    def buy_patiently(self) -> Bought:
        """Buy, and come again as long as the answer says so; what is refused then has left nothing behind."""
        while True:
            bought = self.buy_or_refusal()
            if bought.answer.status_code == 200:
                return bought
            assert (bought.answer.status_code, bought.answer.json()["code"]) == (503, "OVERLOADED")
            assert self.buyer.attempt(bought.key) is None
            time.sleep(int(bought.answer.headers["retry-after"]))

    def pay(self, key: str, payload: Payload) -> Bought:
        started = time.perf_counter()
        answer = self.buyer.post(key, payload)
        return Bought(answer, time.perf_counter() - started, key, payload)


def six_buy(services: list[Service]) -> list[Bought]:
    """Return what became of six purchases at once, at the services in turn."""
    shoppers = [Shopper(services[number % len(services)], number) for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        return list(pool.map(Shopper.buy, shoppers))


def workers_of(service: Service) -> list[int]:
    """Return the process ids of a service's workers."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == service.pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addresses", type=int, default=3, help="how many addresses flood")
    parser.add_argument("--minutes", type=int, default=2, help="how often each sends its minute")
    parser.add_argument("--requests", type=int, help="send so many instead, without rates, and watch the memory")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.probe is not None:
        asyncio.run(_probe(given.probe))
    elif given.send is not None:
        _flood(given)
    elif given.requests is not None:
        watch_memory(given.requests)
    else:
        torture(given.addresses, given.minutes)


def _flood(given: Any) -> None:
    ports = [int(port) for port in given.send.split(",")]
    addresses = [f"127.0.8.{number}" for number in range(given.first, given.first + given.addresses)]
    list(itertools.islice(flooding_bodies(), 100))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(_send(ports, addresses))))


def torture(addresses: int, minutes: int) -> None:
    """Flood a service for some minutes while six buyers pay again and again; print what came of it."""
    with neighbourhood() as place, place.running("flood", **LIMITS, LOG_LEVEL="error") as service:
        for minute in range(minutes):
            began = time.monotonic()
            with Probe(service) as probe, Flood([service], addresses) as flood:
                bought = six_buy([service])
                flood.wait()
            statuses = Counter(purchase.answer.status_code for purchase in bought)
            slowest = max(purchase.seconds for purchase in bought)
            print(f"minute {minute + 1}: {probe.lateness}")
            print(f"  six purchases {dict(statuses)}, the slowest paid in {slowest:.3f} s; flood {dict(flood.seen)}")
            print(f"  {told_memory(service)}")
            if minute + 1 < minutes:
                time.sleep(max(0.0, began + 61 - time.monotonic()))
        assert service.metrics()["ranking_evaluate_uncertain_attempts"] == 0
        assert money_moved_once(place.facilitator)


def money_moved_once(facilitator: FaultyFacilitator) -> bool:
    """Return whether each payment was sent to be settled once, and moved once."""
    return set(facilitator.attempts.values()) == set(facilitator.moves.values()) == {1}


def watch_memory(count: int) -> None:
    """Send so many requests that go to workers; print the memory of the service and its workers on the way."""
    with neighbourhood() as place, place.running("soak", EVALUATION_RATE="", LOG_LEVEL="error") as service:
        for part in range(11):
            began = time.monotonic()
            # The first part is the warming up.
            soak(service, max(1, count // (100 if part == 0 else 10)))
            print(f"part {part}, {time.monotonic() - began:.0f} s: {told_memory(service)}", flush=True)


def soak(service: Service, count: int) -> None:
    """Send so many inputs that are evaluated by workers, of every operation and of many sizes; four at a time."""
    bodies = [
        (operation.id, body.body)
        for operation in OPERATIONS
        for size in range(operation.inline_bytes + 1_000, operation.inline_bytes + 7_000, 1_000)
        for body in (expensive.evaluated(operation.id, size)[0], *expensive.refused(size))
    ]
    mixed = itertools.islice(itertools.cycle(bodies), count)

    def send_some(number: int, some: list[tuple[str, bytes]]) -> None:
        transport = httpx.HTTPTransport(local_address=f"127.0.7.{number + 1}")
        with httpx.Client(base_url=service.origin, transport=transport, trust_env=False, timeout=60) as client:
            for operation, body in some:
                headers = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
                answer = client.post(f"/v1/x402/{operation}", content=body, headers=headers)
                assert answer.status_code in {400, 402, 413, 422}, answer.text

    lists: list[list[tuple[str, bytes]]] = [[] for _ in range(4)]
    for number, one in enumerate(mixed):
        lists[number % 4].append(one)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send_some, range(4), lists))


def told_memory(service: Service) -> str:
    workers = " ".join(f"{resident(pid) / 2**20:.1f}" for pid in workers_of(service))
    return f"resident MiB: service {service.memory() / 2**20:.1f}, workers {workers}"


if __name__ == "__main__":
    main()
