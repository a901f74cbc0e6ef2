"""Expensive bodies where they are evaluated: they never hold up the event loop, and who has paid is never refused."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

import httpx
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS, find
from tests import expensive
from tests.fakes import VALID_SECONDS, Signed
from tests.http.conftest import JSON, PATH, Options, Service, Start

pytestmark = [pytest.mark.anyio, pytest.mark.beyond_unit]

LEXICAL_PATH: Final = "/v1/scripted/lexical-retrieval"
ONE_TURN: Final = 0.020
"""Seconds of the loop's processor time that one step of a request may take (docs/lifecycle.md, section 11)."""


async def post(service: Service, path: str, body: bytes, key: str, proof: str | None = None) -> httpx.Response:
    lines = [("Idempotency-Key", key), *JSON.items()]
    if proof is not None:
        lines += Signed(key, proof, service.clock.now() + VALID_SECONDS).header().items()
    return await service.post(*lines, body=body, path=path)


def key(number: int) -> str:
    return f"expensive-purchase-{number:04d}"


async def ask(service: Service, path: str, body: bytes, key: str, proof: str = "") -> tuple[int, bytes]:
    """Call the application without a client, whose own work would be measured with it."""
    target, _, query = path.partition("?")
    lines = {"idempotency-key": key, "content-type": "application/json", "content-length": str(len(body))}
    if proof:
        lines |= Signed(key, proof, service.clock.now() + VALID_SECONDS).header()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "server": ("rank.example", 443),
        "client": ("192.0.2.7", 50_000),
        "path": target,
        "raw_path": target.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
    }
    sent: list[Any] = []
    received: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    received.put_nowait({"type": "http.request", "body": body, "more_body": False})

    async def send(message: Any) -> None:
        sent.append(message)

    await service.app(scope, received.get, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def wait_until(holds: Callable[[], object]) -> None:
    for _ in range(12_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never came to that")


@contextlib.contextmanager
def slowest_step() -> Iterator[list[float]]:
    """Yield a list that holds, at the end of the block, the processor time of the loop's slowest step."""
    slowest = [0.0]
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        slowest[0] = max(slowest[0], time.thread_time() - started)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield slowest


@pytest.fixture
def as_at_the_start() -> Iterator[None]:
    """Keep the collector from what this process has made so far, as the service does when it has started."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("as_at_the_start")
async def test_no_request_takes_20_ms_of_the_loop_in_one_turn(service: Service) -> None:
    # Made before anything is measured, like all that is the test's own.
    requests = [
        (path, body)
        for operation in OPERATIONS
        for body in bodies_for(operation)
        for path in (f"/v1/scripted/{operation.id}", f"/preflight?validate={operation.id}", "/preflight")
    ]
    sales = [(LEXICAL_PATH, expensive.LARGE_SALE), (PATH, expensive.evaluated("ranking-evaluate")[-1].body)]

    async def unpaid(path: str, body: bytes) -> None:
        status, said = await ask(service, path, body, key(1))
        assert status in {204, 400, 402, 413, 422}, said

    async def paid(path: str, body: bytes) -> None:
        number = next(numbers)
        status, said = await ask(service, path, body, key(number), proof=f"proof {number}")
        assert status == 200, said

    numbers = itertools.count(2)
    for path, body in requests:
        await takes_its_turns_shortly(partial(unpaid, path, body))
    for path, body in sales:
        await takes_its_turns_shortly(partial(paid, path, body))


async def takes_its_turns_shortly(request: Callable[[], Awaitable[None]]) -> None:
    """Ask until it took no long turn: what the machine adds once in a while, it does not add five times in a row."""
    taken = []
    for _ in range(5):
        with slowest_step() as slowest:
            await request()
        taken.append(slowest[0])
        if slowest[0] < ONE_TURN:
            return
    pytest.fail(f"one turn of the loop took {min(taken) * 1000:.1f} ms at the least")


def bodies_for(operation: Operation[Any]) -> list[bytes]:
    bodies = [expensive.OUTPUT_LIMIT, expensive.LARGE_SALE, b" " * 131_072]
    for size in (operation.inline_bytes, operation.inline_bytes + 500, 100_000, 130_000):
        bodies += [one.body for one in (*expensive.evaluated(operation.id, size), *expensive.refused(size))]
    return bodies


async def test_a_large_body_is_sold_and_replayed_byte_for_byte(service: Service) -> None:
    expected = evaluate("lexical-retrieval", expensive.LARGE_SALE)
    for replayed in (None, "true"):
        answer = await post(service, LEXICAL_PATH, expensive.LARGE_SALE, key(1), proof="first")
        assert (answer.status_code, answer.content) == (200, expected)
        assert answer.headers.get("idempotent-replayed") == replayed
    assert service.protocol.ledger.calls == {"first": 1}


async def test_preflight_validates_what_the_paid_route_would_evaluate(service: Service) -> None:
    valid = await post(service, "/preflight?validate=lexical-retrieval", expensive.LARGE_SALE, key(1))
    refused = await post(service, "/preflight?validate=lexical-retrieval", expensive.OUTPUT_LIMIT, key(1))
    assert (valid.status_code, valid.content) == (204, b"")
    assert (refused.status_code, refused.json()["code"]) == (413, "OUTPUT_LIMIT")


async def test_evaluation_time_that_is_used_up_stops_all_but_what_was_paid_for(start: Start) -> None:
    service = await start(Options(evaluation_rate="1/hour"))
    sold = await post(service, LEXICAL_PATH, expensive.LARGE_SALE, key(1), proof="first")
    assert sold.status_code == 200
    while (answer := await post(service, LEXICAL_PATH, expensive.OUTPUT_LIMIT, key(2))).status_code == 413:
        pass
    fresh = await post(service, LEXICAL_PATH, expensive.LARGE_SALE, key(3), proof="second")
    checked = await post(service, "/preflight?validate=lexical-retrieval", expensive.LARGE_SALE, key(3))
    for refused in (answer, fresh, checked):
        assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
        assert 0 < int(refused.headers["retry-after"]) <= 3600
    for _ in range(3):
        again = await post(service, LEXICAL_PATH, expensive.LARGE_SALE, key(1), proof="first")
        assert (again.status_code, again.content) == (200, sold.content)
    # The same payment with other bytes is answered by the table: its conflict, and no answer that nobody paid for.
    other = await post(service, LEXICAL_PATH, expensive.evaluated("lexical-retrieval")[0].body, key(1), proof="first")
    assert (other.status_code, other.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert (await service.store.read(key(3))).rows == ()
    assert service.protocol.ledger.calls == {"first": 1}


async def test_who_waits_to_be_evaluated_takes_no_place_from_others(start: Start) -> None:
    service = await start(Options(max_in_flight=3))
    evaluations = service.purchases._evaluations
    await post(service, LEXICAL_PATH, b"{".ljust(10_000), key(0))
    (worker,) = evaluations.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        waiting = [
            asyncio.create_task(post(service, LEXICAL_PATH, expensive.LARGE_SALE, key(number))) for number in range(6)
        ]
        await wait_until(lambda: evaluations.waiting() == 5)
        assert (await service.post()).status_code == 402
    finally:
        os.kill(worker, signal.SIGCONT)
    assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [402] * 6


async def test_a_killed_worker_is_a_503_and_nothing_is_stored_or_charged(service: Service) -> None:
    await post(service, LEXICAL_PATH, b"{".ljust(10_000), key(0))
    (worker,) = service.purchases._evaluations.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    asked = asyncio.create_task(post(service, LEXICAL_PATH, expensive.LARGE_SALE, key(1), proof="first"))
    await asyncio.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    lost = await asked
    assert (lost.status_code, lost.json()["code"], lost.headers["retry-after"]) == (503, "OVERLOADED", "2")
    assert lost.json()["retryable"] is True
    assert (await service.store.read(key(1))).rows == ()
    assert service.protocol.ledger.calls == {}
    sold = await post(service, LEXICAL_PATH, expensive.LARGE_SALE, key(1), proof="first")
    assert sold.status_code == 200
    assert service.protocol.ledger.calls == {"first": 1}


def test_what_is_evaluated_at_once_takes_two_milliseconds() -> None:
    """The table of docs/performance.md; with room for a machine that runs other tests beside this one."""
    for operation in OPERATIONS:
        size = operation.inline_bytes
        for one in (*expensive.evaluated(operation.id, size), *expensive.refused(size)):
            assert len(one.body) <= size, one.why
            taken = min(seconds(operation.id, one.body) for _ in range(5))
            assert taken < 0.005, (operation.id, one.why, taken)


def seconds(operation_id: str, body: bytes) -> float:
    operation: Any = find(operation_id)
    started = time.thread_time()
    with contextlib.suppress(OperationError):
        operation.run(body)
    return time.thread_time() - started
