"""A plain proxy in front of the service that remembers what stock clients send: they do not show their credentials."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

import httpx

from ranking_evaluate.sandbox.processes import LOOPBACK

CREDENTIAL: Final = "payment-signature"
_OF_A_CONNECTION: Final = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
"""Headers that speak of one connection alone."""


@dataclass(frozen=True)
class Exchange:
    """One request as it was sent, and the status of its answer."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int


@dataclass
class Recorder:
    """A context manager; within it `origin` answers what the service at `upstream` answers.

    It is there before the service, whose public origin it is to be: some clients pay where the challenge says.
    """

    upstream: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._client = httpx.Client(trust_env=False, timeout=60)
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self.origin = f"http://{LOOPBACK}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()

    def replay(self, key: str) -> httpx.Response:
        """Send the paid request of a key again, straight to the service and byte for byte the same."""
        [paid] = [one for one in self.exchanges if CREDENTIAL in one.headers and one.headers["idempotency-key"] == key]
        return self._client.request(paid.method, self.upstream + paid.path, headers=paid.headers, content=paid.body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def _pass_on(self) -> None:
                sent = {name.lower(): value for name, value in self.headers.items()}
                headers = {name: value for name, value in sent.items() if name not in _OF_A_CONNECTION}
                body = self.rfile.read(int(sent.get("content-length", 0)))
                answer = recorder._client.request(
                    self.command, recorder.upstream + self.path, headers=headers, content=body
                )
                recorder.exchanges.append(Exchange(self.command, self.path, headers, body, answer.status_code))
                self.send_response(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name not in _OF_A_CONNECTION:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_POST = _pass_on

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing: a request holds a credential."""

        return Handler
