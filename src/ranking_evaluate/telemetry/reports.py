"""What is both logged and counted: an answered request, and what an operator must look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from ranking_evaluate.telemetry.logs import logger
from ranking_evaluate.telemetry.metrics import ALARMS, REQUEST_SECONDS, REQUESTS


@dataclass(slots=True)
class Request:
    """What is told of one request: a route of ours, never what the caller wrote."""

    request_id: str
    method: str = "-"
    protocol: str = ""
    operation: str = ""
    route: str | None = None
    status: int = 0
    code: str = ""
    key_prefix: str | None = None
    started: float = field(default_factory=perf_counter)


def log_request(request: Request) -> None:
    """Count an answered request, and write its one line."""
    seconds = perf_counter() - request.started
    REQUESTS.labels(request.operation, request.protocol, request.status, request.code).inc()
    REQUEST_SECONDS.labels(request.operation, request.protocol).observe(seconds)
    told = {
        "request_id": request.request_id,
        "method": request.method,
        "route": request.route,
        "status": request.status,
        "code": request.code or None,
        "operation": request.operation or None,
        "protocol": request.protocol or None,
        "duration_ms": round(seconds * 1000, 1),
        "key_prefix": request.key_prefix,
    }
    logger().info("request", **{name: value for name, value in told.items() if value is not None})


def alarm(what: str, text: str, **facts: str | None) -> None:
    """Write an error line that an operator must see, and count it."""
    ALARMS.labels(what).inc()
    logger().error(text, alarm=what, **facts)
