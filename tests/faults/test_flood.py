"""Nobody who has not paid holds up anybody who has: docs/lifecycle.md, section 11, on served processes.

What is late on a machine that runs other things besides is not the service's fault alone, so the bounds on time must
hold in the best of three tries. What is answered, stored and charged must be right in each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from ranking_evaluate import evaluate
from tests import expensive
from tests.faults.flood import (
    LIMITS,
    MINUTE_OF_ONE_ADDRESS,
    Bought,
    Flood,
    Lateness,
    Probe,
    Shopper,
    money_moved_once,
    six_buy,
    soak,
    workers_of,
)
from tests.hostile.service import BODY, HOST, JSON, Answer, Neighbourhood, Service, neighbourhood, request, resident
from tests.postgres import PostgresServer

LEXICAL_PATH: Final = "/v1/x402/lexical-retrieval"
TRIES: Final = 3

FLOODED: Final = {"402 PAYMENT_REQUIRED", "204", "413 OUTPUT_LIMIT", "503 OVERLOADED", "429 RATE_LIMITED"}
REFUSED: Final = {"413 INPUT_LIMIT", "422 COMPLEXITY_LIMIT", "422 INVALID_INPUT", "422 DUPLICATE_FIELD"}


@pytest.fixture(scope="module")
def place() -> Iterator[Neighbourhood]:
    with neighbourhood() as found:
        yield found


@pytest.fixture(autouse=True)
def no_fault(place: Neighbourhood) -> None:
    place.facilitator.reset()


@pytest.fixture
def one_process(place: Neighbourhood) -> Iterator[list[Service]]:
    with place.running("alone", **LIMITS) as service:
        yield [service]


@pytest.fixture
def two_on_one_file(place: Neighbourhood) -> Iterator[list[Service]]:
    shared = f"sqlite:///{place.processes.directory}/shared-{time.monotonic_ns()}.db"
    yield from two(place, shared)


@pytest.fixture
def two_on_postgres(place: Neighbourhood, postgres_server: PostgresServer) -> Iterator[list[Service]]:
    yield from two(place, postgres_server.new_database())


def two(place: Neighbourhood, database: str) -> Iterator[list[Service]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(place.running(f"twin-{number}", DATABASE_URL=database, **LIMITS)) for number in range(2)
        ]


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_in_time(lateness: Lateness, bought: list[Bought]) -> bool:
    return lateness.p99 <= 0.05 and lateness.most <= 0.25 and max(one.seconds for one in bought) <= 1.0


@pytest.mark.parametrize("where", ["one_process", "two_on_one_file", "two_on_postgres"])
def test_three_floods_hold_up_neither_six_buyers_nor_a_probe(
    where: str, place: Neighbourhood, request: pytest.FixtureRequest
) -> None:
    services: list[Service] = request.getfixturevalue(where)
    seen = []
    for number in range(TRIES):
        with Probe(services[0]) as probe, Flood(services, 3, first=1 + 3 * number):
            # The flood has begun, and goes on for seconds.
            time.sleep(0.05)
            bought = six_buy(services)
            time.sleep(1)
        assert [one.answer.status_code for one in bought] == [200] * 6
        seen.append((probe.lateness, bought))
        if is_in_time(*seen[-1]):
            break
    told = [f"{lateness}, paid in {max(one.seconds for one in bought):.3f} s" for lateness, bought in seen]
    assert is_in_time(*seen[-1]), told
    assert money_moved_once(place.facilitator)
    assert len(place.facilitator.moves) == 6 * len(seen)
    for service in services:
        assert service.metrics()["ranking_evaluate_uncertain_attempts"] == 0


def test_under_twelve_floods_a_replay_and_a_large_purchase_are_served(
    one_process: list[Service], place: Neighbourhood
) -> None:
    (service,) = one_process
    expected = evaluate("lexical-retrieval", expensive.LARGE_SALE)
    owner = Shopper(service, 20, expensive.LARGE_SALE, "lexical-retrieval")
    owned = owner.buy()
    assert (owned.answer.status_code, owned.answer.content) == (200, expected)
    newcomer = Shopper(service, 21, expensive.LARGE_SALE, "lexical-retrieval")
    with Probe(service) as probe, Flood([service], 12), ThreadPoolExecutor(3) as pool:
        time.sleep(0.2)
        replays = pool.submit(lambda: [owner.pay(owned.key, owned.payload) for _ in range(5)])
        large, small = pool.submit(newcomer.buy_patiently), pool.submit(six_buy, [service])
        for one in replays.result():
            assert (one.answer.status_code, one.answer.content) == (200, expected)
            assert one.answer.headers["idempotent-replayed"] == "true"
        assert (large.result().answer.status_code, large.result().answer.content) == (200, expected)
        assert [one.answer.status_code for one in small.result()] == [200] * 6
    # A turn of the loop is bounded however many are ready: unbounded, this was half a second on an idle machine.
    assert probe.lateness.p99 <= 0.25
    assert money_moved_once(place.facilitator)
    assert len(place.facilitator.moves) == 8
    assert service.metrics()["ranking_evaluate_uncertain_attempts"] == 0


def test_workers_that_are_killed_under_load_cost_nobody_anything(
    one_process: list[Service], place: Neighbourhood
) -> None:
    (service,) = one_process
    shoppers = [Shopper(service, 30 + number, expensive.LARGE_SALE, "lexical-retrieval") for number in range(4)]
    killed: set[int] = set()
    with Flood([service], 3) as flood, ThreadPoolExecutor(4) as pool:
        buying = [pool.submit(shopper.buy_patiently) for shopper in shoppers]
        for _ in range(6):
            wait_until(lambda: set(workers_of(service)) - killed)
            time.sleep(0.3)
            for pid in set(workers_of(service)) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        bought = [one.result() for one in buying]
        flood.wait()
    expected = evaluate("lexical-retrieval", expensive.LARGE_SALE)
    assert {one.answer.content for one in bought} == {expected}
    assert flood.seen.total() == 3 * MINUTE_OF_ONE_ADDRESS
    assert set(flood.seen) <= FLOODED | REFUSED
    assert flood.seen["503 OVERLOADED"] > 100
    assert len(killed) >= 6
    assert money_moved_once(place.facilitator)
    assert len(place.facilitator.moves) == 4
    assert service.metrics()['ranking_evaluate_evaluations_refused_total{why="lost"}'] >= 1
    assert service.send(request(HOST, JSON, "Idempotency-Key: still-at-your-service")).status == 402


def test_who_hangs_up_leaves_the_queue(one_process: list[Service]) -> None:
    (service,) = one_process
    wanted = request(HOST, JSON, "Idempotency-Key: somebody-who-leaves", path=LEXICAL_PATH, body=expensive.LARGE_SALE)
    assert service.send(wanted).status == 402
    (worker,) = workers_of(service)
    os.kill(worker, signal.SIGSTOP)
    try:
        connections = [service.connect() for _ in range(6)]
        for connection in connections:
            connection.sendall(wanted)
        wait_until(lambda: waiting(service) == 5)
        for connection in connections:
            connection.close()
        wait_until(lambda: waiting(service) == 0)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert service.send(wanted).status == 402


def waiting(service: Service) -> float:
    return service.metrics()["ranking_evaluate_evaluations_waiting"]


def test_a_service_that_is_told_to_end_answers_what_waits_and_leaves_no_worker(place: Neighbourhood) -> None:
    with place.running("ending") as service:
        wanted = [
            request(HOST, JSON, f"Idempotency-Key: at-the-very-end-{n}", path=LEXICAL_PATH, body=expensive.LARGE_SALE)
            for n in range(5)
        ]
        assert service.send(wanted[0]).status == 402
        (worker,) = workers_of(service)
        with ThreadPoolExecutor(5) as pool:
            asked: list[Answer] = []
            sending = [pool.submit(service.send, one) for one in wanted]
            wait_until(lambda: waiting(service) >= 1)
            service.end()
            asked = [one.result() for one in sending]
        assert [answer.status for answer in asked] == [402] * 5
        wait_until(lambda: not is_running(worker))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_memory_of_the_service_and_its_workers_stays_flat(place: Neighbourhood) -> None:
    with place.running("flat", EVALUATION_RATE="", LOG_LEVEL="error") as service:
        soak(service, 600)
        (worker,) = workers_of(service)
        before = service.memory(), resident(worker)
        soak(service, 1_800)
        assert workers_of(service) == [worker]
        assert service.memory() - before[0] < 4 * 2**20
        assert resident(worker) - before[1] < 4 * 2**20
        assert resident(worker) < 64 * 2**20


def test_typical_bodies_start_no_worker(one_process: list[Service]) -> None:
    (service,) = one_process
    assert len(BODY) < 3_000
    assert [one.answer.status_code for one in six_buy([service])] == [200] * 6
    assert workers_of(service) == []
