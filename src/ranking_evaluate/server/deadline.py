"""A deadline that can be set, moved and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """A timer of which at most one runs.

    Args:
        loop: The running event loop.
        overdue: What is called when the deadline passes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, overdue: Callable[[], None]) -> None:
        self._loop = loop
        self._overdue = overdue
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Return whether the timer runs."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Start the timer, or start it anew."""
        self.cancel()
        self._timer = self._loop.call_later(seconds, self._expire)

    def cancel(self) -> None:
        """Stop the timer, if it runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._overdue()
