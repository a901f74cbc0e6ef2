"""A text that a terminal would obey, and a shop that says it wherever a shop may say anything."""

from __future__ import annotations

import contextlib
import json
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from x402.extensions.payment_identifier import declare_payment_identifier_extension

FAKE: Final = "Yes."

HOSTILE: Final = (
    "\x1b]52;c;ZXZpbA==\x07"  # OSC 52 sets the clipboard,
    "\x1b]0;t\x1b\\\x1b[2J"  # others the title, and an empty screen;
    "\x9b31m\x90q\x9c"  # C1 begins sequences with one character,
    "\x08\x7f\v\f\t"  # backspaces hide what stands before them,
    "\u202eesrever\u202c\u2066\u2069"  # overrides turn letters around,
    f"\r\n{FAKE}\u2028{FAKE}\x85{FAKE}"  # and a line break begins a line that looks like ours.
)

OFFER: Final[dict[str, Any]] = {
    "scheme": "exact",
    "network": "eip155:31337",
    "asset": "0x5FbDB2315678afecb367f032d93F642f64180aa3",
    "amount": "10000",
    "payTo": "0x" + "11" * 20,
    "maxTimeoutSeconds": 120,
    "extra": {"name": "Dollar", "version": "1"},
}


def encoded(document: object) -> str:
    return b64encode(json.dumps(document).encode()).decode()


def x402_offer(*offers: Mapping[str, Any]) -> dict[str, str]:
    """Return the header of a 402 over x402."""
    extensions = {"payment-identifier": declare_payment_identifier_extension(required=True)}
    required = {
        "x402Version": 2,
        "error": HOSTILE,
        "resource": {"url": "https://shop.example/", "description": HOSTILE, "mimeType": "application/json"},
        "accepts": list(offers),
        "extensions": extensions,
    }
    return {"PAYMENT-REQUIRED": encoded(required)}


@dataclass
class Shop:
    """What the shop answers, and which credentials it was sent."""

    challenge: dict[str, str]
    terms: bytes = json.dumps({"code": HOSTILE, "detail": HOSTILE}).encode()
    status: int = 200
    body: bytes = HOSTILE.encode()
    headers: dict[str, str] = field(default_factory=lambda: {"PAYMENT-RESPONSE": encoded({HOSTILE: HOSTILE})})
    credentials: list[str] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def shop(challenge: Mapping[str, str]) -> Iterator[Shop]:
    """Serve a shop on this machine that answers a POST with the challenge, and a credential with what it has."""
    served = Shop(dict(challenge))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(404, json.dumps({"code": "ATTEMPT_UNKNOWN", "detail": HOSTILE}).encode(), {})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            credential = self.headers.get("PAYMENT-SIGNATURE") or self.headers.get("Authorization")
            if credential is None:
                self.answer(402, served.terms, served.challenge)
            else:
                served.credentials.append(credential)
                self.answer(served.status, served.body, served.headers)

        def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1/x402/ranking-evaluate"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
