"""A process that stands still while its providers answer: what they said in time counts, over real sockets.

The process is suspended, so its deadlines have passed when it goes on, and the answers lie in its sockets.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from signal import SIGCONT, SIGSTOP
from typing import Final

import pytest

from ranking_evaluate.sandbox.processes import Processes
from tests.faults.facilitator import Call, FaultyFacilitator, ledger_only
from tests.hostile.service import NETWORK, Neighbourhood, Service, buyer, node
from tests.judges.x402_buyer import new_key

TAKES: Final = 0.4
"""Seconds that the facilitator takes for an answer: less than the deadline of a second."""

SUSPENDED: Final = 2.5


class Moments:
    """A facilitator that takes a moment for each answer, and says when it was asked."""

    def __init__(self) -> None:
        self.asked = {path: threading.Event() for path in ("/verify", "/settle")}
        self._call = ledger_only(NETWORK)

    def call(self) -> Call:
        def call(path: str, body: bytes) -> tuple[int, bytes]:
            if path in self.asked:
                self.asked[path].set()
                time.sleep(TAKES)
            return self._call(path, body)

        return call


@pytest.fixture(scope="module")
def moments() -> Moments:
    return Moments()


@pytest.fixture(scope="module")
def service(moments: Moments) -> Iterator[Service]:
    processes = Processes()
    try:
        with FaultyFacilitator(moments.call()) as facilitator, node() as url:
            place = Neighbourhood(processes, facilitator, url)
            with place.running("late", VERIFY_TIMEOUT="1", SETTLE_TIMEOUT="1") as running:
                yield running
    finally:
        processes.stop()


@contextlib.contextmanager
def suspended(service: Service) -> Iterator[None]:
    os.kill(service.pid, SIGSTOP)
    try:
        yield
    finally:
        os.kill(service.pid, SIGCONT)


@pytest.mark.parametrize("path", ["/verify", "/settle"])
def test_what_a_facilitator_answered_in_time_counts_though_the_process_comes_late(
    service: Service, moments: Moments, path: str
) -> None:
    with buyer(service) as shopper, ThreadPoolExecutor(1) as thread:
        key = new_key()
        payload = shopper.sign(key)
        for asked in moments.asked.values():
            asked.clear()
        sent = thread.submit(shopper.post, key, payload)
        assert moments.asked[path].wait(10)
        with suspended(service):
            time.sleep(SUSPENDED)
        answer = sent.result()
        assert answer.status_code == 200, answer.text
        assert shopper.post(key, payload).headers["idempotent-replayed"] == "true"
