"""What an operator sees: structured log lines and metrics; never a body, an id or a credential."""

from ranking_evaluate.telemetry.logs import configure_logs, key_digest, logger
from ranking_evaluate.telemetry.metrics import (
    CLOCK_OFFSET,
    CUT_OFF,
    EVALUATIONS_REFUSED,
    EVALUATIONS_WAITING,
    IN_FLIGHT,
    RATE_STORAGE_FAILURES,
    READY,
    UNCERTAIN,
    UNCERTAIN_AGE,
    UNCERTAIN_OVERDUE,
    begin_series,
    count_decision,
    count_extension_response,
    count_round,
    count_sale,
    count_settlement,
    serve_metrics,
    store_call,
)
from ranking_evaluate.telemetry.repeats import keep_telling_repeats
from ranking_evaluate.telemetry.reports import Request, alarm, log_request

__all__ = [
    "CLOCK_OFFSET",
    "CUT_OFF",
    "EVALUATIONS_REFUSED",
    "EVALUATIONS_WAITING",
    "IN_FLIGHT",
    "RATE_STORAGE_FAILURES",
    "READY",
    "UNCERTAIN",
    "UNCERTAIN_AGE",
    "UNCERTAIN_OVERDUE",
    "Request",
    "alarm",
    "begin_series",
    "configure_logs",
    "count_decision",
    "count_extension_response",
    "count_round",
    "count_sale",
    "count_settlement",
    "keep_telling_repeats",
    "key_digest",
    "log_request",
    "logger",
    "serve_metrics",
    "store_call",
]
