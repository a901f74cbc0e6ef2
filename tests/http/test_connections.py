"""Connections on a real socket, with their deadlines and caps made small."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from ranking_evaluate.http import connections
from ranking_evaluate.http.server import configuration
from ranking_evaluate.sandbox.processes import LOOPBACK

GET: Final = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST: Final = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
LARGE: Final = 16 * 2**20


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with two bytes; with many at /large, after the body at /read, and after a while at /slow."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    more = scope["path"] == "/read"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


Connect = Callable[[], socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind((LOOPBACK, 0))
        running = uvicorn.Server(configuration(app, trusted_proxies=(), graceful_seconds=2))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not running.started:
            time.sleep(0.005)
        address = listener.getsockname()
        yield lambda: stack.enter_context(socket.create_connection(address, 5))
        running.should_exit = True
        thread.join()


def ends(connection: socket.socket, within: float) -> bool:
    """Return whether the other side closes the connection in time; what it says first is passed over."""
    connection.settimeout(within)
    try:
        while connection.recv(2**20):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_idle_and_half_sent_heads_end_with_their_deadline(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    mute, half, idle = connect(), connect(), connect()
    half.sendall(GET[:20])
    idle.sendall(GET)
    for connection in (mute, half, idle):
        assert ends(connection, 2)


def test_h25_a_body_must_arrive_in_time(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    assert connections.BODY_SECONDS == 10.0
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.3)
    connection = connect()
    connection.sendall(POST + b"1234")
    time.sleep(0.2)
    connection.sendall(b"5")
    connection.settimeout(2)
    answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer
    assert b"REQUEST_TIMEOUT" in answer
    assert ends(connection, 2 + connections.LINGER_SECONDS)


def test_a_body_that_comes_in_pieces_in_time_is_read(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.5)
    connection = connect()
    for _ in range(2):
        for piece in (POST, b"12345", b"67890"):
            connection.sendall(piece)
            time.sleep(0.15)
        assert b"200 OK" in connection.recv(1000)
    time.sleep(0.6)
    connection.sendall(GET)
    assert b"200 OK" in connection.recv(1000)


def test_a_slow_body_that_nobody_waits_for_is_answered_once(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.3)
    connection = connect()
    connection.sendall(POST.replace(b"/read", b"/") + b"1234")
    connection.settimeout(2 + connections.LINGER_SECONDS)
    received = b""
    while more := connection.recv(4096):
        received += more
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"200 OK" in received


@pytest.mark.parametrize(
    "behind",
    [
        POST.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked") + b"ZZ\r\n",
        POST + b"1234",
    ],
    ids=["broken", "late"],
)
def test_a_request_that_ends_behind_another_one_holds_no_place(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, behind: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.2)
    connection = connect()
    connection.sendall(GET.replace(b"/ ", b"/slow ") + behind)
    connection.settimeout(3 + connections.LINGER_SECONDS)
    received = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(4096):
            received += more
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b"HTTP/1.1 ") == 1


def test_a_connection_is_kept_between_requests(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    connection = connect()
    for _ in range(4):
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1000)
        time.sleep(0.25)


def test_over_the_cap_the_longest_silent_one_makes_room(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    first = connect()
    time.sleep(0.05)
    others = [connect() for _ in range(2)]
    time.sleep(0.05)
    late = connect()
    assert ends(first, 2)
    for connection in (*others, late):
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1000)


def test_who_does_not_take_an_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.3)
    connection = connect()
    connection.sendall(GET.replace(b"/ ", b"/large "))
    time.sleep(0.8)
    received = 0
    connection.settimeout(5)
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(2**20):
            received += len(more)
    assert received < LARGE
