"""One served process for most of the hostile tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.service import Neighbourhood, Service, neighbourhood


@pytest.fixture(scope="session")
def place() -> Iterator[Neighbourhood]:
    with neighbourhood() as found:
        yield found


@pytest.fixture(scope="session")
def service(place: Neighbourhood) -> Iterator[Service]:
    with place.running("hostile") as started:
        yield started
