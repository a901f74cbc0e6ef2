"""A delivery or a refusal -> a response, with the headers that every answer carries."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

import orjson
import structlog
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranking_evaluate import telemetry
from ranking_evaluate.contract.errors import Internal, PaymentRequired, ServiceError
from ranking_evaluate.order import Delivery

COMMON_HEADERS: Final = (
    (b"vary", b"Idempotency-Key, PAYMENT-SIGNATURE, Authorization, Origin"),
    (b"x-content-type-options", b"nosniff"),
)


def new_request_id() -> str:
    """Return the id under which one request is answered and logged."""
    return secrets.token_hex(12)


def deliver(delivery: Delivery) -> Response:
    """Return the 200 of a paid answer: the same bytes and the same receipt every time."""
    headers = {delivery.receipt_header: delivery.receipt, "cache-control": "private, no-store"}
    if delivery.replayed:
        headers["idempotent-replayed"] = "true"
    return Response(delivery.body, headers=headers, media_type="application/json")


def json_response(document: object, status: int = 200) -> Response:
    """Return a JSON document that nobody may keep."""
    headers = {"cache-control": "no-store"}
    return Response(orjson.dumps(document), status, headers=headers, media_type="application/json")


def refuse(error: ServiceError, request_id: str) -> Response:
    """Return the RFC 9457 problem of a refusal."""
    headers = dict(error.headers)
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, PaymentRequired):
        headers["cache-control"] = "no-store"
    return Response(
        orjson.dumps(error.problem(request_id)), error.status, headers=headers, media_type="application/problem+json"
    )


class Envelope:
    """The outermost layer: gives every request an id and its log line, and every answer its headers.

    Args:
        app: The layers within.
        paid: The rail and the operation of each paid path.
    """

    def __init__(self, app: ASGIApp, paid: Mapping[str, tuple[str, str]]) -> None:
        self._app = app
        self._paid = paid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, request_id = scope["path"], new_request_id()
        rail, operation = self._paid.get(path, ("", ""))
        told = telemetry.Request(request_id, known_method(scope["method"]), rail, operation)
        scope.setdefault("state", {})["told"] = told

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                told.status = message["status"]
                own = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message["headers"], own, *COMMON_HEADERS]}
            await send(message)

        # Servers run each request in a context of its own, so what is bound here ends with it.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            # The router leaves its route in the scope; a path that has none is the caller's own text.
            told.route = path if rail else getattr(scope.get("route"), "path", None)
            telemetry.log_request(told)


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def known_method(method: str) -> str:
    """Return the method if it is a common one: the names that a log may hold are not the caller's to choose."""
    return method if method in _METHODS else "other"


class BugShield:
    """The layer around all that may have bugs: each gets its plain 500, which the layers around it complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            telemetry.logger().info("client disconnected")
        except Exception as error:  # noqa: BLE001 - a bug must not leave as anybody else's error page.
            telemetry.logger().error("unhandled", error=type(error).__name__, exc_info=_frames_only(error))
            told: telemetry.Request = scope["state"]["told"]
            if not told.status:
                bug = Internal("INTERNAL", "The service failed while it was answering.")
                told.code = bug.code
                await refuse(bug, told.request_id)(scope, receive, send)


class Cors(CORSMiddleware):
    """Starlette's CORS, out of the way where no browser asks; `COMMON_HEADERS` tell caches that answers vary by it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see the ASGI specification."""
        if scope["type"] == "http" and any(name == b"origin" for name, _ in scope["headers"]):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def _frames_only(error: Exception) -> Exception:
    """Return an error of the same type and place without its text, which may quote what the caller sent."""
    return Exception(type(error).__name__).with_traceback(error.__traceback__)
