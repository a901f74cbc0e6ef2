"""What an operator sees: structured log lines with a request id; never a body, an id, a credential or a whole key."""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

KEY_PREFIX: Final = 8
"""How many characters of an Idempotency-Key a log line shows."""


def configure_logs(level: str) -> None:
    """Write JSON lines to standard error from `level` upwards."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def logger() -> structlog.typing.FilteringBoundLogger:
    """Return the logger; what is bound to the running request is added to each line."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return bound


def key_prefix(key: str) -> str:
    """Return the part of an Idempotency-Key that a log line may show."""
    return key[:KEY_PREFIX]
