"""One HTTP exchange with a server that nobody vouches for: what it may make us read, and what it said, in words."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from ranking_evaluate.cli.payers.payer import PayError
from ranking_evaluate.core.visible import visible

CONNECT_SECONDS: Final = 10.0
# Above the time in which the service settles, whatever its provider does.
ANSWER_SECONDS: Final = 130.0
MAX_BODY_BYTES: Final = 16 * 1024 * 1024

PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 30.0

WORDS_LENGTH: Final = 1000
"""Characters of each of a server's texts that are printed."""

_OF_THE_TRANSFER: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})

_WORDS: Final = ("code", "detail", "nextStep")


class ExchangeError(Exception):
    """There is no answer; the text says why, in a sentence without its full stop."""


class NotSentError(ExchangeError):
    """No connection came about: not a byte of the request has left this machine."""


class UntrustedServerError(NotSentError):
    """The server could not show that it is the one that was meant. To ask again would change nothing."""


class LostError(ExchangeError):
    """The connection broke, or was silent for too long. The request may have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer.

    Attributes:
        response: Its status and headers.
        body: Its bytes; None when they did not arrive whole and within the bounds.
        trouble: Why there is no body; empty when there is one.
        broken: Whether it broke off, so that it may arrive whole another time.
    """

    response: httpx.Response
    body: bytes | None
    trouble: str = ""
    broken: bool = False

    @property
    def status(self) -> int:
        """Its status code."""
        return self.response.status_code

    @property
    def whole(self) -> httpx.Response:
        """The answer as SDKs read one: with its body, which is empty where it did not arrive whole."""
        headers = [pair for pair in self.response.headers.raw if pair[0].lower() not in _OF_THE_TRANSFER]
        return httpx.Response(self.status, headers=headers, content=self.body or b"")

    @property
    def problem(self) -> dict[str, Any]:
        """The members of a JSON object in the body; empty when it is none."""
        try:
            content = json.loads(self.body or b"")
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    @property
    def words(self) -> str:
        """The server's own words about an answer that is not the wanted one."""
        problem = self.problem
        # On one line and not endless, so that none of them passes for a line of ours, or hides one.
        names = _WORDS if "code" in problem else ("error", *_WORDS)
        texts = [text for name in names if isinstance(text := problem.get(name), str) and text]
        words = [visible(text[:WORDS_LENGTH]).rstrip(".") for text in texts]
        words += [self.trouble] if self.trouble else []
        return f"The service answered {self.status}" + "".join(f"; {word}" for word in words) + "."

    @property
    def pause(self) -> float:
        """Seconds to wait before asking again."""
        value = self.response.headers.get("Retry-After", "")
        return min(float(value), LONGEST_PAUSE_SECONDS) if re.fullmatch(r"[0-9]{1,9}", value) else PAUSE_SECONDS


class _Client(httpx.Client):
    """A client whose requests end when their answers' heads take too long as a whole: httpx bounds each read alone."""

    _socket: socket.socket | None = None

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own.
        """Send a request; see httpx."""
        request.extensions = {**request.extensions, "trace": self._trace}
        watch = threading.Timer(ANSWER_SECONDS, self._give_up)
        watch.start()
        try:
            return super().send(request, **options)
        finally:
            watch.cancel()

    def _trace(self, event: str, facts: Mapping[str, Any]) -> None:
        # A connection that is kept is used again without these events.
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = facts["return_value"].get_extra_info("socket")

    def _give_up(self) -> None:
        """Wake up the read or write that waits; both then see a connection that was lost."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Not the shutdown of TLS, which belongs to the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def http_client(url: str) -> httpx.Client:
    """Return a client for one purchase at `url`.

    A credential must not be read on the way, since whoever holds it first can spend it: HTTPS, but on this machine.

    Raises:
        PayError: The URL is not one to send a payment to.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise PayError(f"The URL cannot be read ({visible(str(error))}). Nothing was paid.") from error
    if parsed.userinfo:
        # It would become an Authorization header, which is where an MPP payment stands.
        raise PayError("The URL holds a user name or a password, which are not sent. Nothing was paid.")
    is_local = parsed.host in {"127.0.0.1", "::1", "localhost"}
    if parsed.scheme != "https" and not (is_local and parsed.scheme == "http"):
        raise PayError("A payment is sent over https:// only (http:// is for this machine). Nothing was paid.")
    timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    return _Client(follow_redirects=False, trust_env=not is_local, timeout=timeout, verify=_trusted())


def _trusted() -> ssl.SSLContext | bool:
    """Return whose certificates are believed: those of SSL_CERT_FILE alone, on this machine too, or httpx's own."""
    own = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=own) if own else True
    except OSError as error:
        # An SSLError is one of them.
        reason = error.strerror or str(error)
        raise PayError(f"SSL_CERT_FILE names no file of certificates ({visible(reason)}). Nothing was paid.") from error


def exchange(
    client: httpx.Client, method: str, url: httpx.URL | str, headers: Mapping[str, str], content: bytes | None = None
) -> Reply:
    """Send one request and return its answer.

    Raises:
        NotSentError: Nothing was sent; `UntrustedServerError` when the server's certificate is the reason.
        LostError: The request may have arrived, and no status came back.
    """
    # Plain bytes alone: a small compressed body may become an endless one.
    headers = {**headers, "Accept-Encoding": "identity"}
    try:
        with client.stream(method, url, content=content, headers=headers) as response:
            return _read(response)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol) as error:
        reason = _certificate_problem(error)
        if reason is not None:
            raise UntrustedServerError(
                f"The server's certificate is not trusted ({visible(reason)}), so nothing is sent to it; where its "
                "authority is your own, name the authority's certificate in SSL_CERT_FILE"
            ) from error
        raise NotSentError(f"The server cannot be reached ({type(error).__name__}: {visible(str(error))})") from error
    except httpx.RequestError as error:
        raise LostError(f"The connection failed ({type(error).__name__})") from error


def _read(response: httpx.Response) -> Reply:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        return Reply(response=response, body=None, trouble="its body is compressed, which was not asked for")
    until, body = time.monotonic() + ANSWER_SECONDS, bytearray()
    try:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return Reply(response=response, body=None, trouble=f"its body is longer than {MAX_BODY_BYTES} bytes")
            if time.monotonic() > until:
                return Reply(response=response, body=None, trouble=f"its body took longer than {ANSWER_SECONDS:.0f} s")
    except httpx.RequestError as error:
        trouble = f"its body broke off ({type(error).__name__})"
        return Reply(response=response, body=None, trouble=trouble, broken=True)
    return Reply(response=response, body=bytes(body))


def _certificate_problem(error: BaseException | None) -> str | None:
    """Return what is wrong with a certificate, or None when the connection failed for another reason."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return None


def read_receipt(header: str) -> dict[str, Any]:
    """Return the members of a receipt header of either protocol: JSON in base64. Empty when it cannot be read."""
    try:
        content = json.loads(urlsafe_b64decode(header.replace("+", "-").replace("/", "_") + "=" * (-len(header) % 4)))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
