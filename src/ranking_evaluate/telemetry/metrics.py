"""What Prometheus scrapes; docs/operate.md names the alarms on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)

from ranking_evaluate.release import VERSION

disable_created_metrics()  # type: ignore[no-untyped-call]  # The library left it so.

REGISTRY: Final = CollectorRegistry()

_RELEASE: Final = Gauge("ranking_evaluate_release", "The running release, always 1.", ["release"], registry=REGISTRY)
_RELEASE.labels(VERSION).set(1)

REQUESTS: Final = Counter(
    "ranking_evaluate_requests",
    "Answered requests; code is empty on success, protocol and operation are off the paid routes.",
    ["operation", "protocol", "status", "code"],
    registry=REGISTRY,
)
REQUEST_SECONDS: Final = Histogram(
    "ranking_evaluate_request_seconds",
    "Seconds from a request's head to the end of its answer.",
    ["operation", "protocol"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
    registry=REGISTRY,
)
IN_FLIGHT: Final = Gauge("ranking_evaluate_in_flight", "Requests being served.", registry=REGISTRY)
EVALUATIONS_WAITING: Final = Gauge(
    "ranking_evaluate_evaluations_waiting", "Inputs that wait for a worker process.", registry=REGISTRY
)
EVALUATIONS_REFUSED: Final = Counter(
    "ranking_evaluate_evaluations_refused",
    "Inputs that were not evaluated: full (too many waiting), late (not done in time), lost (the worker died).",
    ["why"],
    registry=REGISTRY,
)
CUT_OFF: Final = Counter(
    "ranking_evaluate_cut_off", "Connections that were cut off, and why.", ["reason"], registry=REGISTRY
)
_VERIFICATIONS: Final = Counter(
    "ranking_evaluate_verifications",
    "Verifications by what they came to: Verified, Rejected, Spent, Unreachable.",
    ["protocol", "outcome"],
    registry=REGISTRY,
)
_SETTLEMENTS: Final = Counter(
    "ranking_evaluate_settlements", "Settle calls by what they came to.", ["protocol", "outcome"], registry=REGISTRY
)
_SETTLE_SECONDS: Final = Histogram(
    "ranking_evaluate_settle_seconds",
    "Seconds of a settle call.",
    ["protocol"],
    buckets=(0.1, 0.3, 1, 2, 3, 5, 10, 20, 30, 60, 90, 120),
    registry=REGISTRY,
)
_EXTENSION_RESPONSES: Final = Counter(
    "ranking_evaluate_extension_responses",
    "What the facilitator said of an extension that it was sent; status other is any word of its own.",
    ["extension", "status"],
    registry=REGISTRY,
)
_SOLD: Final = Counter(
    "ranking_evaluate_sold_base_units",
    "Base units of the asset in payments that this process recorded as received.",
    ["protocol", "operation", "network", "asset"],
    registry=REGISTRY,
)
ALARMS: Final = Counter(
    "ranking_evaluate_alarms",
    "What an operator must look at: unrecorded_money, settled_after_release, replay_differs, no_transaction_hash.",
    ["what"],
    registry=REGISTRY,
)
UNCERTAIN: Final = Gauge(
    "ranking_evaluate_uncertain_attempts", "Attempts whose payment is uncertain.", registry=REGISTRY
)
UNCERTAIN_AGE: Final = Gauge(
    "ranking_evaluate_uncertain_oldest_seconds", "Age of the oldest of them, 0 without any.", registry=REGISTRY
)
UNCERTAIN_OVERDUE: Final = Gauge(
    "ranking_evaluate_uncertain_overdue_attempts",
    "Uncertain attempts that a person must look at: the chain has not decided in time, or is not asked.",
    registry=REGISTRY,
)
_ROUNDS: Final = Counter(
    "ranking_evaluate_reconcile_rounds",
    "Questions to a chain about an uncertain payment, by what came of them: landed, never landed, unknown, failed.",
    ["protocol", "outcome"],
    registry=REGISTRY,
)
_DECISIONS: Final = Counter(
    "ranking_evaluate_reconcile_decisions",
    "Uncertain payments that were decided by the chain: settled or released.",
    ["protocol", "state"],
    registry=REGISTRY,
)
_STORE_SECONDS: Final = Histogram(
    "ranking_evaluate_store_seconds",
    "Seconds of a call to the store, its commit included.",
    ["call"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10),
    registry=REGISTRY,
)
_STORE_FAILURES: Final = Counter(
    "ranking_evaluate_store_failures", "Calls that the store could not serve.", ["call"], registry=REGISTRY
)
CLOCK_OFFSET: Final = Gauge(
    "ranking_evaluate_clock_offset_seconds",
    "Seconds by which this machine's clock is ahead (negative: behind) of the facilitator's, or of a network's blocks.",
    ["against", "protocol"],
    registry=REGISTRY,
)
READY: Final = Gauge(
    "ranking_evaluate_ready",
    "Whether this part can be used now, as /readyz says: store, or a configured protocol.",
    ["part"],
    registry=REGISTRY,
)
RATE_STORAGE_FAILURES: Final = Counter(
    "ranking_evaluate_rate_storage_failures",
    "Times that the shared rate storage failed, after which each replica counted alone for a while.",
    registry=REGISTRY,
)


ALARM_NAMES: Final = ("unrecorded_money", "settled_after_release", "replay_differs", "no_transaction_hash")
"""What `alarm` may be about; each has a rule in deploy/prometheus/alerts.yml."""

_FAILURES: Final = {
    "500": ("INTERNAL",),
    "503": ("OVERLOADED", "PAYMENT_UNAVAILABLE", "STATE_UNAVAILABLE"),
    "429": ("RATE_LIMITED",),
}
_STORE_CALLS: Final = (
    "read",
    "reserve",
    "move",
    "find",
    "recent",
    "under_way",
    "audits",
    "purge",
    "sales",
    "sales_of",
    "refund",
    "check_writable",
)


def begin_series(protocols: Sequence[str], operations: Sequence[str]) -> None:
    """Show every series that an alarm looks at, at 0.

    A series that is born with its first event has not increased by then, so that no rule would see the first of a kind.
    """
    for what in ALARM_NAMES:
        ALARMS.labels(what)
    for why in ("full", "late", "lost"):
        EVALUATIONS_REFUSED.labels(why)
    for call in _STORE_CALLS:
        _STORE_FAILURES.labels(call)
    for protocol in protocols:
        for outcome in ("Verified", "Rejected", "Spent", "Unreachable"):
            _VERIFICATIONS.labels(protocol, outcome)
        for outcome in ("Settled", "Refused", "NotSent", "Uncertain"):
            _SETTLEMENTS.labels(protocol, outcome)
        for outcome in ("landed", "never landed", "unknown", "failed"):
            _ROUNDS.labels(protocol, outcome)
        for state in ("settled", "released"):
            _DECISIONS.labels(protocol, state)
    places = [("", ""), *((operation, protocol) for operation in operations for protocol in protocols)]
    for operation, protocol in places:
        for status, codes in _FAILURES.items():
            for code in codes:
                REQUESTS.labels(operation, protocol, status, code)


def count_verification(protocol: str, outcome: str) -> None:
    """Count what one verification came to."""
    _VERIFICATIONS.labels(protocol, outcome).inc()


def count_settlement(protocol: str, outcome: str, seconds: float) -> None:
    """Count one settle call."""
    _SETTLEMENTS.labels(protocol, outcome).inc()
    _SETTLE_SECONDS.labels(protocol).observe(seconds)


def count_extension_response(extension: str, status: str) -> None:
    """Count what a facilitator said of an extension."""
    _EXTENSION_RESPONSES.labels(extension, status).inc()


def count_sale(protocol: str, operation: str, network: str, asset: str, amount: int) -> None:
    """Count a payment that was recorded as received."""
    _SOLD.labels(protocol, operation, network, asset).inc(amount)


def count_round(protocol: str, outcome: str) -> None:
    """Count a question to a chain."""
    _ROUNDS.labels(protocol, outcome).inc()


def count_decision(protocol: str, state: str) -> None:
    """Count an uncertain payment that the chain decided."""
    _DECISIONS.labels(protocol, state).inc()


@contextmanager
def store_call(call: str) -> Iterator[None]:
    """Time one call of the store, and count it if it fails."""
    began = perf_counter()
    try:
        yield
    except Exception:
        _STORE_FAILURES.labels(call).inc()
        raise
    finally:
        _STORE_SECONDS.labels(call).observe(perf_counter() - began)


def serve_metrics(host: str, port: int) -> None:
    """Serve the metrics, in a thread; raises OSError when the address cannot be taken."""
    start_http_server(port, host, REGISTRY)
