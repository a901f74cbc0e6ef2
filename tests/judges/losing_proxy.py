"""A proxy between a buyer and any server, which loses or holds back the answer to what pays, or is gone by then."""

from __future__ import annotations

import threading
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

import httpx

from ranking_evaluate.sandbox.processes import LOOPBACK

FORWARD_SECONDS: Final = 60.0
HELD_SECONDS: Final = 60.0
PASSED: Final = ("content-type", "idempotency-key", "payment-signature", "authorization", "accept")


class Way(Enum):
    """What becomes of the next answer to a request that pays."""

    GOOD = "it arrives"
    LOST = "it never arrives: the connection breaks"
    LATE = "it arrives after the buyer has gone"
    GONE = "there is none: nobody listens any more when the server has said its terms"


class LosingProxy:
    """Set `way` for the next paid answer; the ones after it arrive. `answers` has the status of each of them."""

    def __init__(self) -> None:
        self.way = Way.GOOD
        self.upstream = ""
        self.answers: list[int] = []
        self._release = threading.Event()
        self._client = httpx.Client(trust_env=False, timeout=FORWARD_SECONDS)
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.listen()
        self.url = f"http://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._release.set()
        self._stop_listening()
        self._client.close()

    def to(self, upstream: str, way: Way = Way.GOOD) -> str:
        """Stand in front of this server from now on, and return the proxy's own address."""
        self.upstream, self.way, self.answers = upstream, way, []
        self.listen()
        return self.url

    def listen(self) -> None:
        """Accept connections again, at the same address."""
        if self._server is None:
            self._server = ThreadingHTTPServer((LOOPBACK, self._port), self._handler())
            self._server.daemon_threads = True
            self._port = self._server.server_port
            threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.pass_on("GET", b"")

            def do_POST(self) -> None:
                self.pass_on("POST", self.rfile.read(int(self.headers["Content-Length"])))

            def pass_on(self, method: str, body: bytes) -> None:
                headers = {name: self.headers[name] for name in PASSED if name in self.headers}
                pays = bool({"payment-signature", "authorization"} & headers.keys())
                answer = proxy._client.request(method, proxy.upstream + self.path, content=body, headers=headers)
                way = Way.GOOD
                if pays:
                    proxy.answers.append(answer.status_code)
                    way, proxy.way = proxy.way, Way.GOOD
                elif proxy.way is Way.GONE and answer.status_code == httpx.codes.PAYMENT_REQUIRED:
                    proxy.way = Way.GOOD
                    # Before the terms are out, so that the buyer's next connection is refused.
                    proxy._stop_listening()
                if way is Way.LOST:
                    self.close_connection = True
                    return
                if way is Way.LATE:
                    proxy._release.wait(HELD_SECONDS)
                try:
                    self.answer(answer)
                except ConnectionError:
                    self.close_connection = True

            def answer(self, answer: httpx.Response) -> None:
                self.send_response(answer.status_code)
                dropped = {"content-length", "content-encoding", "transfer-encoding", "connection", "date", "server"}
                for name, value in answer.headers.multi_items():
                    if name not in dropped:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
