"""The application: one paid route for each protocol and operation, and the free routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fastapi import FastAPI
from fastapi.middleware import Middleware
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.purge import keep_purging
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.contract.document import path_of
from ranking_evaluate.contract.errors import MethodNotAllowed, NotFound, ServiceError, Unavailable
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.http import attempts, documents, health, preflight
from ranking_evaluate.http.paid import Endpoint, PaidPaths, answer_refusal, seller
from ranking_evaluate.http.requests import client_of
from ranking_evaluate.http.responses import BugShield, Cors, Envelope
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.payments.protocol import PaymentProtocol
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from ranking_evaluate.release import VERSION

EXPOSED_HEADERS: Final = (
    "PAYMENT-REQUIRED",
    "PAYMENT-RESPONSE",
    "WWW-Authenticate",
    "Payment-Receipt",
    "Retry-After",
    "Idempotent-Replayed",
    "X-Request-Id",
)
ALLOWED_HEADERS: Final = ("Content-Type", "Idempotency-Key", "PAYMENT-SIGNATURE", "Authorization")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the application is made of; bootstrap puts it together.

    `wires` are all protocols that have routes, `protocols` the configured ones.
    """

    store: AttemptStore
    wires: tuple[Wire, ...]
    protocols: tuple[PaymentProtocol, ...]
    purchases: Purchases
    rates: Rates
    public_origin: str
    max_in_flight: int
    cors_origins: tuple[str, ...]
    security_contact: str | None = None


def build_app(parts: Parts) -> FastAPI:
    """Return the ASGI application; its lifespan opens store and protocols, and drains settlements at the end."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await parts.store.open()
        await parts.rates.open()
        purging = asyncio.create_task(keep_purging(parts.store), name="purge")
        for protocol in parts.protocols:
            await protocol.start()
        try:
            yield
        finally:
            await parts.purchases.drain()
            purging.cancel()
            for protocol in parts.protocols:
                await protocol.close()
            await parts.store.close()
            await parts.rates.close()

    gate = _Gate(parts.rates, parts.max_in_flight)
    app = _Service(
        title="ranking-evaluate",
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Around its routes, since the framework has an error page of its own.
        middleware=[Middleware(BugShield)],
        exception_handlers={ServiceError: _on_service_error, HTTPException: _on_http_exception},
    )

    async def attempt(request: Request) -> Response:
        return await attempts.show_attempt(request, parts.store)

    async def alive(request: Request) -> Response:
        return health.alive()

    async def ready(request: Request) -> Response:
        return await health.readiness(parts.store, parts.wires, parts.protocols)

    async def home(request: Request) -> Response:
        return await documents.show_home(parts.public_origin, parts.store, parts.wires, parts.protocols)

    async def security(request: Request) -> Response:
        return documents.show_security_contact(parts.security_contact, parts.public_origin)

    app.add_api_route("/v1/attempts", gate(attempt), methods=["GET"], include_in_schema=False)

    async def ask_or_declare(request: Request) -> Response:
        return await (preflight.ask if request.method == "POST" else preflight.declare)(request, parts.wires)

    app.add_api_route("/preflight", gate(ask_or_declare), methods=["GET", "POST"], include_in_schema=False)
    app.add_api_route("/healthz", alive, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/readyz", ready, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/", gate(home), methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/.well-known/security.txt", gate(security), methods=["GET", "HEAD"], include_in_schema=False)
    served = documents.documents(parts.public_origin, parts.wires, parts.protocols, parts.security_contact)
    for path, document in served.items():
        app.add_api_route(path, gate(_serve(document)), methods=["GET", "HEAD"], include_in_schema=False)
    app.layers = _layers(parts, gate, app.by_framework)
    return app


class _Service(FastAPI):
    """FastAPI within our own layers, which answer the paid paths before it sees them."""

    layers: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see the ASGI specification."""
        await self.layers(scope, receive, send)

    async def by_framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request by the framework."""
        await super().__call__(scope, receive, send)


def _serve(document: documents.Document) -> Endpoint:
    async def serve(request: Request) -> Response:
        return documents.serve(request, document)

    return serve


class _Gate:
    """Counts requests before anything of them is looked at: the rate of each client, and all that are in flight."""

    def __init__(self, rates: Rates, max_in_flight: int) -> None:
        self._rates = rates
        self._free = max_in_flight
        telemetry.IN_FLIGHT.set_function(lambda: max_in_flight - self._free)

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        async def gated(request: Request) -> Response:
            await self._rates.count_request(client_of(request))
            if self._free <= 0:
                raise Unavailable("OVERLOADED", "Too many requests are being served at once.", retry_after=1)
            self._free -= 1
            try:
                return await endpoint(request)
            finally:
                self._free += 1

        return gated


def _layers(parts: Parts, gate: _Gate, framework: ASGIApp) -> ASGIApp:
    """Return the layers around the framework's own, outermost last."""
    paid = {path_of(operation, wire.name): (wire, operation) for wire in parts.wires for operation in OPERATIONS}
    taken = {protocol.wire.name: protocol for protocol in parts.protocols}
    endpoints = {
        path: gate(
            seller(parts.purchases, parts.wires, wire, taken.get(wire.name), operation, parts.public_origin + path)
        )
        for path, (wire, operation) in paid.items()
    }
    app: ASGIApp = BugShield(PaidPaths(framework, endpoints))
    if parts.cors_origins:
        app = Cors(
            app,
            allow_origins=parts.cors_origins,
            allow_methods=("GET", "POST", "HEAD"),
            allow_headers=ALLOWED_HEADERS,
            expose_headers=EXPOSED_HEADERS,
        )
    return Envelope(app, {path: (wire.name, operation.id) for path, (wire, operation) in paid.items()})


async def _on_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)  # noqa: S101 - Starlette's handler type is wider than what it passes.
    return answer_refusal(request, error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses, in our own form."""
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette's handler type is wider than what it passes.
    if error.status_code == 405:
        allowed = {"allow": (error.headers or {}).get("Allow", "")}
        refused: ServiceError = MethodNotAllowed("METHOD_NOT_ALLOWED", "This route has other methods.", headers=allowed)
    else:
        refused = NotFound("NOT_FOUND", "No such route.")
    return answer_refusal(request, refused)
