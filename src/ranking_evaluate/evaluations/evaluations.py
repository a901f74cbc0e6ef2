"""Which input is evaluated when: quick ones at once, the rest in worker processes, clients in turn and within bounds.

Most of what is evaluated nobody has paid for yet, and may never pay for: docs/lifecycle.md, section 11.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final

from ranking_evaluate import telemetry
from ranking_evaluate.contract.answer import Answer, answer
from ranking_evaluate.contract.errors import Unavailable
from ranking_evaluate.evaluations.processes import Evaluated, EvaluationBroke, WorkerLost, Workers
from ranking_evaluate.evaluations.turns import Turns
from ranking_evaluate.evaluations.waiting import Full, Places, Queue
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.rates import EvaluationTime

UNPAID_PLACES: Final = Places(in_all=64, per_client=8)
PAYING_PLACES: Final = Places(in_all=16, per_client=8)

DEADLINE: Final = 10.0
"""Seconds that a caller waits for an evaluation, its turn included; one evaluation may take as long."""

RETRY_AFTER: Final = 2
"""Seconds after which a caller who found no place may come again: a few evaluations later."""


class Standing(Enum):
    """What a request has to do with a payment, which decides whether it has to wait, and for whom."""

    UNPAID = auto()
    """It carries no credential."""
    PAYING = auto()
    """It carries one; those are evaluated first, and their places are their own."""
    KNOWN = auto()
    """Its credential is that of its key's current attempt: it is neither counted nor refused."""


class HungUp(Exception):
    """Nobody waits for the answer any more."""


async def never() -> None:
    """Wait for ever: the caller stays."""
    await asyncio.get_running_loop().create_future()


async def unpaid() -> Standing:
    """Return the standing of a request that cannot carry a credential."""
    return Standing.UNPAID


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks for an evaluation.

    Attributes:
        client: Whose budget and whose turn it takes.
        standing: Returns what its request has to do with a payment; asked only where it has to wait.
        hung_up: Returns when nobody waits for the answer any more.
    """

    client: str
    standing: Callable[[], Awaitable[Standing]] = unpaid
    hung_up: Callable[[], Awaitable[None]] = never


# Compared by identity: two inputs of one client may be the same bytes.
@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    client: str
    counted: bool
    operation: Operation[Any]
    body: bytes
    done: asyncio.Future[Answer]


class Evaluations:
    """Evaluates inputs for many callers at once, without holding up the event loop.

    Args:
        workers: How many worker processes there may be.
        rate: Seconds of evaluation per client, such as `20/minute`; None switches the budget off. What is evaluated at
            once is not counted: the rate of requests bounds it.
        deadline: Seconds that a caller waits, and that one evaluation may take.
    """

    def __init__(self, workers: int, rate: str | None, *, deadline: float = DEADLINE) -> None:
        self._budget = EvaluationTime(rate)
        self._deadline = deadline
        self._workers = Workers(workers, deadline)
        self._free = workers
        self._unpaid = Queue[_Job](UNPAID_PLACES)
        self._paying = Queue[_Job](PAYING_PLACES)
        self._busy: set[str] = set()
        self._turns = Turns()
        telemetry.EVALUATIONS_WAITING.set_function(self.waiting)

    def waiting(self) -> int:
        """Return how many requests wait for a worker."""
        return len(self._unpaid) + len(self._paying)

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return self._workers.pids()

    async def turn(self, client: str) -> None:
        """Return when a request of this client may begin: at once, unless very many are ready together."""
        await self._turns.begin(client)

    def close(self) -> None:
        """End the workers; nobody may be waiting any more."""
        self._workers.close()

    async def answer(self, operation: Operation[Any], body: bytes, caller: Caller) -> Answer:
        """Return the operation's answer to a request body.

        Raises:
            OperationError: The operation refuses the input.
            RateLimited: The client's evaluations have used up its time.
            Unavailable: OVERLOADED: too many are waiting, it took too long, or the worker died.
            HungUp: Nobody waits for the answer any more.
        """
        if len(body) <= operation.inline_bytes:
            await self._turns.begin(caller.client)
            return answer(operation, body)
        standing = await caller.standing()
        if standing is not Standing.KNOWN:
            self._budget.check(caller.client)
        job = _Job(
            caller.client,
            standing is not Standing.KNOWN,
            operation,
            body,
            asyncio.get_running_loop().create_future(),
        )
        queue = self._unpaid if standing is Standing.UNPAID else self._paying
        self._enqueue(job, queue)
        hung_up = asyncio.ensure_future(caller.hung_up())
        try:
            either: set[asyncio.Future[Any]] = {job.done, hung_up}
            await asyncio.wait(either, timeout=self._deadline, return_when=asyncio.FIRST_COMPLETED)
            if job.done.done():
                return job.done.result()
            if hung_up.done():
                raise HungUp
            raise _overloaded("late", "The evaluation did not come to its end in time.")
        finally:
            hung_up.cancel()
            queue.remove(job)
            # An evaluation that is at work goes on to its end, and nobody hears of it.
            if not job.done.cancel():
                job.done.exception()

    def _enqueue(self, job: _Job, queue: Queue[_Job]) -> None:
        try:
            loser = queue.put(job)
        except Full:
            raise _overloaded("full", "Too many inputs are waiting to be evaluated.") from None
        if loser is not None:
            loser.done.set_exception(_overloaded("full", "Others had fewer inputs waiting to be evaluated."))
        self._begin()

    def _begin(self) -> None:
        """Give the free workers something to do."""
        while self._free and (job := self._paying.next(self._busy) or self._unpaid.next(self._busy)):
            self._free -= 1
            self._busy.add(job.client)
            evaluation = asyncio.wrap_future(self._workers.submit(job.operation, [job.body]))
            evaluation.add_done_callback(partial(self._finish, job, time.monotonic()))

    def _finish(self, job: _Job, began: float, evaluation: asyncio.Future[list[Evaluated]]) -> None:
        self._free += 1
        self._busy.discard(job.client)
        seconds = time.monotonic() - began
        result: Answer | Exception
        try:
            [(result, seconds)] = evaluation.result()
        except (WorkerLost, CancelledError, asyncio.CancelledError) as error:
            telemetry.logger().error("evaluation lost", reason=str(error), operation=job.operation.id)
            result = _overloaded("lost", "The evaluation was lost.")
        except EvaluationBroke as error:
            telemetry.logger().error("evaluation broke", frames=str(error), operation=job.operation.id)
            result = error
        if job.counted:
            self._budget.charge(job.client, seconds)
        if not job.done.done():
            if isinstance(result, Exception):
                job.done.set_exception(result)
            else:
                job.done.set_result(result)
        self._begin()


def _overloaded(why: str, detail: str) -> Unavailable:
    telemetry.EVALUATIONS_REFUSED.labels(why).inc()
    return Unavailable("OVERLOADED", detail, retry_after=RETRY_AFTER)
