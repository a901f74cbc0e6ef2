"""How far this machine's clock is from those by which payments are judged: the facilitator's, and the chain's.

A clock that is off has every payment refused while all else looks well. Nothing here stands in a buyer's way: answers
that come anyway tell the time in passing, a question goes out once a minute, and what is found is only told.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from ranking_evaluate import telemetry
from ranking_evaluate.deadline import within
from ranking_evaluate.payments.json_rpc import JsonRpc, integer

WARN_SECONDS: Final = 5.0
"""How far off a clock may be without a word: more than any machine whose time is synchronised."""

LOOK_EVERY: Final = 60.0
"""Seconds between two questions to a clock that nothing was heard of meanwhile."""

LOOK_SECONDS: Final = 30.0
"""Seconds that one look may take in all."""

FORGET_AFTER: Final = 300.0
"""Seconds after which what was heard last is not said any more."""

BLOCK_PAUSE: Final = 2.0
"""Seconds between two looks at the newest block."""

BLOCK_LOOKS: Final = 8
"""How often the newest block is looked at until another one has come: for longer than any chain takes for one."""

FACILITATOR: Final = "facilitator"


class Limits(NamedTuple):
    """Seconds behind, and ahead, beyond which payments are refused."""

    behind: float
    ahead: float


@dataclass(slots=True)
class _Heard:
    ahead: float
    at: float
    level: int = 0


class ClockWatch:
    """What is known of this machine's clock beside those of one protocol.

    Args:
        protocol: The protocol's name, for lines and metrics.
        limits: How far off it may be before payments are refused.
        looks: For each clock that is compared, how to ask it: the seconds by which ours is ahead, or None where the
            answer does not tell, or was noted in passing.
        monotonic: Seconds that only grow.
    """

    def __init__(
        self,
        protocol: str,
        limits: Limits,
        looks: Mapping[str, Callable[[], Awaitable[float | None]]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._protocol = protocol
        self._limits = limits
        self._looks = looks
        self._monotonic = monotonic
        self._heard: dict[str, _Heard] = {}
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look at the clocks, in the background."""
        self._watching = asyncio.create_task(self._watch(), name=f"look at the clocks of {self._protocol}")

    async def stop(self) -> None:
        """Stop looking."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def note(self, against: str, ahead: float) -> None:
        """Note by how many seconds our clock is ahead of another, and tell when that begins or ceases to matter."""
        before = self._heard.get(against)
        now = _Heard(ahead, self._monotonic(), self._level(ahead))
        self._heard[against] = now
        telemetry.CLOCK_OFFSET.labels(against, self._protocol).set(ahead)
        if now.level == (before.level if before else 0):
            return
        told = {"protocol": self._protocol, "against": against, "seconds_ahead": round(ahead, 1)}
        if now.level:
            telemetry.logger().warning("the clock is off", **told, refuses_payments=now.level > 1)
        else:
            telemetry.logger().info("the clock is right again", **told)

    def fault(self) -> str | None:
        """Return how far off the clock is, in words that may be published, where payments are refused for it.

        It changes nothing, so that the thread that serves metrics may ask as well.
        """
        oldest = self._monotonic() - FORGET_AFTER
        lately = {against: heard.ahead for against, heard in list(self._heard.items()) if heard.at >= oldest}
        refused = [against for against, ahead in lately.items() if self.refuses(ahead)]
        worst = max(refused, key=lambda against: abs(lately[against]), default=None)
        return None if worst is None else in_words(worst, lately[worst])

    @property
    def compared(self) -> tuple[str, ...]:
        """The clocks that ours is compared with."""
        return tuple(self._looks)

    def refuses(self, ahead: float) -> bool:
        """Return whether payments are refused with a clock that is this far ahead."""
        return self._level(ahead) > 1

    def offsets(self) -> dict[str, float]:
        """Return the seconds by which our clock is ahead of each clock that was heard of lately."""
        self._forget()
        return {against: heard.ahead for against, heard in self._heard.items()}

    async def look(self) -> None:
        """Ask every clock that nothing was heard of lately; one that does not answer tells nothing."""
        for against, ask in self._looks.items():
            heard = self._heard.get(against)
            if heard is not None and self._monotonic() - heard.at < LOOK_EVERY:
                continue
            # What is wrong with a provider is told elsewhere: this is about the time alone.
            with contextlib.suppress(Exception):
                async with within(LOOK_SECONDS):
                    ahead = await ask()
                if ahead is not None:
                    self.note(against, ahead)

    async def _watch(self) -> None:
        while True:
            await self.look()
            self._forget()
            await asyncio.sleep(LOOK_EVERY)

    def _forget(self) -> None:
        oldest = self._monotonic() - FORGET_AFTER
        for against in [against for against, heard in self._heard.items() if heard.at < oldest]:
            del self._heard[against]
            telemetry.CLOCK_OFFSET.labels(against, self._protocol).set(math.nan)

    def _level(self, ahead: float) -> int:
        """Return 0 for a clock that is right, 1 for one that is off, 2 for one that has payments refused."""
        if not -self._limits.behind < ahead < self._limits.ahead:
            return 2
        return int(abs(ahead) > WARN_SECONDS)


def in_words(against: str, ahead: float) -> str:
    """Return where our clock stands beside another, as a sentence without its full stop."""
    whose = "the facilitator's" if against == FACILITATOR else f"that of {against}"
    if abs(ahead) < 1:
        return f"this machine's clock agrees with {whose}"
    return f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {whose}"


def ahead_of_date(date: str | None, age: str | None, sent: float, received: float) -> float | None:
    """Return the seconds by which our clock is certainly ahead of a Date header; None where it does not tell.

    The answer was made between `sent` and `received`, and its date has whole seconds: only what lies outside of that
    counts. One with an Age comes out of a cache.
    """
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return None if age is not None else _outside(theirs, sent, received)


async def ahead_of_chain(
    rpc: JsonRpc, clock: Callable[[], float] = time.time, pause: float = BLOCK_PAUSE
) -> float | None:
    """Return the seconds by which our clock is certainly ahead of a chain's; None where its blocks do not tell.

    A block from the future says that we are behind. That we are ahead only one says which was not there a moment
    before: a chain may have had nothing to do for long.

    Raises:
        NodeError: The node gives no usable answer.
    """
    seen: int | None = None
    before = clock()
    for _ in range(BLOCK_LOOKS):
        asked = clock()
        block = await rpc.block("latest")
        received, made, number = clock(), integer(block.get("timestamp")), integer(block.get("number"))
        if made > received or (seen is not None and number > seen):
            return _outside(made, before, received)
        seen, before = number, asked
        await asyncio.sleep(pause)
    return None


def _outside(theirs: float, earliest: float, latest: float) -> float:
    """Return how far our time is past an instant in whole seconds; 0 where it may be the same."""
    return max(earliest - theirs - 1, 0.0) or min(latest - theirs, 0.0)
