"""A proxy before a chain's node, which can hold a transaction back, or lie about having sent it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

import httpx

LOOPBACK: Final = "127.0.0.1"

Forward = Callable[[], dict[str, Any]]
Send = Callable[[Forward], dict[str, Any] | None]
"""What becomes of a transaction that is sent: given how to pass it on, the members `result` or `error` of an answer.

None breaks the connection.
"""


def pass_on(forward: Forward) -> dict[str, Any] | None:
    """Send the transaction and say so."""
    return forward()


class RpcProxy:
    """A context manager; `url` is where it listens, `send` is what it does with transactions.

    Attributes:
        sent: Set once a transaction has arrived here.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._client = httpx.Client(trust_env=False, timeout=30)
        self.send: Send = pass_on
        self.sent = threading.Event()

    def reset(self) -> None:
        """Pass every transaction on again."""
        self.send = pass_on
        self.sent.clear()

    def __enter__(self) -> Self:
        """Listen."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def do_POST(self) -> None:
                proxy._answer(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        call = json.loads(body)

        def forward() -> dict[str, Any]:
            said: dict[str, Any] = self._client.post(self._node, json=call).json()
            return said

        said: Any
        if isinstance(call, dict) and call.get("method") == "eth_sendRawTransaction":
            send = self.send
            self.sent.set()
            said = send(forward)
        else:
            said = forward()
        if said is None:
            handler.close_connection = True
            return
        if isinstance(said, dict):
            said = {"jsonrpc": "2.0", "id": call["id"], **said}
        content = json.dumps(said).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
