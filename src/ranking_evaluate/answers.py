"""The answers to the last bodies, for two minutes: a purchase sends its body at least twice, unpaid and then paid."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ranking_evaluate.contract.answer import Answer, answer
from ranking_evaluate.operations.operation import Operation

KEPT: Final = 64
"""Answers kept at most: with a body of up to 131,072 bytes and an answer of little more than 400,000 each, 34 MB."""

KEPT_SECONDS: Final = 120.0
"""How long one is kept, in memory alone: what x402 gives a client to pay."""


class Answers:
    """Evaluates, unless the same operation answered the same bytes a moment ago: operations are pure."""

    def __init__(self) -> None:
        # The oldest comes first.
        self._kept: dict[tuple[Operation[Any], bytes], tuple[float, Answer]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def answer(self, operation: Operation[Any], body: bytes) -> Answer:
        """Return the operation's answer to a request body, in a running event loop; refusals are not kept.

        Raises:
            OperationError: The body is refused.
        """
        asked = operation, body
        if (kept := self._kept.get(asked)) is not None:
            return kept[1]
        made = answer(operation, body)
        loop = asyncio.get_running_loop()
        self._kept[asked] = loop.time() + KEPT_SECONDS, made
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        if self._timer is None:
            self._timer = loop.call_later(KEPT_SECONDS, self._forget)
        return made

    def _forget(self) -> None:
        """Let go of what is old, and come back when the next one is."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for asked, (until, _) in list(self._kept.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._forget)
                return
            del self._kept[asked]
