"""Paid and unpaid calls of two servers over raw sockets, timed from a request's first byte to its answer's last.

What is timed are the servers' own times with their side of the two facilitator calls in it; `facilitator_calls` times
these alone. Every request has a body of its own, so nobody answers from memory.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any, cast

from bench.jobs import TYPICAL
from bench.paid_servers import LOOPBACK, NETWORK, PATH, PAYEE, PAYER
from bench.timing import Timed, percentile
from ranking_evaluate.payments.facilitator import Facilitator
from ranking_evaluate.payments.protocol import Settled, Verified

CLIENTS = 50

PAID, UNPAID = "paid", "unpaid"


def bodies() -> Iterator[bytes]:
    """Yield typical bodies of one size, no two the same."""
    for number in count(secrets.randbits(32)):
        yield TYPICAL.body.replace(b"query-0000", b"q%09x" % number)


class Caller:
    """Makes paid and unpaid requests of one server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._required: dict[str, Any] = {}

    def learn(self) -> None:
        """Ask for the terms once, as any client does."""
        with socket.create_connection((LOOPBACK, self.port), 10) as connection:
            connection.sendall(self.unpaid())
            head, _ = _receive(connection)
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            if name.lower() == b"payment-required":
                self._required = json.loads(base64.b64decode(value))

    def unpaid(self, body: bytes = TYPICAL.body) -> bytes:
        """Return a request without a payment, under a new key."""
        return self._request(secrets.token_hex(16), body)

    def paid(self, body: bytes = TYPICAL.body) -> bytes:
        """Return a request with a new payment; nobody here looks at its signature."""
        key, now, required = secrets.token_hex(16), int(time.time()), self._required
        [accepted] = required["accepts"]
        extensions = json.loads(json.dumps(required.get("extensions") or {}))
        if "payment-identifier" in extensions:
            extensions["payment-identifier"]["info"]["id"] = key
        payload = {
            "x402Version": 2,
            "payload": {
                "signature": "0x" + secrets.token_hex(65),
                "authorization": {
                    "from": PAYER,
                    "to": PAYEE,
                    "value": accepted["amount"],
                    "validAfter": str(now - 600),
                    "validBefore": str(now + accepted["maxTimeoutSeconds"]),
                    "nonce": "0x" + secrets.token_hex(32),
                },
            },
            "accepted": accepted,
            "resource": required["resource"],
            "extensions": extensions,
        }
        return self._request(key, body, base64.b64encode(json.dumps(payload).encode()))

    def _request(self, key: str, body: bytes, signature: bytes | None = None) -> bytes:
        payment = b"" if signature is None else b"PAYMENT-SIGNATURE: " + signature + b"\r\n"
        return (
            (
                f"POST {PATH} HTTP/1.1\r\nHost: {LOOPBACK}:{self.port}\r\nContent-Type: application/json\r\n"
                f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n"
            ).encode()
            + payment
            + b"\r\n"
            + body
        )


def _receive(connection: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while True:
        more = connection.recv(65_536)
        if not more:
            raise ConnectionError("the server closed the connection")
        received += more
        head, end, body = received.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            return head, body


def _length(head: bytes) -> int:
    marker = head.lower().index(b"content-length:")
    return int(head[marker + 15 :].split(b"\r\n", 1)[0])


def latencies(ports: dict[str, int], calls: int, *, warm_up: int = 30) -> dict[str, list[float]]:
    """Return the seconds of paid calls over one connection each, the servers taking turns.

    Before each, its terms are asked for with the same body and not timed: a purchase is two requests.
    """
    callers = {name: Caller(port) for name, port in ports.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ports}
    with ExitStack() as open_:
        connections = {
            name: open_.enter_context(socket.create_connection((LOOPBACK, port), 10)) for name, port in ports.items()
        }
        for caller in callers.values():
            caller.learn()
        for number, body in zip(range(warm_up + calls), bodies(), strict=False):
            for name, caller in callers.items():
                connections[name].sendall(caller.unpaid(body))
                _receive(connections[name])
                request = caller.paid(body)
                started = time.perf_counter()
                connections[name].sendall(request)
                head, answer = _receive(connections[name])
                taken = time.perf_counter() - started
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"{name} did not sell: {head!r} {answer!r}")
                if number >= warm_up:
                    seconds[name].append(taken)
    return seconds


async def facilitator_calls(url: str, calls: int, *, warm_up: int = 30) -> list[float]:
    """Return the seconds of /verify and /settle together, by this service's client and nothing around it."""
    client = Facilitator(url, None, 10, 10)
    await client.open()
    body = json.dumps({"paymentPayload": {"filler": "x" * 3_000}}).encode()
    seconds = []
    for _ in range(warm_up + calls):
        started = time.perf_counter()
        verified = await client.verify(body, payer=PAYER)
        settled = await client.settle(body, network=NETWORK, payer=PAYER)
        seconds.append(time.perf_counter() - started)
        if not (isinstance(verified, Verified) and isinstance(settled, Settled)):
            raise TypeError(f"the facilitator does not settle: {verified} {settled}")
    await client.close()
    return seconds[warm_up:]


class _Client(asyncio.Protocol):
    """One connection that sends the next request as soon as the answer to the last one is there."""

    def __init__(
        self, requests: list[bytes], status: bytes, seconds: list[float], done: Callable[[BaseException | None], None]
    ) -> None:
        self._requests, self._status, self._seconds, self._done = requests, status, seconds, done
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        if not self._requests:
            self._transport.close()
            self._done(None)
            return
        self._received = b""
        self._started = time.perf_counter()
        self._transport.write(self._requests.pop())

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            self._seconds.append(time.perf_counter() - self._started)
            if self._status not in head[:16]:
                self._transport.close()
                self._done(RuntimeError(f"unexpected answer: {head!r} {body!r}"))
            else:
                self._next()


async def _storm(port: int, requests: list[bytes], status: bytes) -> tuple[float, list[float]]:
    loop = asyncio.get_running_loop()
    seconds: list[float] = []
    finished: list[asyncio.Future[None]] = []
    started = time.perf_counter()
    for _ in range(CLIENTS):
        future: asyncio.Future[None] = loop.create_future()
        finished.append(future)

        def done(error: BaseException | None, future: asyncio.Future[None] = future) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        await loop.create_connection(partial(_Client, requests, status, seconds, done), LOOPBACK, port)
    await asyncio.gather(*finished)
    return time.perf_counter() - started, seconds


def throughput(ports: dict[str, int], calls: int, kind: str, *, rounds: int = 3) -> dict[str, tuple[Timed, float]]:
    """Return, for each server, the seconds per call of 50 clients at once over rounds in turn, and the p99 latency."""
    callers = {name: Caller(port) for name, port in ports.items()}
    taken: dict[str, list[float]] = {name: [] for name in ports}
    each: dict[str, list[float]] = {name: [] for name in ports}
    for caller in callers.values():
        caller.learn()
    fresh = bodies()
    for _ in range(rounds):
        for name, caller in callers.items():
            ask = caller.paid if kind == PAID else caller.unpaid
            requests = [ask(next(fresh)) for _ in range(calls)]
            whole, seconds = asyncio.run(_storm(caller.port, requests, b" 200 " if kind == PAID else b" 402 "))
            taken[name].append(whole / calls)
            each[name] += seconds
    return {name: (Timed(tuple(taken[name])), percentile(each[name], 0.99)) for name in ports}
