"""How often a node is asked in the background: evenly, so that nobody's plan of calls is used up at once."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """Lets so many calls a second begin, one after the other, whoever makes them.

    Args:
        per_second: How many.
    """

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        """Return when a call may begin."""
        now = time.monotonic()
        begins = max(now, self._next)
        self._next = begins + self._gap
        await asyncio.sleep(begins - now)
