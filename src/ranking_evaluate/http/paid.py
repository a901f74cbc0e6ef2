"""The paid paths: a request in, an order to the walk, its delivery or refusal out.

They are served before the framework looks for a route: its own way to an endpoint is a fifth of an unpaid request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ranking_evaluate import telemetry
from ranking_evaluate.contract.errors import MethodNotAllowed, ServiceError
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.http.quote import quote
from ranking_evaluate.http.requests import check_media, client_of, read_body, read_headers, read_key
from ranking_evaluate.http.responses import deliver, refuse
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.order import Order
from ranking_evaluate.payments.protocol import PaymentProtocol
from ranking_evaluate.purchase import Purchases

Endpoint = Callable[[Request], Awaitable[Response]]

METHODS: Final = ("GET", "HEAD", "POST")


class PaidPaths:
    """Answers the paid paths, and passes every other request on.

    Args:
        app: Whom the others are passed on to.
        endpoints: What answers each path.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Endpoint]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see the ASGI specification."""
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            if request.method not in METHODS:
                raise _other_method()
            response = await endpoint(request)
        except ServiceError as error:
            response = answer_refusal(request, error)
        await response(scope, receive, send)


def seller(
    purchases: Purchases,
    wires: tuple[Wire, ...],
    wire: Wire,
    protocol: PaymentProtocol | None,
    operation: Operation[Any],
    url: str,
) -> Endpoint:
    """Return what sells one operation over one protocol at `url`; `protocol` is None where nobody configured it."""

    async def sell(request: Request) -> Response:
        if request.method != "POST":
            await quote(request, wires, protocol, operation, url)
        headers = read_headers(request)
        check_media(headers)
        key = read_key(headers)
        request.scope["state"]["told"].key_prefix = telemetry.key_prefix(key)
        body = await read_body(request, headers)
        order = Order(
            operation=operation,
            wire=wire,
            protocol=protocol,
            key=key,
            url=url,
            body=body,
            headers=headers,
            client=client_of(request),
        )
        return deliver(await purchases.buy(order))

    return sell


def _other_method() -> MethodNotAllowed:
    allowed = {"allow": ", ".join(METHODS)}
    return MethodNotAllowed("METHOD_NOT_ALLOWED", "This route has other methods.", headers=allowed)


def answer_refusal(request: Request, error: ServiceError) -> Response:
    """Return the problem document of a refusal, with its code in the log line."""
    told: telemetry.Request = request.scope["state"]["told"]
    told.code = error.code
    return refuse(error, told.request_id)
