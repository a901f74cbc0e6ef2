"""The table of a connection's phases: every phase with every event."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from ranking_evaluate.server.phases import ENDED, MOVES, READING, Event, Phase

GRID: Final = """
               REQUEST_BEGINS  HEAD_ENDS     REQUEST_ENDS  STOP_READING  LAST_WRITE  LOST
WAITING        READING_HEAD    -             -             IGNORING      CLOSING     CLOSED
READING_HEAD   -               READING_BODY  -             IGNORING      LINGERING   CLOSED
READING_BODY   -               -             WAITING       IGNORING      LINGERING   CLOSED
IGNORING       -               -             -             -             LINGERING   CLOSED
LINGERING      -               -             -             -             -           CLOSED
CLOSING        -               -             -             -             -           CLOSED
CLOSED         -               -             -             -             -           -
"""


def grid() -> dict[tuple[str, str], str]:
    events, *rows = (line.split() for line in GRID.strip().splitlines())
    return {(phase, event): after for phase, *row in rows for event, after in zip(events, row, strict=True)}


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, Event)), ids=lambda one: one.name)
def test_each_event_leads_where_the_grid_says(phase: Phase, event: Event) -> None:
    after = MOVES.get((phase, event))
    assert (after.name if after else "-") == grid()[phase.name, event.name]


def test_nothing_leads_back_to_reading_once_it_has_stopped() -> None:
    assert {after for (phase, _), after in MOVES.items() if phase in ENDED} == {Phase.CLOSED}
    assert not {after for (phase, _), after in MOVES.items() if phase is Phase.IGNORING} & READING
