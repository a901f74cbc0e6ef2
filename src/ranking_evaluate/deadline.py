"""Deadlines that hold nobody to blame for a loop that comes late: what has arrived in time is read before one passes.

A loop that was held up finds the timer and the answer at the same moment, and would run the timer first. So a deadline
passes only after one more look, in which the loop was on time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

LAST_LOOK: Final = 0.1
"""Seconds beyond its time for which a deadline lets the loop read what has arrived; a timer later than that is late."""

MOST_GIVEN_BACK: Final = 1.0
"""Seconds, of those for which a late loop was away, that the other side gets to say the rest of what it has to say."""

MOST_LOOKS: Final = 20
"""How often a deadline is put off by a loop that comes late again and again."""


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
        self._due = 0.0
        self._looks = 0

    @property
    def is_set(self) -> bool:
        """Return whether the timer runs."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Start the timer, or start it anew."""
        self.cancel()
        self._looks = 0
        self._wait(seconds)

    def cancel(self) -> None:
        """Stop the timer, if it runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        # Not the loop's own time, which stands still while the loop is held up.
        self._due = time.monotonic() + seconds
        self._timer = self._loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        late = time.monotonic() - self._due
        if self._looks == 0 or (late > LAST_LOOK and self._looks < MOST_LOOKS):
            self._looks += 1
            self._wait(min(max(late, LAST_LOOK), MOST_GIVEN_BACK))
        else:
            self._timer = None
            self._overdue()


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Cancel the block when its time is over, and raise TimeoutError; like `asyncio.timeout`, after one more look."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        deadline = Deadline(loop, lambda: limit.reschedule(loop.time()))
        deadline.set(seconds)
        try:
            yield
        finally:
            deadline.cancel()
