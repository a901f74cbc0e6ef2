"""What evaluating large bodies beside the event loop costs the loop, in a thread and in a process; how it scales.

A large lexical-retrieval body is evaluated again and again while the loop does what it does for everybody else: here a
tick each millisecond, whose lateness is what any other caller would feel.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bench.growth import lexical_body
from bench.timing import percentile
from ranking_evaluate.contract.answer import answer
from ranking_evaluate.evaluations.processes import Workers, cores
from ranking_evaluate.operations.registry import find

OPERATION = find("lexical-retrieval")
TICK = 0.001

ON_THE_LOOP, IN_A_THREAD, IN_A_PROCESS = "on the loop", "in a thread", "in a process"


class Felt(NamedTuple):
    """How late the ticks were, and how many bodies a second were evaluated."""

    p50: float
    p99: float
    most: float
    rate: float


def felt(seconds: float) -> dict[str, Felt]:
    """Return what the loop feels for each place where the bodies may be evaluated."""
    body = lexical_body()
    with ThreadPoolExecutor(1) as thread, contextlib.closing(Workers(1)) as workers:
        workers.submit(OPERATION, [body]).result()

        async def on_the_loop() -> None:
            answer(OPERATION, body)
            await asyncio.sleep(0)

        async def in_a_thread() -> None:
            await asyncio.get_running_loop().run_in_executor(thread, answer, OPERATION, body)

        async def in_a_process() -> None:
            await asyncio.wrap_future(workers.submit(OPERATION, [body]))

        places = {ON_THE_LOOP: on_the_loop, IN_A_THREAD: in_a_thread, IN_A_PROCESS: in_a_process}
        return {name: asyncio.run(_felt(evaluate, seconds)) for name, evaluate in places.items()}


async def _felt(evaluate: Callable[[], Awaitable[None]], seconds: float) -> Felt:
    late: list[float] = []
    until = time.perf_counter() + seconds

    async def tick() -> None:
        while time.perf_counter() < until:
            due = time.perf_counter() + TICK
            await asyncio.sleep(TICK)
            late.append(max(0.0, time.perf_counter() - due))

    ticking = asyncio.create_task(tick())
    count, started = 0, time.perf_counter()
    while time.perf_counter() < until:
        await evaluate()
        count += 1
    rate = count / (time.perf_counter() - started)
    await ticking
    return Felt(percentile(late, 0.5), percentile(late, 0.99), max(late), rate)


def rates(seconds: float) -> dict[int, float]:
    """Return how many bodies a second so many workers evaluate: one, and one for each core."""
    body = lexical_body()
    found = {}
    for count in sorted({1, cores()}):
        with contextlib.closing(Workers(count)) as workers:
            for begun in [workers.submit(OPERATION, [body]) for _ in range(count)]:
                begun.result()
            started, done = time.perf_counter(), 0
            while time.perf_counter() - started < seconds:
                for evaluation in [workers.submit(OPERATION, [body]) for _ in range(4 * count)]:
                    evaluation.result()
                    done += 1
            found[count] = done / (time.perf_counter() - started)
    return found
