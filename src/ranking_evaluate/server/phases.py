"""What a connection does with the bytes that arrive, as one table: phases, events, and the phase after each event.

There is no phase for what is written, because the two directions overlap: a caller may send a request before it has the
answer to the last one, and an application may answer before a body has ended. uvicorn writes the answers one by one in
the order of their requests; `connection.py` adds a deadline for the caller to take them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class Phase(Enum):
    """What happens to the bytes that arrive."""

    WAITING = auto()
    """Nothing of the next request has arrived."""

    READING_HEAD = auto()
    READING_BODY = auto()

    IGNORING = auto()
    """Bytes are dropped. The answers that are owed are written, then the connection ends."""

    LINGERING = auto()
    """Everything is written and our half is closed. Bytes are dropped until the caller stops sending."""

    CLOSING = auto()
    """Everything is written, and the caller is not sending. The connection closes as soon as the caller has it all."""

    CLOSED = auto()


class Event(Enum):
    """What can happen to a connection."""

    REQUEST_BEGINS = auto()
    HEAD_ENDS = auto()
    REQUEST_ENDS = auto()

    STOP_READING = auto()
    """What arrives from here on cannot be understood, or is not wanted."""

    LAST_WRITE = auto()
    """Nothing more will be written."""

    LOST = auto()
    """The connection is gone, from either side."""


MOVES: Final[Mapping[tuple[Phase, Event], Phase]] = {
    (Phase.WAITING, Event.REQUEST_BEGINS): Phase.READING_HEAD,
    (Phase.READING_HEAD, Event.HEAD_ENDS): Phase.READING_BODY,
    (Phase.READING_BODY, Event.REQUEST_ENDS): Phase.WAITING,
    (Phase.WAITING, Event.STOP_READING): Phase.IGNORING,
    (Phase.READING_HEAD, Event.STOP_READING): Phase.IGNORING,
    (Phase.READING_BODY, Event.STOP_READING): Phase.IGNORING,
    (Phase.WAITING, Event.LAST_WRITE): Phase.CLOSING,
    (Phase.READING_HEAD, Event.LAST_WRITE): Phase.LINGERING,
    (Phase.READING_BODY, Event.LAST_WRITE): Phase.LINGERING,
    (Phase.IGNORING, Event.LAST_WRITE): Phase.LINGERING,
    (Phase.WAITING, Event.LOST): Phase.CLOSED,
    (Phase.READING_HEAD, Event.LOST): Phase.CLOSED,
    (Phase.READING_BODY, Event.LOST): Phase.CLOSED,
    (Phase.IGNORING, Event.LOST): Phase.CLOSED,
    (Phase.LINGERING, Event.LOST): Phase.CLOSED,
    (Phase.CLOSING, Event.LOST): Phase.CLOSED,
}
"""Every legal move. An event that is not here for a phase is a bug in `connection.py`, and a KeyError."""

READING: Final = frozenset({Phase.WAITING, Phase.READING_HEAD, Phase.READING_BODY})
"""The phases in which bytes are parsed."""

ENDED: Final = frozenset({Phase.LINGERING, Phase.CLOSING, Phase.CLOSED})
"""The phases in which nothing is written any more."""
