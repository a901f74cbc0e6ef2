"""A provider that refuses every call for reasons of its own, such as an unpaid bill, sells nothing for a while.

Without it, each buyer whose credential such a facilitator verified and then refused to settle would be left with an
uncertain payment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ranking_evaluate import telemetry
from ranking_evaluate.payments.protocol import Readiness

IN_A_ROW: Final = 3
"""How many calls of one kind a provider refuses for reasons of its own before it is not ready."""

PAUSE: Final = 60.0
"""Seconds after which one more call is tried; if it is refused as well, the next pause begins at once."""


@dataclass(slots=True)
class _Row:
    refused: int = 0
    paused_until: float = 0.0


class Refusing:
    """Counts what one provider refuses for reasons of its own.

    Each kind of call has a row of its own: an unpaid bill was seen to fail /settle alone, so that a verification that
    succeeds says nothing of it.

    Args:
        provider: What it is called in reasons, such as "the facilitator".
        clock: Seconds that only go forward.
    """

    def __init__(self, provider: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._clock = clock
        self._rows: dict[str, _Row] = {}

    def refused(self, call: str, code: str) -> None:
        """Count a refusal; `code` is the provider's own word for it."""
        row = self._rows.setdefault(call, _Row())
        row.refused += 1
        if row.refused >= IN_A_ROW:
            row.paused_until = self._clock() + PAUSE
            telemetry.logger().error(
                "a provider cannot be used", provider=self._provider, reason=self._words, cause=f"{call}: {code}"
            )

    def answered(self, call: str) -> None:
        """Note that the provider has answered a call, whatever it said."""
        row = self._rows.pop(call, None)
        if row is not None and row.refused >= IN_A_ROW:
            telemetry.logger().info("a provider can be used again", provider=self._provider)

    def ready(self) -> Readiness:
        """Return whether calls are made now, and why not, in words that may be published."""
        now = self._clock()
        paused = any(row.paused_until > now for row in self._rows.values())
        return Readiness(not paused, self._words if paused else None)

    @property
    def _words(self) -> str:
        return f"{self._provider} refuses every call for reasons of its own"
