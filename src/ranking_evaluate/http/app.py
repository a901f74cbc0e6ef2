"""The application: one paid route for each protocol and operation, and the free routes."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fastapi import FastAPI
from fastapi.middleware import Middleware
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.purge import keep_purging
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.contract.errors import MethodNotAllowed, NotFound, ServiceError, Unavailable
from ranking_evaluate.http import attempts, documents, health, preflight
from ranking_evaluate.http.quote import quote
from ranking_evaluate.http.requests import check_media, read_body, read_headers, read_key
from ranking_evaluate.http.responses import BugShield, Envelope, deliver, refuse
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.order import Order
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
    """What the application is made of; bootstrap puts it together."""

    store: AttemptStore
    protocols: tuple[PaymentProtocol, ...]
    purchases: Purchases
    rates: Rates
    public_origin: str
    max_in_flight: int
    cors_origins: tuple[str, ...]
    security_contact: str | None = None


def build_app(parts: Parts) -> FastAPI:
    """Return the ASGI application; its lifespan opens the store and the rails, and drains settlements at the end."""

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

    app = FastAPI(
        title="ranking-evaluate",
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=_middleware(parts),
        exception_handlers={ServiceError: _on_service_error, HTTPException: _on_http_exception},
    )
    gate = _Gate(parts.rates, parts.max_in_flight)
    for protocol in parts.protocols:
        for operation in OPERATIONS:
            path = f"/v1/{protocol.name}/{operation.id}"
            endpoint = gate(_sell(parts, protocol, operation, parts.public_origin + path))
            app.router.routes.append(_PaidRoute(path, endpoint, methods=["POST", "GET", "HEAD"]))

    async def attempt(request: Request) -> Response:
        return await attempts.show_attempt(request, parts.store)

    async def alive(request: Request) -> Response:
        return health.alive()

    async def ready(request: Request) -> Response:
        return await health.readiness(parts.store, parts.protocols)

    async def home(request: Request) -> Response:
        return await documents.show_home(parts.public_origin, parts.store, parts.protocols)

    async def security(request: Request) -> Response:
        return documents.show_security_contact(parts.security_contact, parts.public_origin)

    app.add_api_route("/v1/attempts", gate(attempt), methods=["GET"], include_in_schema=False)
    app.add_api_route("/preflight", gate(_preflight), methods=["GET", "POST"], include_in_schema=False)
    app.add_api_route("/healthz", alive, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/readyz", ready, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/", gate(home), methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/.well-known/security.txt", gate(security), methods=["GET", "HEAD"], include_in_schema=False)
    for path, document in documents.documents(parts.public_origin, parts.protocols, parts.security_contact).items():
        app.add_api_route(path, gate(_serve(document)), methods=["GET", "HEAD"], include_in_schema=False)
    return app


class _PaidRoute(Route):
    """A route of Starlette's, which leaves out FastAPI's solving of parameters: a tenth of an unpaid request."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the match, with the route itself for the log line."""
        match, within = super().matches(scope)
        return match, {**within, "route": self}


Endpoint = Callable[[Request], Awaitable[Response]]


def _sell(parts: Parts, protocol: PaymentProtocol, operation: Operation[Any], url: str) -> Endpoint:
    async def sell(request: Request) -> Response:
        if request.method != "POST":
            await quote(request, parts.protocols, protocol, operation, url)
        headers = read_headers(request)
        check_media(headers)
        key = read_key(headers)
        request.state.told.key_prefix = telemetry.key_prefix(key)
        body = await read_body(request, headers)
        order = Order(
            operation=operation,
            protocol=protocol,
            key=key,
            url=url,
            body=body,
            headers=headers,
            client=client_of(request),
        )
        return deliver(await parts.purchases.buy(order))

    return sell


async def _preflight(request: Request) -> Response:
    return await (preflight.ask(request) if request.method == "POST" else preflight.declare(request))


def _serve(document: documents.Document) -> Endpoint:
    async def serve(request: Request) -> Response:
        return documents.serve(request, document)

    return serve


class _Gate:
    """Counts requests before anything of them is looked at: the rate of each client, and all that are in flight."""

    def __init__(self, rates: Rates, max_in_flight: int) -> None:
        self._rates = rates
        self._free = max_in_flight

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        async def gated(request: Request) -> Response:
            await self._rates.count_request(client_of(request))
            if self._free <= 0:
                raise Unavailable("OVERLOADED", "Too many requests are being served at once.", retry_after=1)
            self._free -= 1
            telemetry.IN_FLIGHT.inc()
            try:
                return await endpoint(request)
            finally:
                self._free += 1
                telemetry.IN_FLIGHT.dec()

        return gated


def client_of(request: Request) -> str:
    """Return whom a rate counts: the peer's address, and for IPv6 its /64, which one host usually owns whole."""
    return _counted(request.client.host if request.client else "unknown")


@lru_cache(maxsize=4096)
def _counted(host: str) -> str:
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


def _middleware(parts: Parts) -> list[Middleware]:
    paid = {
        f"/v1/{protocol.name}/{operation.id}": (protocol.name, operation.id)
        for protocol in parts.protocols
        for operation in OPERATIONS
    }
    layers = [Middleware(Envelope, paid=paid)]
    if parts.cors_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=parts.cors_origins,
                allow_methods=("GET", "POST", "HEAD"),
                allow_headers=ALLOWED_HEADERS,
                expose_headers=EXPOSED_HEADERS,
            )
        )
    layers.append(Middleware(BugShield))
    return layers


async def _on_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)  # noqa: S101 - Starlette's handler type is wider than what it passes.
    return _refuse(request, error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses, in our own form."""
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette's handler type is wider than what it passes.
    if error.status_code == 405:
        allowed = {"allow": (error.headers or {}).get("Allow", "")}
        refused: ServiceError = MethodNotAllowed("METHOD_NOT_ALLOWED", "This route has other methods.", headers=allowed)
    else:
        refused = NotFound("NOT_FOUND", "No such route.")
    return _refuse(request, refused)


def _refuse(request: Request, error: ServiceError) -> Response:
    request.state.told.code = error.code
    return refuse(error, request.state.request_id)
