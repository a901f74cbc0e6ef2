"""How the free routes are registered: HEAD wherever GET is, and an operationId that a program can be named by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from ranking_evaluate.http.errors import GuardedRoute


class FreeRouter(APIRouter):
    """FastAPI's router, with what all free routes have in common; `options` are its own."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - the framework's options.
        super().__init__(route_class=GuardedRoute, generate_unique_id_function=_operation_id, **options)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401
        """Add a route, and of GET its HEAD, which OpenAPI leaves out: what it answers is described with GET."""
        super().add_api_route(path, endpoint, **options)
        if options.get("methods") == ["GET"]:
            super().add_api_route(path, endpoint, **{**options, "methods": ["HEAD"], "include_in_schema": False})


def _operation_id(route: APIRoute) -> str:
    """Return the route's name; the framework's own id would repeat path and method."""
    return route.name.replace("_", "-")
