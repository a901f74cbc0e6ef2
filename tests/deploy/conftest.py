"""Services with both protocols that stand at a usual and at the longest public origin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.heads import LONGEST_ORIGIN, USUAL_ORIGIN
from tests.hostile.service import Neighbourhood, Service, neighbourhood


@pytest.fixture(scope="session")
def place() -> Iterator[Neighbourhood]:
    with neighbourhood() as found:
        yield found


@pytest.fixture(scope="session")
def usual(place: Neighbourhood) -> Iterator[Service]:
    with place.running("usual", PUBLIC_ORIGIN=USUAL_ORIGIN) as started:
        yield started


@pytest.fixture(scope="session")
def longest(place: Neighbourhood) -> Iterator[Service]:
    with place.running("longest", PUBLIC_ORIGIN=LONGEST_ORIGIN) as started:
        yield started
