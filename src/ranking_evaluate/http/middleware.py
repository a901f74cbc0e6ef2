"""The layer around every answer: a request id, one log line, and the headers that all answers have."""

from __future__ import annotations

from typing import Final

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranking_evaluate import telemetry
from ranking_evaluate.contract.errors import NotFound
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.http.errors import answer_bug, answer_refusal
from ranking_evaluate.http.requests import client_of
from ranking_evaluate.http.responses import common_headers, new_request_id

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Envelope:
    """The outermost middleware, so that what CORS answers by itself has an id and a log line too.

    Args:
        app: The layers within.
        parts: The parts of the application, for the names of headers and of what is sold.
    """

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app = app
        self._common = common_headers(parts.header_names)
        self._paid = {path: (sold.wire.name, sold.operation.id) for path, sold in parts.paid.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see the ASGI specification."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, request_id = scope["path"], new_request_id()
        protocol, operation = self._paid.get(path, ("", ""))
        told = telemetry.Request(request_id, known_method(scope["method"]), protocol, operation)
        scope.setdefault("state", {})["told"] = told

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                told.status = message["status"]
                own = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message["headers"], own, *self._common]}
            await send(message)

        # Servers run each request in a context of its own, so what is bound here ends with it.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            if path.endswith("\n"):
                # The patterns of Starlette's routes end in `$`, which also matches before a line break at the end.
                refused = answer_refusal(Request(scope), NotFound("NOT_FOUND", "No such route."))
                await refused(scope, receive, send_with_headers)
                return
            await self.app(scope, receive, send_with_headers)
        except Exception as error:  # noqa: BLE001 - a bug outside the routes, or while an answer is being sent.
            answer = answer_bug(Request(scope), error)
            # An answer that has begun cannot be taken back; the server then ends the connection.
            if not told.status:
                await answer(scope, receive, send_with_headers)
        finally:
            # The router leaves its route in the scope; a path that has none is the caller's own text.
            told.route = path if protocol else getattr(scope.get("route"), "path", None)
            told.client = client_of(Request(scope))
            telemetry.log_request(told)


def known_method(method: str) -> str:
    """Return the method if it is a common one: the names that a log may hold are not the caller's to choose."""
    return method if method in _METHODS else "other"
