"""What the server answers in the application's place, and how the application words it."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ranking_evaluate.server.limits import Limits

Scope: TypeAlias = MutableMapping[str, Any]
"""An ASGI scope."""


@dataclass(frozen=True)
class Refusal:
    """One answer, without its headers Date, Connection and Content-Length, which the server adds."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Refusals(Protocol):
    """The answers to requests that the server ends early.

    `scope` is the request's, when the application was called with it and has not answered; None when the request never
    reached the application.
    """

    def head_too_long(self, limits: Limits, scope: Scope | None) -> Refusal:
        """Return the answer to a head of more than `limits.head_bytes`."""

    def body_too_slow(self, limits: Limits, scope: Scope | None) -> Refusal:
        """Return the answer to a body that took longer than `limits.body_seconds`."""


def not_http(limits: Limits, scope: Scope | None) -> Refusal:
    """Return the answer to what is not HTTP, which is not worded by any application."""
    return Refusal(400, ((b"content-type", b"text/plain; charset=utf-8"),), b"Invalid HTTP request received.")
