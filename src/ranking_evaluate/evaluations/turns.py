"""What is ready at once is spread over turns of the event loop, so that what arrives meanwhile is served in between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from ranking_evaluate.evaluations.waiting import Places, Queue

MOST: Final = 16
"""Pieces of work of at most 2 ms each, and mostly of a tenth of that, that begin in one turn."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    client: str
    begin: asyncio.Future[None]
    counted: bool = False


class Turns:
    """Lets so many pieces of work begin in one turn of the loop; who has to wait is let in clients in turn.

    Hundreds of requests may be ready at once. Without this the loop runs them all before it looks at a socket or a
    timer again, and one client's many stand before another one's first.
    """

    def __init__(self) -> None:
        self._left = MOST
        self._waiting = Queue[_Waiting](Places(in_all=0, per_client=0))

    async def begin(self, client: str) -> None:
        """Return when a piece of work may begin: at once, unless this turn has had its share."""
        loop = asyncio.get_running_loop()
        if self._left == MOST:
            loop.call_soon(self._next_turn)
        if self._left:
            self._left -= 1
            return
        waiting = _Waiting(client, loop.create_future())
        self._waiting.put(waiting)
        try:
            await waiting.begin
        except asyncio.CancelledError:
            self._waiting.remove(waiting)
            raise

    def _next_turn(self) -> None:
        self._left = MOST
        while self._left and (waiting := self._waiting.next(busy=())):
            self._left -= 1
            if not waiting.begin.done():
                waiting.begin.set_result(None)
        if self._left < MOST:
            asyncio.get_running_loop().call_soon(self._next_turn)
