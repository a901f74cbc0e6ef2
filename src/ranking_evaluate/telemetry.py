"""What an operator sees: structured log lines with a request id, and counters; never a body, an id or a credential."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from time import perf_counter
from typing import Final

import orjson
import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)

from ranking_evaluate.release import VERSION

LOOPBACK: Final = "127.0.0.1"

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

KEY_PREFIX: Final = 8
"""How many characters of an Idempotency-Key a log line shows."""

# Log lines.


def configure_logs(level: str) -> None:
    """Write JSON lines to standard error from `level` upwards; what libraries warn of comes out in the same form."""
    structlog.configure(
        processors=[_line],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
    )
    _bound.cache_clear()
    root = logging.getLogger()
    if not any(isinstance(handler, _Libraries) for handler in root.handlers):
        root.addHandler(_Libraries(logging.WARNING))


def _line(_: object, level: str, event: structlog.typing.EventDict) -> bytes:
    """Return a log line; the library's own chain of processors takes longer, and every request pays it."""
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(_, level, event)
    timestamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    bound = structlog.contextvars.get_contextvars()
    return orjson.dumps({**bound, **event, "level": level, "timestamp": timestamp}, default=str)


class _Libraries(logging.Handler):
    """Writes what a library logs as a line of ours, without its arguments and error texts: they may quote anything."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        text = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        logger().log(record.levelno, "library", library=record.name, text=text.strip(), error=error)


def logger() -> structlog.typing.FilteringBoundLogger:
    """Return the logger; what is bound to the running request is added to each line."""
    return _bound() if structlog.is_configured() else structlog.get_logger()


@cache
def _bound() -> structlog.typing.FilteringBoundLogger:
    """Return the configured logger, made once: the library would make one for every line."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind()
    return bound


def key_prefix(key: str) -> str:
    """Return the part of an Idempotency-Key that a log line may show."""
    return key[:KEY_PREFIX]


# Counters. Operators scrape them; docs/operate.md names the alarms on them.

disable_created_metrics()  # type: ignore[no-untyped-call]  # The library left it so.

REGISTRY: Final = CollectorRegistry()

_RELEASE: Final = Gauge("ranking_evaluate_release", "The running release, always 1.", ["release"], registry=REGISTRY)
_RELEASE.labels(VERSION).set(1)

_REQUESTS: Final = Counter(
    "ranking_evaluate_requests",
    "Answered requests; code is empty on success, rail and operation are off the paid routes.",
    ["operation", "rail", "status", "code"],
    registry=REGISTRY,
)
_REQUEST_SECONDS: Final = Histogram(
    "ranking_evaluate_request_seconds",
    "Seconds from a request's head to the end of its answer.",
    ["operation", "rail"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
    registry=REGISTRY,
)
IN_FLIGHT: Final = Gauge("ranking_evaluate_in_flight", "Requests being served.", registry=REGISTRY)
CUT_OFF: Final = Counter(
    "ranking_evaluate_cut_off", "Connections that were cut off, and why.", ["reason"], registry=REGISTRY
)
_SETTLEMENTS: Final = Counter(
    "ranking_evaluate_settlements", "Settle calls by what they came to.", ["rail", "outcome"], registry=REGISTRY
)
_SETTLE_SECONDS: Final = Histogram(
    "ranking_evaluate_settle_seconds",
    "Seconds of a settle call.",
    ["rail"],
    buckets=(0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 60, 90, 120),
    registry=REGISTRY,
)
_SOLD: Final = Counter(
    "ranking_evaluate_sold_base_units",
    "Base units of the asset in payments that this process recorded as received.",
    ["rail", "operation", "network", "asset"],
    registry=REGISTRY,
)
ALARMS: Final = Counter(
    "ranking_evaluate_alarms",
    "What an operator must look at: unrecorded_money, settled_after_release, replay_differs.",
    ["what"],
    registry=REGISTRY,
)
UNCERTAIN: Final = Gauge("ranking_evaluate_uncertain_attempts", "Attempts that an operator decides.", registry=REGISTRY)
UNCERTAIN_AGE: Final = Gauge(
    "ranking_evaluate_uncertain_oldest_seconds", "Age of the oldest of them, 0 without any.", registry=REGISTRY
)
_STORE_SECONDS: Final = Histogram(
    "ranking_evaluate_store_seconds",
    "Seconds of a call to the store, its commit included.",
    ["call"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10),
    registry=REGISTRY,
)
STORE_FAILURES: Final = Counter(
    "ranking_evaluate_store_failures", "Calls that the store could not serve.", ["call"], registry=REGISTRY
)
RATE_STORAGE_FAILURES: Final = Counter(
    "ranking_evaluate_rate_storage_failures",
    "Times that the shared rate storage failed, after which each replica counted alone for a while.",
    registry=REGISTRY,
)


@dataclass(slots=True)
class Request:
    """What is told of one request: a route of ours, never what the caller wrote."""

    request_id: str
    method: str = "-"
    rail: str = ""
    operation: str = ""
    route: str | None = None
    status: int = 0
    code: str = ""
    key_prefix: str | None = None
    started: float = field(default_factory=perf_counter)


# The library looks its children up under a lock; there are few of them, and none is named by a caller.


@cache
def _requests(operation: str, rail: str, status: int, code: str) -> Counter:
    return _REQUESTS.labels(operation, rail, str(status), code)


@cache
def _request_seconds(operation: str, rail: str) -> Histogram:
    return _REQUEST_SECONDS.labels(operation, rail)


@cache
def _store_seconds(call: str) -> Histogram:
    return _STORE_SECONDS.labels(call)


def log_request(request: Request) -> None:
    """Count an answered request, and write its one line."""
    seconds = perf_counter() - request.started
    _requests(request.operation, request.rail, request.status, request.code).inc()
    _request_seconds(request.operation, request.rail).observe(seconds)
    told = {
        "request_id": request.request_id,
        "method": request.method,
        "route": request.route,
        "status": request.status,
        "code": request.code or None,
        "operation": request.operation or None,
        "rail": request.rail or None,
        "duration_ms": round(seconds * 1000, 1),
        "key_prefix": request.key_prefix,
    }
    logger().info("request", **{name: value for name, value in told.items() if value is not None})


def count_settlement(rail: str, outcome: str, seconds: float) -> None:
    """Count one settle call."""
    _SETTLEMENTS.labels(rail, outcome).inc()
    _SETTLE_SECONDS.labels(rail).observe(seconds)


def count_sale(rail: str, operation: str, network: str, asset: str, amount: int) -> None:
    """Count a payment that was recorded as received."""
    _SOLD.labels(rail, operation, network, asset).inc(amount)


def alarm(what: str, text: str, **facts: str | None) -> None:
    """Write an error line that an operator must see, and count it."""
    ALARMS.labels(what).inc()
    logger().error(text, alarm=what, **facts)


class StoreCall:
    """Times one call of the store, in a `with`; a class, because a generator would take longer than the timing."""

    def __init__(self, call: str) -> None:
        self._call = call

    def __enter__(self) -> None:
        """Start."""
        self._started = perf_counter()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Count, and count a failure as one."""
        if error is not None:
            STORE_FAILURES.labels(self._call).inc()
        _store_seconds(self._call).observe(perf_counter() - self._started)


def serve_metrics(port: int) -> None:
    """Serve the counters on a port of the loopback interface, in a thread; raises OSError when it is taken."""
    start_http_server(port, LOOPBACK, REGISTRY)
