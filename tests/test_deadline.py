"""A deadline passes at its time, and not before what has arrived was read: on both kinds of loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

from ranking_evaluate import deadline
from ranking_evaluate.deadline import LAST_LOOK, Deadline, within

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


def stand_still(seconds: float) -> None:
    """Block the loop at this moment."""
    time.sleep(seconds)


def hold_up(after: float, seconds: float) -> None:
    """Block the running loop from a moment on."""
    asyncio.get_running_loop().call_later(after, time.sleep, seconds)


async def test_a_deadline_passes_at_its_time() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with within(0.1):
            await asyncio.sleep(5)
    assert 0.1 < time.monotonic() - started < 2


async def test_what_ends_in_time_is_not_touched() -> None:
    async with within(0.05):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05 + 2 * LAST_LOOK)


async def test_an_answer_that_arrived_while_the_loop_was_held_up_is_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        hold_up(0.02, 0.5)
        threading.Timer(0.1, theirs.send, [b"in time"]).start()
        async with within(0.2):
            assert await asyncio.get_running_loop().sock_recv(ours, 100) == b"in time"


async def test_a_loop_that_comes_late_again_and_again_delays_a_deadline_and_does_not_stop_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline, "MOST_LOOKS", 2)

    async def busy() -> None:
        while True:
            stand_still(0.15)
            await asyncio.sleep(0)

    working = asyncio.create_task(busy())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20), within(0.1):
            await asyncio.Event().wait()
    working.cancel()


async def test_a_cancellation_is_no_deadline() -> None:
    async def wait() -> None:
        async with within(5):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_deadline_that_is_moved_or_stopped_does_not_pass() -> None:
    passed: list[float] = []
    timer = Deadline(asyncio.get_running_loop(), lambda: passed.append(time.monotonic()))
    timer.set(0.01)
    await asyncio.sleep(0.03)
    timer.set(0.2)
    moved = time.monotonic()
    assert timer.is_set
    await asyncio.sleep(0.2 + 2 * LAST_LOOK + 0.1)
    assert len(passed) == 1
    assert passed[0] - moved > 0.2
    assert not timer.is_set
    timer.set(0.01)
    timer.cancel()
    await asyncio.sleep(2 * LAST_LOOK)
    assert len(passed) == 1
