"""A funded x402 for the tests of a module: a real chain, a real token, the SDK's own facilitator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ranking_evaluate.sandbox.processes import Processes
from ranking_evaluate.sandbox.wallets import new_wallet
from ranking_evaluate.sandbox.x402 import x402_protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ranking_evaluate.sandbox import FundedProtocol


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def funded(processes: Processes) -> Iterator[FundedProtocol]:
    with x402_protocol(processes, new_wallet()) as started:
        yield started
