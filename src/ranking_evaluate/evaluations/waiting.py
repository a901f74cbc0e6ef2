"""Inputs that wait for a worker: clients in turn, so that nobody's many inputs stand before somebody's one."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Waits(Protocol):
    """What the queue looks at of what waits in it."""

    @property
    def client(self) -> str:
        """Whose turn it takes."""

    @property
    def counted(self) -> bool:
        """Whether it takes one of the places, and may lose it; what does not is always let in."""


Input = TypeVar("Input", bound=Waits)


class Full(Exception):
    """There is no place for this input."""


@dataclass(frozen=True, slots=True)
class Places:
    """How many may wait: of all clients together, and of one."""

    in_all: int
    per_client: int


class Queue(Generic[Input]):
    """A bounded queue with one line for each client.

    While it is full, a client with fewer inputs in it takes the last place of the one with the most: otherwise a few
    clients that fill it would keep everybody else out.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lines: OrderedDict[str, deque[Input]] = OrderedDict()
        self._taken = 0

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def put(self, waiting: Input) -> Input | None:
        """Let an input wait; return the one that lost its place to it, if any.

        Raises:
            Full: There is no place for it.
        """
        loser = None
        if waiting.counted:
            own = self._counted(waiting.client)
            if own >= self._places.per_client:
                raise Full
            if self._taken >= self._places.in_all:
                greediest = max(self._lines, key=self._counted)
                if self._counted(greediest) <= own + 1:
                    raise Full
                loser = next(one for one in reversed(self._lines[greediest]) if one.counted)
                self.remove(loser)
            self._taken += 1
        self._lines.setdefault(waiting.client, deque()).append(waiting)
        return loser

    def next(self, busy: Container[str]) -> Input | None:
        """Take out the first input of the client whose turn it is; clients that are `busy` are passed over."""
        for client, line in self._lines.items():
            if client not in busy:
                waiting = line[0]
                self._lines.move_to_end(client)
                self.remove(waiting)
                return waiting
        return None

    def remove(self, waiting: Input) -> None:
        """Take out an input, wherever it stands; one that is not there is none to take."""
        line = self._lines.get(waiting.client, deque[Input]())
        if waiting in line:
            line.remove(waiting)
            self._taken -= waiting.counted
            if not line:
                del self._lines[waiting.client]

    def _counted(self, client: str) -> int:
        return sum(waiting.counted for waiting in self._lines.get(client, ()))
