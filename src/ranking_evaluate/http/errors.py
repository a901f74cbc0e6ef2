"""Errors -> answers: every error that leaves a route, or the router, becomes a problem document here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ranking_evaluate import telemetry
from ranking_evaluate.contract.errors import Internal, MethodNotAllowed, NotFound, ServiceError
from ranking_evaluate.evaluations.evaluations import HungUp
from ranking_evaluate.http.responses import refuse

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def answer_refusal(request: Request, error: ServiceError) -> Response:
    """Return the problem document of a refusal, and put its code into the log line."""
    told: telemetry.Request = request.state.told
    told.code = error.code
    return refuse(error, told.request_id, paid=bool(told.protocol))


def answer_bug(request: Request, error: Exception) -> Response:
    """Return the 500 of a bug, which is logged without its text: that may quote what the caller sent."""
    frames_only = Exception(type(error).__name__).with_traceback(error.__traceback__)
    telemetry.logger().error("unhandled", error=type(error).__name__, exc_info=frames_only)
    return answer_refusal(request, Internal("INTERNAL", "The service failed while it was answering."))


def guarded(handler: Handler) -> Handler:
    """Return a route's handler that answers its own bugs, within CORS; the middleware answers what breaks outside.

    An exception handler for `Exception` is too far out for that. Starlette runs it outside all middleware, so that its
    answer lacks our headers and those of CORS, and raises the error again, for which uvicorn closes the connection.
    """

    async def guarded_handler(request: Request) -> Response:
        try:
            return await handler(request)
        except (ServiceError, HTTPException, ClientDisconnect, HungUp):
            raise
        except Exception as error:  # noqa: BLE001 - a bug must not leave as anybody else's error page.
            return answer_bug(request, error)

    return guarded_handler


class GuardedRoute(APIRoute):
    """FastAPI's route, whose dependencies and serialisation are guarded like its endpoint."""

    def get_route_handler(self) -> Handler:
        """Return what answers a request."""
        return guarded(super().get_route_handler())


async def _on_service_error(request: Request, error: ServiceError) -> Response:
    return answer_refusal(request, error)


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    """Answer what the router refuses."""
    if error.status_code != 405:
        return answer_refusal(request, NotFound("NOT_FOUND", "No such route."))
    # The router names the methods of the first route with this path, which may have more than one.
    routes = (route for route in request.app.routes if route.path == request.scope["path"])
    methods = ", ".join(sorted({method for route in routes for method in route.methods}))
    refused = MethodNotAllowed("METHOD_NOT_ALLOWED", "This route has other methods.", headers={"allow": methods})
    return answer_refusal(request, refused)


async def _on_disconnect(request: Request, error: ClientDisconnect | HungUp) -> None:
    """Answer nothing: nobody is there."""
    telemetry.logger().info("client disconnected")


HANDLERS: Final[dict[int | type[Exception], Any]] = {
    ServiceError: _on_service_error,
    HTTPException: _on_http_exception,
    ClientDisconnect: _on_disconnect,
    HungUp: _on_disconnect,
}
"""The exception handlers of the application; Starlette's type for them knows neither an error's class nor None."""
