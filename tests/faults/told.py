"""The answers that the fault matrices speak of: a status, and the code of a problem."""

from __future__ import annotations

from typing import Final

Told = tuple[int, str | None]

SOLD: Final[Told] = (200, None)
REQUIRED: Final[Told] = (402, "PAYMENT_REQUIRED")
REJECTED: Final[Told] = (402, "PAYMENT_REJECTED")
CONFLICT: Final[Told] = (409, "IDEMPOTENCY_CONFLICT")
IN_PROGRESS: Final[Told] = (409, "PAYMENT_IN_PROGRESS")
UNKNOWN: Final[Told] = (409, "PAYMENT_UNCERTAIN")
MALFORMED: Final[Told] = (400, "PAYMENT_MALFORMED")
UNAVAILABLE: Final[Told] = (503, "PAYMENT_UNAVAILABLE")
