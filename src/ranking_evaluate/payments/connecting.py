"""Asking a protocol's provider until it can be used; one that is down at the start is no reason not to start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ranking_evaluate import telemetry
from ranking_evaluate.payments.protocol import Readiness

RETRY_SECONDS: Final = 5.0
"""How often a provider that could not be used is asked again."""


class Obstacle(NamedTuple):
    """Why a provider cannot be used: `words` for everybody, the `cause` for the operator's log."""

    words: str
    cause: str


class Connecting:
    """Holds whether a provider can be used, and goes on asking in the background while it cannot.

    Args:
        provider: What it is called in reasons, such as "the facilitator".
        connect: Asks it once; returns None when it can be used, or why not.
    """

    def __init__(self, provider: str, connect: Callable[[], Awaitable[Obstacle | None]]) -> None:
        self._provider = provider
        self._connect = connect
        self._obstacle: Obstacle | None = Obstacle(f"{provider} has not been asked yet", "")
        self._asking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask once, and then again in the background until it can be used."""
        await self._ask()
        if self._obstacle is not None:
            self._asking = asyncio.create_task(self._ask_again(), name=f"ask {self._provider} again")

    async def stop(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    def ready(self) -> Readiness:
        """Return whether it could be used when it was last asked, and why not, in words that may be published."""
        return Readiness(self._obstacle is None, None if self._obstacle is None else self._obstacle.words)

    async def _ask(self) -> None:
        known, self._obstacle = self._obstacle, await self._connect()
        if self._obstacle is not None and self._obstacle != known:
            telemetry.logger().error(
                "a provider cannot be used",
                provider=self._provider,
                reason=self._obstacle.words,
                cause=self._obstacle.cause,
            )

    async def _ask_again(self) -> None:
        while self._obstacle is not None:
            await asyncio.sleep(RETRY_SECONDS)
            await self._ask()
        telemetry.logger().info("a provider can be used again", provider=self._provider)
