"""What is evaluated when: quick inputs at once, the others in turn, within bounds, and for nobody who has left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

import pytest

from ranking_evaluate.contract.answer import Answer, answer
from ranking_evaluate.contract.errors import RateLimited, ServiceError, Unavailable
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.evaluations import evaluations as module
from ranking_evaluate.evaluations.evaluations import Caller, Evaluations, HungUp, Standing
from ranking_evaluate.evaluations.processes import Evaluated, EvaluationBroke, WorkerLost
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS, find

pytestmark = pytest.mark.anyio

OPERATION: Final = find("ranking-evaluate")
QUICK: Final = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'
ANSWER: Final = Answer(OPERATION.id, "digest of the input", b"{}")


def body(name: str) -> bytes:
    """Return a body that is not quick for certain; the scripted workers do not look into it."""
    return name.encode().ljust(OPERATION.inline_bytes + 1)


async def settled() -> None:
    """Return when what is ready has led to all that it leads to: some turns of the loop, however late they come."""
    for _ in range(20):
        await asyncio.sleep(0)


class ScriptedWorkers:
    """Workers whose evaluations end when the test says so."""

    def __init__(self) -> None:
        self.at_work: dict[str, Future[list[Evaluated]]] = {}
        self.order: list[str] = []

    def submit(self, operation: Operation[Any], bodies: Sequence[bytes]) -> Future[list[Evaluated]]:
        [body] = bodies
        name = body.decode().strip()
        self.order.append(name)
        self.at_work[name] = Future()
        return self.at_work[name]

    async def end(self, name: str, outcome: Answer | OperationError | Exception = ANSWER, seconds: float = 0.1) -> None:
        evaluation = self.at_work.pop(name)
        if isinstance(outcome, Answer | OperationError):
            evaluation.set_result([Evaluated(outcome, seconds)])
        else:
            evaluation.set_exception(outcome)
        await settled()

    def close(self) -> None:
        pass


class Desk:
    """Evaluations with scripted workers, and callers in front of them."""

    def __init__(self, workers: int = 1, rate: str | None = None, deadline: float = 5.0) -> None:
        self.evaluations = Evaluations(workers, rate, deadline=deadline)
        self.evaluations.close()
        self.workers = ScriptedWorkers()
        self.evaluations._workers = self.workers  # type: ignore[assignment]

    async def ask(
        self,
        name: str,
        client: str | None = None,
        standing: Standing = Standing.UNPAID,
        hung_up: Callable[[], Awaitable[None]] = module.never,
    ) -> asyncio.Task[Answer]:
        """Ask for an evaluation; a client is named by its first letter."""

        async def stands() -> Standing:
            return standing

        caller = Caller(client or name[0], stands, hung_up)
        asked = asyncio.create_task(self.evaluations.answer(OPERATION, body(name), caller))
        # Until it waits, or was refused.
        await settled()
        return asked


@pytest.fixture
async def desk() -> Desk:
    return Desk()


def refusal(asked: asyncio.Task[Answer]) -> ServiceError:
    error = asked.exception()
    assert isinstance(error, ServiceError)
    return error


async def test_what_is_quick_for_certain_is_evaluated_at_once(desk: Desk) -> None:
    assert await desk.evaluations.answer(OPERATION, QUICK, Caller("a")) == answer(OPERATION, QUICK)
    with pytest.raises(OperationError, match="MALFORMED_JSON"):
        await desk.evaluations.answer(OPERATION, b"{", Caller("a"))
    assert desk.workers.order == []


def test_an_operation_that_says_nothing_of_its_cost_is_never_evaluated_at_once() -> None:
    assert Operation.__dataclass_fields__["inline_bytes"].default == 0
    assert all(operation.inline_bytes for operation in OPERATIONS)


async def test_everything_else_goes_to_a_worker_and_its_refusal_comes_back(desk: Desk) -> None:
    asked = await desk.ask("a1")
    assert desk.workers.order == ["a1"]
    await desk.workers.end("a1")
    assert await asked is ANSWER
    refused = await desk.ask("a2")
    await desk.workers.end("a2", OperationError(ErrorCode.OUTPUT_LIMIT, "too large"))
    with pytest.raises(OperationError, match="too large"):
        await refused


async def test_one_client_has_one_at_work_and_clients_take_turns() -> None:
    desk = Desk(workers=2)
    asked = [await desk.ask(name) for name in ("a1", "a2", "a3", "b1", "c1")]
    assert desk.workers.order == ["a1", "b1"]
    for name in ("a1", "b1", "c1", "a2", "a3"):
        await desk.workers.end(name)
    # c was next when a1 ended, since a had had its turn; a2 began when b1 ended.
    assert desk.workers.order == ["a1", "b1", "a2", "c1", "a3"]
    assert await asyncio.gather(*asked) == [ANSWER] * 5


async def test_one_client_has_eight_waiting_and_the_next_is_refused(desk: Desk) -> None:
    asked = [await desk.ask(f"a{number}") for number in range(10)]
    assert [one.done() for one in asked] == [False] * 9 + [True]
    error = refusal(asked[-1])
    assert (error.code, error.status, error.retry_after) == ("OVERLOADED", 503, 2)
    assert not (await desk.ask("b1")).done()
    assert desk.evaluations.waiting() == 9


async def test_sixty_four_wait_and_a_newcomer_takes_the_place_of_whoever_has_most(desk: Desk) -> None:
    asked = {f"{client}{number}": await desk.ask(f"{client}{number}") for client in "abcdefgh" for number in range(8)}
    asked |= {"a8": await desk.ask("a8")}
    assert desk.evaluations.waiting() == 64
    newcomer = await desk.ask("z1")
    assert desk.evaluations.waiting() == 64
    assert not newcomer.done()
    (loser,) = [name for name, one in asked.items() if one.done()]
    assert refusal(asked[loser]).code == "OVERLOADED"
    assert loser[1] in "78"


async def test_who_carries_a_credential_is_first_and_has_places_of_its_own(desk: Desk) -> None:
    unpaid = [await desk.ask(f"{client}1") for client in "abc"]
    paying = [await desk.ask(f"{client}1", standing=Standing.PAYING) for client in "xyz"]
    for name in ("a1", "x1", "y1", "z1", "b1", "c1"):
        await desk.workers.end(name)
    assert desk.workers.order == ["a1", "x1", "y1", "z1", "b1", "c1"]
    assert await asyncio.gather(*unpaid, *paying) == [ANSWER] * 6


async def test_sixteen_with_a_credential_wait(desk: Desk) -> None:
    first = await desk.ask("first")
    clients = [chr(ord("A") + number) for number in range(16)]
    asked = [await desk.ask(f"{client}1", standing=Standing.PAYING) for client in clients]
    one_more = await desk.ask("Q1", standing=Standing.PAYING)
    assert refusal(one_more).code == "OVERLOADED"
    assert not any(one.done() for one in (first, *asked))


async def test_who_has_paid_already_is_neither_refused_by_the_queue_nor_counted() -> None:
    desk = Desk(rate="1/minute")
    asked = [await desk.ask(f"a{number}", standing=Standing.KNOWN) for number in range(40)]
    assert not any(one.done() for one in asked)
    for number in range(40):
        await desk.workers.end(f"a{number}", seconds=5.0)
    assert await asyncio.gather(*asked) == [ANSWER] * 40
    # Nothing of it was charged.
    assert not (await desk.ask("a40")).done()


async def test_a_client_that_has_used_up_its_time_gets_429_and_others_do_not() -> None:
    desk = Desk(rate="20/minute")
    for number in range(2):
        asked = await desk.ask(f"a{number}")
        await desk.workers.end(f"a{number}", seconds=10.0)
        await asked
    error = refusal(await desk.ask("a2"))
    assert isinstance(error, RateLimited)
    assert (error.code, error.status) == ("RATE_LIMITED", 429)
    assert error.retry_after is not None
    assert 55 <= error.retry_after <= 60
    assert not (await desk.ask("b1")).done()
    # Quick inputs are counted as requests alone.
    assert await desk.evaluations.answer(OPERATION, QUICK, Caller("a"))


async def test_a_refused_input_costs_its_time_too() -> None:
    desk = Desk(rate="20/minute")
    asked = await desk.ask("a1")
    await desk.workers.end("a1", OperationError(ErrorCode.OUTPUT_LIMIT, "too large"), seconds=20.0)
    assert isinstance(asked.exception(), OperationError)
    assert refusal(await desk.ask("a2")).code == "RATE_LIMITED"


async def test_who_waits_too_long_hears_so_and_leaves_the_queue() -> None:
    desk = Desk(deadline=0.1)
    at_work, waiting = await desk.ask("a1"), await desk.ask("b1")
    await asyncio.sleep(0.15)
    for asked in (at_work, waiting):
        error = refusal(asked)
        assert isinstance(error, Unavailable)
        assert (error.code, error.retry_after) == ("OVERLOADED", 2)
    assert desk.evaluations.waiting() == 0
    # What was at work goes on to its end, and its worker is free again then.
    later = await desk.ask("c1")
    assert desk.workers.order == ["a1"]
    await desk.workers.end("a1")
    assert desk.workers.order == ["a1", "c1"]
    await desk.workers.end("c1")
    assert await later is ANSWER


async def test_who_hangs_up_leaves_the_queue(desk: Desk) -> None:
    gone = asyncio.Event()

    async def hung_up() -> None:
        await gone.wait()

    await desk.ask("a1")
    waiting, other = await desk.ask("b1", hung_up=hung_up), await desk.ask("c1")
    gone.set()
    with pytest.raises(HungUp):
        await waiting
    assert desk.evaluations.waiting() == 1
    await desk.workers.end("a1")
    assert desk.workers.order == ["a1", "c1"]
    await desk.workers.end("c1")
    assert await other is ANSWER


async def test_a_request_that_is_cancelled_leaves_the_queue(desk: Desk) -> None:
    await desk.ask("a1")
    waiting = await desk.ask("b1")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert desk.evaluations.waiting() == 0


async def test_a_lost_worker_is_a_503_and_a_bug_is_a_bug(desk: Desk) -> None:
    lost, broke = await desk.ask("a1"), await desk.ask("b1")
    await desk.workers.end("a1", WorkerLost("the worker died"))
    assert refusal(lost).code == "OVERLOADED"
    await desk.workers.end("b1", EvaluationBroke("KeyError"))
    assert isinstance(broke.exception(), EvaluationBroke)
    after = await desk.ask("a2")
    await desk.workers.end("a2")
    assert await after is ANSWER
