"""A real Tempo chain for the tests of this folder, behind a proxy that can misbehave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.tempo_proxy import Tempo, running_tempo


@pytest.fixture(scope="session")
def tempo_session() -> Iterator[Tempo]:
    with running_tempo() as tempo:
        yield tempo


@pytest.fixture
def tempo(tempo_session: Tempo) -> Iterator[Tempo]:
    tempo_session.proxy.reset()
    yield tempo_session
    tempo_session.proxy.reset()
