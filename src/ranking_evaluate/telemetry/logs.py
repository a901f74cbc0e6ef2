"""JSON log lines on standard error, each with the id of the request that is running."""

from __future__ import annotations

import hashlib
import logging
import sys
from contextlib import suppress
from typing import BinaryIO, Final, cast

import orjson
import structlog
from structlog.typing import FilteringBoundLogger

KEY_DIGITS: Final = 16
"""How many hexadecimal digits of the SHA-256 of an Idempotency-Key a log line shows.

The books hold all 64. So many tell the keys of a year apart; the first characters of keys are alike by the thousand.
"""


def configure_logs(level: str) -> None:
    """Write lines from `level` upwards; what libraries warn of comes out in the same form."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(orjson.dumps, default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", _Unfailing(sys.stderr.buffer))),
    )
    root = logging.getLogger()
    if not any(isinstance(handler, _LibraryHandler) for handler in root.handlers):
        root.addHandler(_LibraryHandler(logging.WARNING))


class _Unfailing:
    """Standard error as the logger needs it: a line that cannot be written is lost, and nothing else is.

    A full disk or a log collector that is gone must not stop the record of a payment that has just moved.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, line: bytes) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(line)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class _LibraryHandler(logging.Handler):
    """Writes what a library logs as one of our lines, without arguments and error texts: they may quote anything."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        text = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        logger().log(record.levelno, "library", library=record.name, text=text.strip(), error=error)


def logger() -> FilteringBoundLogger:
    """Return the logger; what is bound to the running request is added to each line."""
    bound: FilteringBoundLogger = structlog.get_logger()
    return bound


def key_digest(key: str) -> str:
    """Return what a log line shows of an Idempotency-Key: by it all lines about one purchase are found."""
    return hashlib.sha256(key.encode()).hexdigest()[:KEY_DIGITS]
