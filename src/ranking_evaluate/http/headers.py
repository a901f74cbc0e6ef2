"""The names of headers that the service reads, answers with and allows browsers, made from the protocols it sells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ranking_evaluate.contract.wire import Wire

_TRACING: Final = ("X-Request-Id", "traceparent", "tracestate")
"""What libraries for tracing add to every request of a page; nothing is read from them here."""


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """The headers of the routes.

    Attributes:
        singletons: Request headers, lower case, that may stand on one line only: of two lines we would read one, and
            a proxy before us the other.
        vary: The value of Vary on every answer.
        allowed: Request headers that a browser's script may send.
        exposed: Response headers that a browser's script may read.
    """

    singletons: frozenset[str]
    vary: str
    allowed: tuple[str, ...]
    exposed: tuple[str, ...]


def header_names(wires: Iterable[Wire]) -> HeaderNames:
    """Return the header names for these protocols, in their order."""
    wires = tuple(wires)
    credentials = tuple(wire.credential_header for wire in wires)
    added = tuple(name for wire in wires for name in wire.client_headers)
    answers = tuple(name for wire in wires for name in (wire.challenge_header, wire.receipt_header))
    decisive = ("Idempotency-Key", "Content-Type", "Content-Encoding", *credentials)
    return HeaderNames(
        singletons=frozenset(name.lower() for name in decisive),
        vary=", ".join(("Idempotency-Key", *credentials, "Origin")),
        allowed=("Content-Type", "Idempotency-Key", *credentials, *added, *_TRACING),
        exposed=(*answers, "Retry-After", "Idempotent-Replayed", "X-Request-Id"),
    )
