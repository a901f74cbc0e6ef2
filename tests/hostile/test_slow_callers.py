"""Callers that are slow, silent, endless or deaf hold nobody up, and are gone within 15 seconds."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Final

import httpx
import pytest

from tests.hostile.service import BODY, GOOD, HOST, JSON, KEY, PATH, Service, read_answer, request

GONE_SECONDS: Final = 15.0
EACH: Final = 100


@dataclass
class Slow:
    """One slow connection: what it sends at once, and what it goes on with, a byte every half second."""

    what: str
    at_once: bytes
    drip: bytes = b""
    received: bytes = b""
    opened: float = 0.0
    closed: float | None = None
    sent: int = 0
    connection: socket.socket = field(default_factory=socket.socket, repr=False)

    def open(self, port: int, source: str) -> None:
        self.connection.bind((source, 0))
        self.connection.connect(("127.0.0.1", port))
        self.connection.sendall(self.at_once)
        self.connection.setblocking(False)
        self.opened = time.monotonic()

    def look(self) -> None:
        try:
            received = self.connection.recv(65_536)
        except BlockingIOError:
            return
        except ConnectionError:
            received = b""
        self.received += received
        if not received:
            self.closed = time.monotonic() - self.opened
            self.connection.close()

    def go_on(self) -> None:
        with contextlib.suppress(ConnectionError, BlockingIOError):
            self.sent += self.connection.send(self.drip[self.sent % len(self.drip) :][:1])


@dataclass
class Seen:
    """What became of the slow connections, and how long normal callers waited meanwhile."""

    slow: list[Slow]
    waits: list[float]


@pytest.fixture(scope="module")
def seen(service: Service) -> Seen:
    """Open all the slow connections at once and watch them for as long as any of them is open."""
    head = b"POST /v1/x402/ranking-evaluate HTTP/1.1\r\n"
    slow = [Slow("head", head, b"X-Filler-Of-Heads: abcdefgh\r\n") for _ in range(EACH)]
    body = request(*GOOD, "Content-Length: 1000", body=b"{")
    slow += [Slow("body", body, b" ") for _ in range(EACH)]
    slow.append(Slow("half a request line", b"POST /v1/x402/rank"))
    slow.append(Slow("half a short body", request(*GOOD, "Content-Length: 2", body=b"{")))
    slow.append(Slow("mute", b""))
    slow.append(Slow("idle", request(HOST, method="GET", path="/healthz", body=b"")))
    slow.append(Slow("blank", b"\r\n", b"\r\n"))
    slow.append(Slow("unread body", request(HOST, "Content-Length: 100000", path="/nowhere", body=b"{"), b" "))
    for number, one in enumerate(slow):
        # One address has 64 connections at most, whatever they do.
        one.open(service.port, f"127.0.0.{2 + number // 50}")
    waits: list[float] = []
    dripped = time.monotonic()
    until = dripped + GONE_SECONDS + 2
    with httpx.Client(base_url=service.origin, trust_env=False) as client, selectors.DefaultSelector() as selector:
        for one in slow:
            selector.register(one.connection, selectors.EVENT_READ, one)
        while selector.get_map() and time.monotonic() < until:
            for key, _ in selector.select(0.1):
                key.data.look()
                if key.data.closed is not None:
                    selector.unregister(key.fileobj)
            if time.monotonic() - dripped > 0.5:
                dripped = time.monotonic()
                for one in slow:
                    if one.closed is None and one.drip:
                        one.go_on()
                started = time.monotonic()
                answer = client.post(
                    PATH, content=BODY, headers={"Idempotency-Key": KEY, "Content-Type": "application/json"}
                )
                waits.append(time.monotonic() - started)
                assert answer.status_code == 402
    return Seen(slow, waits)


def test_200_slow_connections_do_not_stop_a_normal_caller(seen: Seen) -> None:
    assert len(seen.waits) > 10
    assert max(seen.waits) < 1


@pytest.mark.parametrize(
    "what", ["head", "body", "half a request line", "half a short body", "mute", "idle", "blank", "unread body"]
)
def test_each_slow_connection_is_closed_within_15_seconds(seen: Seen, what: str) -> None:
    ours = [one for one in seen.slow if one.what == what]
    for one in ours:
        assert one.closed is not None, f"{what} is open still"
        assert 5 < one.closed < GONE_SECONDS


def test_a_slow_body_is_told_why(seen: Seen) -> None:
    for one in seen.slow:
        if one.what in {"body", "half a short body"}:
            assert one.received.startswith(b"HTTP/1.1 408 ")
            assert b'"code":"REQUEST_TIMEOUT"' in one.received


def test_the_service_lives_on(seen: Seen, service: Service) -> None:
    assert service.send(request(HOST, method="GET", path="/healthz", body=b"")).status == 200
    assert service.metrics()['ranking_evaluate_cut_off_total{reason="head too slow"}'] >= EACH


def flood(service: Service, head: bytes, piece: bytes, total: int) -> tuple[int, bytes]:
    """Send until the server hangs up; return how much it was sent and what it said."""
    sent, received = 0, b""
    with service.connect() as connection:
        connection.settimeout(5)
        with contextlib.suppress(OSError):
            connection.sendall(head)
            while sent < total:
                sent += connection.send(piece)
        with contextlib.suppress(OSError):
            while more := connection.recv(65_536):
                received += more
    return sent, received


TEN_MB: Final = 10_000_000
CHUNK: Final = b"10000\r\n" + b" " * 65_536 + b"\r\n"


@pytest.mark.parametrize(
    ("what", "line", "piece"),
    [
        ("declared", f"Content-Length: {TEN_MB}", b" " * 65_536),
        ("in chunks", "Transfer-Encoding: chunked", CHUNK),
    ],
)
def test_a_body_of_10_mb_is_refused_unread(service: Service, what: str, line: str, piece: bytes) -> None:
    before = service.memory()
    sent, received = flood(service, request(*GOOD, line, body=b""), piece, 10 * TEN_MB)
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"INPUT_LIMIT"' in received
    assert b"\r\nconnection: close\r\n" in received
    # What the kernel takes for both sides is sent all the same.
    assert sent < TEN_MB
    assert service.memory() - before < 8 * 2**20


@pytest.mark.parametrize(
    ("what", "head", "piece"),
    [
        ("a trailer", request(*GOOD, "Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\nX-T: "), b"x" * 65_536),
        ("trailers", request(*GOOD, "Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n"), b"X-T: x\r\n" * 8_192),
        ("an extension", request(*GOOD, "Transfer-Encoding: chunked", body=b"2;e="), b"x" * 65_536),
        ("a target", b"GET /", b"a" * 65_536),
        ("header lines", b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10_000),
        ("a body where none is read", request(HOST, "Content-Length: 9999999", path="/no", body=b""), b"x" * 65_536),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\xfc" * 65_536),
    ],
)
def test_what_never_ends_is_cut_off(service: Service, what: str, head: bytes, piece: bytes) -> None:
    before, started = service.memory(), time.monotonic()
    flood(service, head, piece, 10 * TEN_MB)
    assert time.monotonic() - started < 8
    assert service.memory() - before < 8 * 2**20


def test_a_refusal_reaches_a_caller_that_is_still_sending(service: Service) -> None:
    """The connection is half closed first: a reset could overtake the answer."""
    with service.connect() as connection:
        connection.sendall(request(*GOOD, "Content-Length: 200000", body=b" " * 150_000))
        assert read_answer(connection).code == "INPUT_LIMIT"


def test_what_is_sent_is_answered_in_order_and_garbage_last(service: Service) -> None:
    """A request that came before what is not HTTP gets its own answer, not a 400 that could be taken for it."""
    first, second = request(*GOOD), request(HOST, JSON)
    with service.connect() as connection:
        connection.sendall(first + second + b"\x00\x01garbage\r\n\r\n")
        assert read_answer(connection).status == 402
        assert read_answer(connection).code == "IDEMPOTENCY_KEY_REQUIRED"
        assert connection.recv(100) == b""


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_no_other_protocol_is_spoken(service: Service, protocol: str) -> None:
    with service.connect() as connection:
        lines = (HOST, f"Upgrade: {protocol}", "Connection: Upgrade")
        connection.sendall(request(*lines, method="GET", path="/healthz", body=b""))
        assert read_answer(connection).status == 200
        connection.sendall(b"\x81\x05hello")
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100) == b""
