"""Connections on a real socket, with the limits that a test is about made small."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final

import pytest
import uvicorn

from ranking_evaluate.sandbox.processes import LOOPBACK
from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.refusals import Refusal, Scope
from ranking_evaluate.server.start import configuration

GET: Final = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
SLOW: Final = GET.replace(b"/ ", b"/slow ", 1)
POST: Final = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
CHUNKED: Final = POST.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked")
LARGE: Final = 16 * 2**20

SLOW_SECONDS: Final = 1.5
"""Longer than any deadline here, with what a deadline adds where the loop comes late."""


async def app(scope: Scope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """Answer with two bytes; with many at /large, after the body at /read, and after a while at /slow."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    more = scope["path"] == "/read"
    while more:
        message: MutableMapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(SLOW_SECONDS)
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class BareRefusals:
    """Refusals that say which one they are, and of which request."""

    def head_too_long(self, limits: Limits, scope: Scope | None) -> Refusal:
        return Refusal(400, (), b"head too long")

    def body_too_slow(self, limits: Limits, scope: Scope | None) -> Refusal:
        return Refusal(408, ((b"x-path", scope["path"].encode() if scope else b"none"),), b"body too slow")


Connect = Callable[..., socket.socket]
Serve = Callable[..., Connect]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(limits: Limits, *trusted_proxies: str) -> Connect:
            listener = stack.enter_context(socket.socket())
            listener.bind((LOOPBACK, 0))
            running = uvicorn.Server(
                configuration(
                    app,
                    limits=limits,
                    refusals=BareRefusals(),
                    client_of=str,
                    trusted_proxies=trusted_proxies,
                    graceful_seconds=2,
                )
            )
            thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(setattr, running, "should_exit", True)
            while not running.started:
                time.sleep(0.005)
            address = listener.getsockname()

            def connect(source: str = LOOPBACK) -> socket.socket:
                return stack.enter_context(socket.create_connection(address, 5, (source, 0)))

            return connect

        yield start


def read_all(connection: socket.socket, within: float) -> bytes:
    """Return what comes until the other side closes; raises TimeoutError when nothing does for that long."""
    connection.settimeout(within)
    received = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(2**20):
            received += more
    return received


def test_idle_and_half_sent_heads_end_with_their_deadline(serve: Serve) -> None:
    connect = serve(Limits(head_seconds=0.3))
    mute, half, idle = connect(), connect(), connect()
    half.sendall(GET[:20])
    idle.sendall(GET)
    assert read_all(mute, 2) == b""
    assert read_all(half, 2) == b""
    assert b"200 OK" in read_all(idle, 2)


def test_a_body_must_arrive_in_time(serve: Serve) -> None:
    connection = serve(Limits(body_seconds=0.3, linger_seconds=0.5))()
    connection.sendall(POST + b"1234")
    time.sleep(0.2)
    connection.sendall(b"5")
    answer = read_all(connection, 5)
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"\r\nx-path: /read\r\nconnection: close\r\ncontent-length: 13\r\n\r\nbody too slow" in answer


def test_a_body_that_comes_in_pieces_in_time_is_read(serve: Serve) -> None:
    connection = serve(Limits(body_seconds=0.5))()
    for _ in range(2):
        for piece in (POST, b"12345", b"67890"):
            connection.sendall(piece)
            time.sleep(0.15)
        assert b"200 OK" in connection.recv(1000)
    time.sleep(0.6)
    connection.sendall(GET)
    assert b"200 OK" in connection.recv(1000)


@pytest.mark.parametrize("rest", [b"", b"ZZ\r\n"], ids=["late", "broken"])
def test_a_request_whose_body_nobody_waits_for_is_answered_once(serve: Serve, rest: bytes) -> None:
    connection = serve(Limits(body_seconds=0.3, linger_seconds=0.5))()
    connection.sendall(CHUNKED.replace(b"/read", b"/"))
    received = connection.recv(4096)
    connection.sendall(rest)
    received += read_all(connection, 5)
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"200 OK" in received


