"""The checks of a request's headers, key and body: docs/lifecycle.md, section 2, steps 3 to 6."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

from starlette.requests import ClientDisconnect, Request

from ranking_evaluate.contract.errors import RequestMalformed, TooLarge, UnsupportedMedia
from ranking_evaluate.contract.idempotency import is_key
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.core.intake import RAW_BYTES

MAX_HEADER_BYTES: Final = 32_768
MAX_HEADER_LINES: Final = 64

MAX_PROBE_BYTES: Final = 16
_WHITE_SPACE: Final = b" \t\n\r"

_JSON: Final = re.compile(r'application/json(?:\s*;\s*charset=(?:utf-8|"utf-8"))?', re.IGNORECASE)


def read_headers(request: Request, singletons: Collection[str]) -> Mapping[str, str]:
    """Return the headers by lower-case name, the last line of each.

    Raises:
        RequestMalformed: HEADER_INVALID over the limits, or where one of the `singletons` stands on two lines.
    """
    raw: list[tuple[bytes, bytes]] = request.scope["headers"]
    if len(raw) > MAX_HEADER_LINES or sum(len(name) + len(value) + 4 for name, value in raw) > MAX_HEADER_BYTES:
        raise RequestMalformed(
            "HEADER_INVALID", f"Headers may have {MAX_HEADER_LINES} lines and {MAX_HEADER_BYTES} bytes in all."
        )
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    if len(headers) != len(raw):
        lines = Counter(name.decode("latin-1").lower() for name, _ in raw)
        repeated = sorted(name for name in singletons if lines[name] > 1)
        if repeated:
            raise RequestMalformed("HEADER_INVALID", f"The header {repeated[0]} may stand on one line only.")
    return headers


def read_key(headers: Mapping[str, str]) -> str:
    """Return the Idempotency-Key, or raise what is wrong with it."""
    key = headers.get("idempotency-key")
    if key is None:
        raise RequestMalformed("IDEMPOTENCY_KEY_REQUIRED", "The request has no Idempotency-Key header.")
    if not is_key(key):
        raise RequestMalformed(
            "IDEMPOTENCY_KEY_INVALID", "The Idempotency-Key is not 16 to 128 characters of A-Z a-z 0-9 _ and -."
        )
    return key


def is_uncompressed(headers: Mapping[str, str]) -> bool:
    """Return whether the body is said to be as it is."""
    return headers.get("content-encoding", "identity").strip().lower() == "identity"


def check_media(headers: Mapping[str, str]) -> None:
    """Raise `UnsupportedMedia` unless the body is said to be uncompressed application/json."""
    if not is_uncompressed(headers):
        raise UnsupportedMedia("UNSUPPORTED_ENCODING", "The body must not be compressed.")
    if not _JSON.fullmatch(headers.get("content-type", "").strip()):
        raise UnsupportedMedia("UNSUPPORTED_MEDIA_TYPE", "The body must be application/json, in UTF-8.")


async def is_probe(request: Request, headers: Mapping[str, str], wires: Iterable[Wire]) -> bool:
    """Return whether a POST only asks what is sold: no key, no credential, and an empty body or `{}`.

    Indexers ask so, and list nothing but what then answers 402. Of any other body no more is read than shows it.
    """
    if "idempotency-key" in headers or any(wire.carries_credential(headers) for wire in wires):
        return False
    if not is_uncompressed(headers):
        return False
    try:
        body = await read_body(request, headers, MAX_PROBE_BYTES)
    except TooLarge:
        return False
    return body.translate(None, _WHITE_SPACE) in {b"", b"{}"}


async def read_body(request: Request, headers: Mapping[str, str], limit: int = RAW_BYTES) -> bytes:
    """Return the raw body; over the limit it is refused unread, or as soon as it grows over it.

    How long it may take to arrive is the server's to say.

    Raises:
        ClientDisconnect: The caller went away, or was sent away.
    """
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = b""
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return body


async def hung_up(request: Request) -> None:
    """Return when the caller of a request whose body was read waits no longer."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_large(limit: int) -> TooLarge:
    # What is left of the body is not read, so the connection ends with this answer.
    return TooLarge("INPUT_LIMIT", f"The body is over {limit} bytes.", headers={"connection": "close"})


def client_of(request: Request) -> str:
    """Return whom a rate counts as the sender of a request."""
    client = request.scope.get("client")
    return counted_as(client[0] if client else "unknown")


@lru_cache(maxsize=4096)
def counted_as(host: str) -> str:
    """Return whom an address counts as: itself, and for IPv6 its /64, which one host usually owns whole."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        # A socket for both families shows IPv4 peers in this form, all of which share one /64.
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
