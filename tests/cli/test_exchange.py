"""How long a server may take over one answer, whatever part of it it spins out."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ranking_evaluate.cli import exchange

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"


@pytest.fixture
def dripping() -> Iterator[str]:
    """Yield a server that answers its first request, and of the second one writes a head that never ends."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            connection = stack.enter_context(listener.accept()[0])
            connection.recv(65_536)
            connection.sendall(HEAD + b"\r\nok")
            connection.recv(65_536)
            with contextlib.suppress(OSError):
                for byte in HEAD + b"X-A: " + 1_000 * b"a":
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()


def test_a_head_that_comes_byte_by_byte_ends_as_a_lost_answer(dripping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ANSWER_SECONDS", 0.5)
    with exchange.http_client(dripping) as client:
        assert exchange.exchange(client, "GET", dripping, {}).body == b"ok"
        began = time.monotonic()
        with pytest.raises(exchange.LostError):
            exchange.exchange(client, "POST", dripping, {}, b"{}")
    assert time.monotonic() - began < 5