@pytest.mark.parametrize("behind", [CHUNKED + b"ZZ\r\n", POST + b"1234"], ids=["broken", "late"])
def test_a_request_that_ends_behind_another_one_holds_no_place(serve: Serve, behind: bytes) -> None:
    connection = serve(Limits(head_seconds=0.5, body_seconds=0.2, linger_seconds=0.5))()
    connection.sendall(SLOW + behind)
    received = read_all(connection, 5)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b"HTTP/1.1 ") == 1


def test_a_target_that_cannot_be_split_does_not_take_the_answer_of_the_request_before_it(serve: Serve) -> None:
    connection = serve(Limits(linger_seconds=0.5))()
    connection.sendall(SLOW + GET.replace(b"/ ", b"http:///a ", 1))
    received = read_all(connection, 5)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b"HTTP/1.1 ") == 1


def test_a_message_without_end_takes_nothing_from_the_answer_before_it(serve: Serve) -> None:
    connection = serve(Limits(message_bytes=1000, linger_seconds=0.5))()
    connection.sendall(SLOW)
    time.sleep(0.1)
    connection.sendall(CHUNKED + b"2;extension=")
    for _ in range(10):
        connection.sendall(b"x" * 1000)
        time.sleep(0.005)
    received = read_all(connection, 5)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("piece", [b"a: b\r\n", b"\r\n"], ids=["header lines", "blank lines"])
def test_a_head_without_end_is_refused(serve: Serve, piece: bytes) -> None:
    connect = serve(Limits(head_bytes=1000, linger_seconds=0.5))
    fresh, used = connect(), connect()
    used.sendall(GET)
    assert b"200 OK" in used.recv(1000)
    for connection in (fresh, used):
        if piece != b"\r\n":
            connection.sendall(GET[:-2])
        for _ in range(4):
            time.sleep(0.02)
            connection.sendall(piece * 150)
        assert read_all(connection, 5).endswith(b"\r\n\r\nhead too long")


def test_a_connection_is_kept_between_requests(serve: Serve) -> None:
    connection = serve(Limits(head_seconds=0.5))()
    for _ in range(4):
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1000)
        time.sleep(0.25)


def test_over_the_cap_the_longest_idle_connection_makes_room(serve: Serve) -> None:
    connect = serve(Limits(max_connections=3))
    first = connect()
    time.sleep(0.05)
    others = [connect() for _ in range(2)]
    time.sleep(0.05)
    late = connect()
    assert read_all(first, 2) == b""
    for connection in (*others, late):
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1000)


def test_a_connection_makes_room_once_it_is_answered_though_it_still_sends(serve: Serve) -> None:
    connect = serve(Limits(max_connections=1))
    sending = connect()
    sending.sendall(CHUNKED.replace(b"/read", b"/"))
    assert b"200 OK" in sending.recv(1000)
    late = connect()
    assert read_all(sending, 2) == b""
    late.sendall(GET)
    assert b"200 OK" in late.recv(1000)


def test_over_its_own_cap_a_client_makes_room_for_itself(serve: Serve) -> None:
    connect = serve(Limits(max_connections_of_one=2))
    elsewhere = connect("127.0.0.2")
    time.sleep(0.05)
    first = connect()
    time.sleep(0.05)
    others = [connect() for _ in range(2)]
    assert read_all(first, 2) == b""
    for connection in (elsewhere, *others):
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1000)


def test_a_trusted_proxy_has_no_cap_of_its_own(serve: Serve) -> None:
    connect = serve(Limits(max_connections_of_one=2), LOOPBACK)
    connections = [connect() for _ in range(10)]
    for connection in connections:
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1000)


def test_two_servers_of_one_process_do_not_make_room_for_each_other(serve: Serve) -> None:
    connect, connect_to_other = serve(Limits(max_connections=1)), serve(Limits(max_connections=1))
    first = connect()
    time.sleep(0.05)
    busy = connect_to_other()
    busy.sendall(SLOW)
    time.sleep(0.05)
    assert read_all(connect_to_other(), 1) == b""
    first.sendall(GET)
    assert b"200 OK" in first.recv(1000)


def test_who_does_not_take_an_answer_is_not_waited_for(serve: Serve) -> None:
    connection = serve(Limits(write_seconds=0.3))()
    connection.sendall(GET.replace(b"/ ", b"/large "))
    time.sleep(0.8)
    assert len(read_all(connection, 5)) < LARGE
