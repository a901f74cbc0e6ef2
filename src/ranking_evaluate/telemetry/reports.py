"""What is both logged and counted: an answered request, and what an operator must look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from ranking_evaluate.telemetry.logs import logger
from ranking_evaluate.telemetry.metrics import ALARMS, REQUEST_SECONDS, REQUESTS
from ranking_evaluate.telemetry.repeats import MANY, REPEATS, Kind

SHED: Final = frozenset({"RATE_LIMITED", "OVERLOADED"})
"""The codes of what is refused because there is too much of it, however much more of it comes."""


@dataclass(slots=True)
class Request:
    """What is told of one request: a route of ours, never what the caller wrote.

    Attributes:
        client: Whom a rate counts; it is used to count alike answers, and is in no line.
        counted: Whether it was counted against its client's rate, which bounds how many lines there can be.
    """

    request_id: str
    method: str = "-"
    protocol: str = ""
    operation: str = ""
    route: str | None = None
    status: int = 0
    code: str = ""
    key_digest: str | None = None
    client: str = MANY
    counted: bool = False
    started: float = field(default_factory=perf_counter)


def log_request(request: Request) -> None:
    """Count an answered request, and write its line; what no rate bounds is told once a minute, with its number."""
    seconds = perf_counter() - request.started
    REQUESTS.labels(request.operation, request.protocol, request.status, request.code).inc()
    REQUEST_SECONDS.labels(request.operation, request.protocol).observe(seconds)
    if not request.counted or request.code in SHED:
        kind = Kind(request.method, request.route, request.status, request.code)
        if not REPEATS.is_first(kind, request.client, request.request_id):
            return
    told = {
        "request_id": request.request_id,
        "method": request.method,
        "route": request.route,
        "status": request.status,
        "code": request.code or None,
        "operation": request.operation or None,
        "protocol": request.protocol or None,
        "duration_ms": round(seconds * 1000, 1),
        "key_digest": request.key_digest,
    }
    logger().info("request", **{name: value for name, value in told.items() if value is not None})


def alarm(what: str, text: str, **facts: str | None) -> None:
    """Write an error line that an operator must see, and count it; `what` is one of `ALARM_NAMES`."""
    ALARMS.labels(what).inc()
    logger().error(text, alarm=what, **facts)
