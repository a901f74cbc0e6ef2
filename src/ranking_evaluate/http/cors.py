"""CORS: what pages of other origins may send here, and what they may read of the answers.

The rules are those of the Fetch standard, under "CORS protocol". Starlette's middleware answers preflights with texts
of its own, and what the server answers before the application could have none of these headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranking_evaluate.contract.errors import RequestMalformed
from ranking_evaluate.http.errors import answer_refusal
from ranking_evaluate.http.headers import HeaderNames
from ranking_evaluate.http.responses import Headers

ANY: Final = "*"
METHODS: Final = ("GET", "HEAD", "POST")
MAX_AGE: Final = 600
"""Seconds for which a browser remembers a preflight."""

# The Fetch standard lets a page send these by itself; a browser names the second one for JSON.
_SAFELISTED: Final = ("Accept", "Accept-Language", "Content-Language", "Content-Type")


class Cors:
    """Who may call from a browser, and with what.

    Args:
        origins: The origins whose pages may; `*` stands for all.
        names: The headers that they may send and read.
    """

    def __init__(self, origins: Iterable[str], names: HeaderNames) -> None:
        self._origins = frozenset(origins)
        self._headers = tuple(sorted({*_SAFELISTED, *names.allowed}, key=str.lower))
        self._exposed = (b"access-control-expose-headers", ", ".join(names.exposed).encode())

    def of_answer(self, origin: str | None) -> Headers:
        """Return the headers by which a page of this origin may read an answer; none for whom nothing is allowed.

        Where any origin may, the answer is the same for one that is not known.
        """
        allowed = self._allowed(origin)
        return () if allowed is None else ((b"access-control-allow-origin", allowed.encode("latin-1")), self._exposed)

    def answer_preflight(self, request: Request) -> Response:
        """Return 204 without a body, or the problem that tells the page's author what may be sent here."""
        asked = request.headers
        allowed = self._allowed(asked["origin"])
        names = (name.strip().lower() for name in asked.get("access-control-request-headers", "").split(","))
        if allowed is None:
            why = "The operator allows no calls from pages of this origin."
        elif asked["access-control-request-method"] not in METHODS:
            why = f"A page of another origin may use {', '.join(METHODS)} here."
        elif not {name for name in names if name} <= {name.lower() for name in self._headers}:
            why = f"A page of another origin may send these headers here: {', '.join(self._headers)}."
        else:
            why = None
        answer = Response(status_code=204) if why is None else answer_refusal(request, _refused(why))
        if allowed is not None:
            answer.headers["access-control-allow-origin"] = allowed
            answer.headers["access-control-allow-methods"] = ", ".join(METHODS)
            answer.headers["access-control-allow-headers"] = ", ".join(self._headers)
            answer.headers["access-control-max-age"] = str(MAX_AGE)
        return answer

    def _allowed(self, origin: str | None) -> str | None:
        """Return the value of Access-Control-Allow-Origin, or None."""
        if ANY in self._origins:
            return ANY
        return origin if origin in self._origins else None


def _refused(why: str) -> RequestMalformed:
    return RequestMalformed("HEADER_INVALID", why)


def origin_of(scope: Scope) -> str | None:
    """Return the Origin of a request; a browser always sends it across origins, and hardly anybody else does."""
    for name, value in scope["headers"]:
        if name == b"origin":
            return str(value, "latin-1")
    return None


class CorsLayer:
    """The middleware; a request without an Origin passes through it untouched.

    Args:
        app: The layers within.
        cors: Who may call from a browser.
    """

    def __init__(self, app: ASGIApp, cors: Cors) -> None:
        self.app = app
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see the ASGI specification."""
        origin = origin_of(scope) if scope["type"] == "http" else None
        if origin is None:
            await self.app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and "access-control-request-method" in (request := Request(scope)).headers:
            await self._cors.answer_preflight(request)(scope, receive, send)
            return
        more = self._cors.of_answer(origin)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self.app(scope, receive, send_with_headers)
