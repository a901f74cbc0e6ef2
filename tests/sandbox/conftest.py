"""One x402 rail for the tests of a module: a real chain, a real token, the SDK's own facilitator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ranking_evaluate.sandbox.processes import Processes
from ranking_evaluate.sandbox.x402_rail import x402_rail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ranking_evaluate.sandbox import Rail


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def rail(processes: Processes) -> Iterator[Rail]:
    with x402_rail(processes) as started:
        yield started
