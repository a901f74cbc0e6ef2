"""Answers that no rate bounds, told once a minute: one line for the first of a kind and client, one for the rest.

A caller gets such answers as fast as the machine gives them. Each as a line of its own, one address that is over its
rate writes 100 GB a day.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ranking_evaluate.telemetry.logs import logger

SECONDS: Final = 60.0

MOST: Final = 256
"""Kinds of clients in one minute that are told apart; what comes beyond is told together, by its kind."""

MANY: Final = "many"
"""Stands for the clients beyond `MOST`, and for those that were not known when the server refused them."""


class Kind(NamedTuple):
    """What makes two answers alike. All four are words of ours: of a caller's own there would be no end."""

    method: str
    route: str | None
    status: int
    code: str


@dataclass(slots=True)
class _Counted:
    """The first answer's request, when it was given, and how many like it followed."""

    request_id: str
    since: float
    more: int = 0


class Repeats:
    """Counts answers by kind and client, within bounds whatever callers do.

    Args:
        most: How many pairs of kind and client are told apart until the next `write`.
        clock: Seconds that only grow.
    """

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._counted: dict[tuple[Kind, str], _Counted] = {}

    def is_first(self, kind: Kind, client: str, request_id: str) -> bool:
        """Count one answer; return whether it is the first of its kind and client, and so has a line of its own."""
        if (kind, client) not in self._counted and len(self._counted) >= self._most:
            client = MANY
        counted = self._counted.get((kind, client))
        if counted is None:
            self._counted[kind, client] = _Counted(request_id, self._clock())
            return True
        counted.more += 1
        return False

    def write(self) -> None:
        """Write how many answers followed each first one, and begin anew."""
        counted, self._counted = self._counted, {}
        for (kind, client), one in counted.items():
            if one.more:
                told = {name: value for name, value in kind._asdict().items() if value}
                # Addresses are in no line; the first answer's id tells one client's number from another's.
                logger().info(
                    "more requests like this",
                    request_id=one.request_id,
                    **told,
                    clients="many" if client == MANY else "one",
                    more=one.more,
                    seconds=round(self._clock() - one.since, 1),
                )


REPEATS: Final = Repeats()


async def keep_telling_repeats(seconds: float = SECONDS) -> None:
    """Write the numbers now and then until cancelled, and those that are left at the end."""
    try:
        while True:
            await asyncio.sleep(seconds)
            REPEATS.write()
    finally:
        REPEATS.write()
