"""A faulty x402 facilitator: it asks a real one, or keeps the ledger itself, and then answers as the test says.

What it does to the money and what it says of it are two things; `Fault.moves` is the first, the ledger counts it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, Self

import httpx

LOOPBACK: Final = "127.0.0.1"
HANG_SECONDS: Final = 20.0
LATE_SECONDS: Final = 0.3
DRIP_SECONDS: Final = 0.1
INSUFFICIENT: Final = "invalid_exact_evm_insufficient_balance"
SIGNATURE: Final = "invalid_exact_evm_payload_signature"
NONCE_USED: Final = "invalid_exact_evm_nonce_already_used"
OTHER_PAYER: Final = "0x" + "99" * 20
SOME_TRANSACTION: Final = "0x" + "77" * 32


class Fault(Enum):
    """What goes wrong, for as long as it is set: at /settle, unless it begins with VERIFY or is DOWN."""

    NONE = "settles and says so"
    LATE = "settles, and takes its time to say so"

    # Nothing moves, and the answer says so for certain.
    REFUSED = "answers 200 with a reason of the allowlist"
    REFUSED_400 = "answers 400 with a reason of the allowlist"
    REFUSED_BARE = "answers 400 with a reason of the allowlist, and without the member transaction, as CDP does"

    # Nothing moves, since the call cannot be made.
    GONE = "accepts no connection once it has verified"

    # Nothing moves, and nobody can know it.
    ERROR_BEFORE = "answers 500 without settling"
    HANG_BEFORE = "says nothing and does nothing"
    RESET_BEFORE = "breaks the connection without settling"
    BARE_INSUFFICIENT_FUNDS = "refuses for a reason that older facilitators also give after a settlement"
    POOR_AT_SETTLE = "finds less than the price once it has verified, as one without gas also says"
    UNPAID_BILL = "answers 402 with an errorType, since its own bill is not paid"
    SIMULATION_FAILED = "refuses for a reason that a repeated call gets after the first one settled"

    # The money moves, and the answer hides it.
    ERROR_AFTER = "settles, then answers 500"
    GATEWAY_AFTER = "settles, then a gateway answers 502 with a page"
    BAD_REQUEST_AFTER = "settles, then answers 400"
    PAYMENT_REQUIRED_AFTER = "settles, then answers 402"
    RATE_LIMITED_AFTER = "settles, then answers 429"
    HANG_AFTER = "settles, then says nothing"
    RESET_AFTER = "settles, then breaks the connection"
    RESET_MID_BODY = "settles, then breaks the connection within its answer"
    SHORT_BODY = "settles, then closes within its answer"
    SLOW_DRIP = "settles, then sends its answer byte by byte"
    REDIRECT = "settles, then redirects"
    REDIRECT_TO_NOBODY = "settles, then redirects to where nobody listens"
    GARBAGE = "settles, then answers what is no JSON"
    NOT_AN_OBJECT = "settles, then answers a list"
    EMPTY = "settles, then answers 200 without a body"
    HUGE = "settles, then answers with a megabyte"
    DUPLICATE_MEMBERS = "settles, then says success twice"
    SUCCESS_AS_STRING = 'settles, then says "true"'
    WRONG_PAYER = "settles, then names another payer"
    WRONG_NETWORK = "settles, then names another network"
    NO_NETWORK = "settles, then names no network"
    EMPTY_TRANSACTION = "settles, then names no transaction"
    ODD_TRANSACTION = "settles, then names what is no transaction hash"
    ACCEPTED = "settles, then answers 202"
    PENDING = "settles, then says that it is pending"
    FAILURE_WITH_TRANSACTION = "settles, then reports a failure of the transaction"
    ALREADY_SETTLED = "settles, then says that it was settled before"
    SETTLED_TWICE = "settles twice, and answers for the second time"

    # Verification.
    VERIFY_REFUSED = "finds the credential invalid"
    VERIFY_NONCE_USED = "finds the authorization used already"
    VERIFY_ERROR = "answers 500 to the verification"
    VERIFY_HANG = "says nothing to the verification"
    VERIFY_RESET = "breaks the connection of the verification"
    VERIFY_GARBAGE = "answers the verification with what is no JSON"
    VERIFY_OTHER_PAYER = "vouches for another payer"
    VERIFY_AS_STRING = 'says "true" to the verification'
    VERIFY_REDIRECT = "redirects the verification"
    DOWN = "accepts no connection at all"

    @property
    def at_verify(self) -> bool:
        """Whether no settle call is ever to be made."""
        return self.name.startswith("VERIFY") or self is Fault.DOWN

    @property
    def hides_the_outcome(self) -> bool:
        """Whether nobody can tell from the answer to the settle call what became of the money."""
        return not self.at_verify and self not in _DEFINITE

    @property
    def moves(self) -> bool:
        """Whether the money moves."""
        return self not in _MOVES_NOTHING and not self.at_verify


_DEFINITE: Final = frozenset({Fault.NONE, Fault.LATE, Fault.REFUSED, Fault.REFUSED_400, Fault.REFUSED_BARE, Fault.GONE})
_MOVES_NOTHING: Final = frozenset(
    {
        Fault.REFUSED,
        Fault.REFUSED_400,
        Fault.REFUSED_BARE,
        Fault.POOR_AT_SETTLE,
        Fault.UNPAID_BILL,
        Fault.GONE,
        Fault.ERROR_BEFORE,
        Fault.HANG_BEFORE,
        Fault.RESET_BEFORE,
        Fault.BARE_INSUFFICIENT_FUNDS,
        Fault.SIMULATION_FAILED,
    }
)

Call = Callable[[str, bytes], tuple[int, bytes]]


def forward_to(facilitator: str) -> Call:
    """Return what asks a real facilitator: its path and body in, status and body out."""

    def call(path: str, body: bytes) -> tuple[int, bytes]:
        with httpx.Client(trust_env=False, timeout=30) as client:
            method = "POST" if body else "GET"
            headers = {"content-type": "application/json"}
            answer = client.request(method, facilitator + path, content=body, headers=headers)
        return answer.status_code, answer.content

    return call


def ledger_only(*networks: str) -> Call:
    """Return a facilitator without chains: it believes every signature and settles every nonce once."""
    settled: set[str] = set()

    def call(path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/supported":
            kinds = [{"x402Version": 2, "scheme": "exact", "network": network} for network in networks]
            return 200, _json({"kinds": kinds, "extensions": [], "signers": {}})
        authorization = authorization_of(body)
        payer, nonce = authorization["from"], authorization["nonce"]
        network = json.loads(body)["paymentRequirements"]["network"]
        if path == "/verify":
            if nonce in settled:
                return 200, _json({"isValid": False, "invalidReason": NONCE_USED, "payer": payer})
            return 200, _json({"isValid": True, "payer": payer})
        if nonce in settled:
            failure = {"success": False, "errorReason": "transaction_failed", "transaction": SOME_TRANSACTION}
            return 200, _json({**failure, "network": network, "payer": payer})
        settled.add(nonce)
        transaction = "0x" + hashlib.sha256(nonce.encode()).hexdigest()
        return 200, _json({"success": True, "transaction": transaction, "network": network, "payer": payer})

    return call


def authorization_of(body: bytes) -> Mapping[str, Any]:
    """Return the authorization in the body of a /verify or /settle call."""
    authorization: Mapping[str, Any] = json.loads(body)["paymentPayload"]["payload"]["authorization"]
    return authorization


class FaultyFacilitator:
    """A context manager; `url` is where it listens, `fault` is what goes wrong from now on.

    Attributes:
        verifications: How often each nonce was asked about.
        attempts: How often each nonce came to be settled.
        moves: How often the money of each nonce moved; a chain lets no nonce move twice.
        authorizations: The Authorization header of every request.
        strays: Requests for anything that a facilitator does not have, such as the target of a redirect.
        settling: Set while a settle call is being answered.
        clock_ahead: Seconds by which the Date of its answers is ahead.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._listener: socket.socket | None = None
        self._released = threading.Event()
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://{LOOPBACK}:{self._port}"
        self.settling = threading.Event()
        self.clock_ahead = 0.0
        self.reset()

    def reset(self, fault: Fault = Fault.NONE) -> None:
        """Forget what was counted, end what hangs, and choose what goes wrong next."""
        self._released.set()
        self._released = threading.Event()
        self.settling.clear()
        self.verifications: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.moves: Counter[str] = Counter()
        self.strays: list[str] = []
        self.authorizations: list[str | None] = []
        self.set(fault)

    def set(self, fault: Fault) -> None:
        """Choose what goes wrong from now on."""
        self.fault = fault
        if fault is Fault.DOWN:
            self._stop_listening()
        elif self._listener is None:
            self._listen()

    def __enter__(self) -> Self:
        """Return itself, which listens already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop listening and end what hangs."""
        self._stop_listening()
        self._released.set()

    def _listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, self._port))
        listener.listen(128)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            # Closing alone would leave the thread in accept().
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, address = listener.accept()
                threading.Thread(target=self._serve, args=(connection, address), daemon=True).start()

    def _serve(self, connection: socket.socket, address: Any) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            _Handler(connection, address, self)  # type: ignore[arg-type]  # It asks nothing of a socketserver.

    # What is answered; called by the handler.

    def answer(self, handler: _Handler, path: str, body: bytes) -> None:
        """Answer one request."""
        self.authorizations.append(handler.headers.get("Authorization"))
        if path == "/supported":
            handler.send(*self._call(path, b""))
        elif path == "/verify":
            self._verify(handler, body)
        elif path == "/settle":
            self.settling.set()
            try:
                self._settle(handler, body)
            finally:
                self.settling.clear()
        else:
            self.strays.append(path)
            handler.send(404, b"{}")

    def _verify(self, handler: _Handler, body: bytes) -> None:
        authorization = authorization_of(body)
        self.verifications[authorization["nonce"]] += 1
        payer = authorization["from"]
        match self.fault:
            case Fault.VERIFY_REFUSED:
                handler.send(200, _json({"isValid": False, "invalidReason": INSUFFICIENT, "payer": payer}))
            case Fault.VERIFY_NONCE_USED:
                handler.send(200, _json({"isValid": False, "invalidReason": NONCE_USED, "payer": payer}))
            case Fault.VERIFY_ERROR:
                handler.send(500, _json({"isValid": True, "payer": payer}))
            case Fault.VERIFY_HANG:
                self._released.wait(HANG_SECONDS)
            case Fault.VERIFY_RESET:
                handler.reset()
            case Fault.VERIFY_GARBAGE:
                handler.send(200, b"<html>")
            case Fault.VERIFY_OTHER_PAYER:
                handler.send(200, _json({"isValid": True, "payer": OTHER_PAYER}))
            case Fault.VERIFY_AS_STRING:
                handler.send(200, _json({"isValid": "true", "payer": payer}))
            case Fault.VERIFY_REDIRECT:
                handler.send(307, b"", {"Location": f"{self.url}/elsewhere"})
            case Fault.GONE:
                said = self._call("/verify", body)
                self._stop_listening()
                handler.send(*said, {"Connection": "close"})
            case _:
                handler.send(*self._call("/verify", body))

    def _move(self, body: bytes) -> dict[str, Any]:
        """Settle, count it when the money moved, and return what the facilitator says of it."""
        document: dict[str, Any] = json.loads(self._call("/settle", body)[1])
        if document["success"]:
            self.moves[authorization_of(body)["nonce"]] += 1
        return document

    def _settle(self, handler: _Handler, body: bytes) -> None:
        authorization = authorization_of(body)
        self.attempts[authorization["nonce"]] += 1
        fault = self.fault
        network = json.loads(body)["paymentRequirements"]["network"]
        said = self._move(body) if fault.moves else {}
        failure = {"success": False, "transaction": "", "network": network, "payer": authorization["from"]}
        match fault:
            case Fault.REFUSED:
                handler.send(200, _json(failure | {"errorReason": SIGNATURE}))
            case Fault.REFUSED_400:
                handler.send(400, _json(failure | {"errorReason": SIGNATURE}))
            case Fault.REFUSED_BARE:
                handler.send(400, _json({"success": False, "errorReason": SIGNATURE, "payer": authorization["from"]}))
            case Fault.POOR_AT_SETTLE:
                handler.send(200, _json(failure | {"errorReason": INSUFFICIENT}))
            case Fault.UNPAID_BILL:
                handler.send(402, _json({"errorType": "payment_method_required", "errorMessage": "Add a card."}))
            case Fault.BARE_INSUFFICIENT_FUNDS:
                handler.send(200, _json(failure | {"errorReason": "insufficient_funds"}))
            case Fault.SIMULATION_FAILED:
                reason = "invalid_exact_evm_transaction_simulation_failed"
                handler.send(400, _json(failure | {"errorReason": reason}))
            case Fault.ALREADY_SETTLED:
                handler.send(400, _json(failure | {"errorReason": NONCE_USED}))
            case Fault.PENDING:
                pending = {"errorReason": "settlement_pending", "transaction": said["transaction"]}
                handler.send(200, _json(failure | pending))
            case Fault.FAILURE_WITH_TRANSACTION:
                handler.send(200, _json(failure | {"errorReason": SIGNATURE, "transaction": said["transaction"]}))
            case Fault.ERROR_BEFORE | Fault.ERROR_AFTER:
                handler.send(500, _json(failure | {"errorReason": SIGNATURE}))
            case Fault.GATEWAY_AFTER:
                handler.send(502, b"<html>Bad gateway</html>")
            case Fault.BAD_REQUEST_AFTER:
                handler.send(400, _json({"error": "bad request"}))
            case Fault.PAYMENT_REQUIRED_AFTER:
                handler.send(402, _json({"error": "payment required"}))
            case Fault.RATE_LIMITED_AFTER:
                handler.send(429, _json({"error": "slow down"}))
            case Fault.HANG_BEFORE | Fault.HANG_AFTER:
                self._released.wait(HANG_SECONDS)
            case Fault.RESET_BEFORE | Fault.RESET_AFTER:
                handler.reset()
            case Fault.RESET_MID_BODY:
                handler.send(200, _json(said)[:-9], {"Content-Length": str(len(_json(said)))})
                handler.reset()
            case Fault.SHORT_BODY:
                handler.send(200, _json(said)[:-9], {"Content-Length": str(len(_json(said)))})
                handler.close_connection = True
            case Fault.LATE:
                self._released.wait(LATE_SECONDS)
                handler.send(200, _json(said))
            case Fault.SLOW_DRIP:
                self._drip(handler, _json(said))
            case Fault.REDIRECT:
                handler.send(307, b"", {"Location": f"{self.url}/elsewhere"})
            case Fault.REDIRECT_TO_NOBODY:
                handler.send(307, b"", {"Location": f"http://{LOOPBACK}:1/settle"})
            case Fault.GARBAGE:
                handler.send(200, b"settled, trust me")
            case Fault.NOT_AN_OBJECT:
                handler.send(200, _json([said]))
            case Fault.EMPTY:
                handler.send(200, b"")
            case Fault.HUGE:
                handler.send(200, _json(said | {"padding": "x" * 2**20}))
            case Fault.DUPLICATE_MEMBERS:
                handler.send(200, b'{"success":false,' + _json(said)[1:])
            case Fault.SUCCESS_AS_STRING:
                handler.send(200, _json(said | {"success": "true"}))
            case Fault.WRONG_PAYER:
                handler.send(200, _json(said | {"payer": OTHER_PAYER}))
            case Fault.WRONG_NETWORK:
                handler.send(200, _json(said | {"network": "eip155:8453"}))
            case Fault.NO_NETWORK:
                handler.send(200, _json({name: value for name, value in said.items() if name != "network"}))
            case Fault.EMPTY_TRANSACTION:
                handler.send(200, _json(said | {"transaction": ""}))
            case Fault.ODD_TRANSACTION:
                handler.send(200, _json(said | {"transaction": said["transaction"] + "\n"}))
            case Fault.ACCEPTED:
                handler.send(202, _json(said))
            case Fault.SETTLED_TWICE:
                handler.send(200, _json(self._move(body)))
            case _:
                handler.send(200, _json(said))

    def _drip(self, handler: _Handler, body: bytes) -> None:
        """Send an answer so slowly that no single read takes long, and all of it takes for ever."""
        handler.send(200, b"", {"Content-Length": str(len(body))})
        until = time.monotonic() + HANG_SECONDS
        for byte in body:
            if self._released.wait(DRIP_SECONDS) or time.monotonic() > until:
                return
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()


class _Handler(BaseHTTPRequestHandler):
    """Reads requests from one connection and lets the facilitator answer them."""

    protocol_version = "HTTP/1.1"
    # Head and body leave in one packet, so that no client waits for the second.
    wbufsize = -1
    server: FaultyFacilitator  # type: ignore[assignment]

    def do_GET(self) -> None:
        self.server.answer(self, self.path, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.answer(self, self.path, body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the Date of an answer."""
        return super().date_time_string(time.time() + self.server.clock_ahead)

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer; a given Content-Length may lie."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def reset(self) -> None:
        """Break the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: a call holds a signed authorization."""


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
