"""Worker processes: the same answers, none of the service's secrets, and a new one for each that dies."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from ranking_evaluate.contract.answer import answer
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.evaluations import processes, worker
from ranking_evaluate.evaluations.processes import EvaluationBroke, WorkerLost, Workers, cores
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS, find
from tests import expensive

LEXICAL: Final = find("lexical-retrieval")
PATIENCE: Final = 60.0


@pytest.fixture
def workers() -> Iterator[Workers]:
    started = Workers(2, PATIENCE)
    yield started
    started.close()
    assert not any(is_alive(pid) for pid in started.pids())


def outcome(workers: Workers, operation: Operation[Any], body: bytes) -> object:
    [evaluated] = workers.submit(operation, [body]).result(PATIENCE)
    return evaluated.outcome


def outcome_here(operation: Operation[Any], body: bytes) -> object:
    try:
        return answer(operation, body)
    except OperationError as error:
        return error


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_a_worker_answers_and_refuses_as_this_process_would(workers: Workers, operation: Operation[Any]) -> None:
    example = orjson.dumps(operation.example_input)
    bodies = [example, *(one.body for one in expensive.refused(20_000)), b"", b"\xff", example[:-1] + b',"x":1}']
    bodies += [one.body for one in expensive.evaluated(operation.id, 20_000)]
    for body in bodies:
        here, there = outcome_here(operation, body), outcome(workers, operation, body)
        assert type(there) is type(here)
        if isinstance(here, OperationError):
            assert (str(there), vars(there)) == (str(here), vars(here))
        else:
            assert there == here


def test_an_evaluation_says_how_long_it_took(workers: Workers) -> None:
    [evaluated] = workers.submit(LEXICAL, [expensive.LARGE_SALE]).result(PATIENCE)
    assert 0.02 < evaluated.seconds < PATIENCE


def test_a_worker_that_is_killed_loses_one_evaluation_and_is_replaced(workers: Workers) -> None:
    outcome(workers, LEXICAL, b"{")
    (first,) = workers.pids()
    lost = workers.submit(LEXICAL, [expensive.OUTPUT_LIMIT])
    time.sleep(0.02)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(WorkerLost, match="died"):
        lost.result(PATIENCE)
    assert isinstance(outcome(workers, LEXICAL, b"{"), OperationError)
    (second,) = workers.pids()
    assert second != first


def test_a_worker_that_died_while_it_was_idle_costs_nobody_anything(workers: Workers) -> None:
    outcome(workers, LEXICAL, b"{")
    (first,) = workers.pids()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first))
    assert isinstance(outcome(workers, LEXICAL, b"{"), OperationError)
    assert first not in workers.pids()


def test_a_worker_that_does_not_come_to_an_end_is_ended() -> None:
    workers = Workers(1, 0.5)
    try:
        while True:
            # Its start may take longer than that on a machine that is busy.
            try:
                outcome(workers, LEXICAL, b"{")
                break
            except WorkerLost:
                continue
        (stuck,) = workers.pids()
        os.kill(stuck, signal.SIGSTOP)
        with pytest.raises(WorkerLost, match="too long"):
            outcome(workers, LEXICAL, b"{")
        assert not is_alive(stuck)
    finally:
        workers.close()


def test_a_bug_is_told_without_the_input() -> None:
    def broken(request: Any) -> Any:
        raise KeyError(request["queries"][0]["text"])

    operation = dataclasses.replace(LEXICAL, evaluate=broken)
    head, result = worker._reply(operation, orjson.dumps(LEXICAL.example_input).replace(b"reset password", b"a canary"))
    assert b"canary" not in head
    with pytest.raises(EvaluationBroke) as caught:
        processes._evaluated(LEXICAL.id, head, result)
    assert str(caught.value).startswith("KeyError\n")
    assert "in broken" in str(caught.value)


def test_many_inputs_go_to_one_worker_at_once_and_their_outcomes_keep_their_order(workers: Workers) -> None:
    bodies = [expensive.evaluated(LEXICAL.id, size)[0].body for size in range(2_000, 40_000, 1_000)]
    bodies[7] = b"{"
    evaluated = workers.submit(LEXICAL, bodies).result(PATIENCE)
    assert [type(one.outcome) for one in evaluated].count(OperationError) == 1
    assert isinstance(evaluated[7].outcome, OperationError)
    assert evaluated[-1].outcome == answer(LEXICAL, bodies[-1])
    assert len(workers.pids()) == 1


def test_the_signals_that_end_a_service_do_not_end_its_workers(workers: Workers) -> None:
    outcome(workers, LEXICAL, b"{")
    (pid,) = workers.pids()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    assert isinstance(outcome(workers, LEXICAL, b"{"), OperationError)
    assert workers.pids() == [pid]


def test_closing_ends_what_is_at_work_and_what_waits() -> None:
    workers = Workers(1, PATIENCE)
    submitted = [workers.submit(LEXICAL, [expensive.OUTPUT_LIMIT]) for _ in range(3)]
    wait_until(lambda: bool(workers.pids()))
    pids = workers.pids()
    workers.close()
    assert all(one.done() for one in submitted)
    assert not any(is_alive(pid) for pid in pids)


def test_workers_end_with_a_service_that_is_killed() -> None:
    script = (
        "import time\n"
        "from ranking_evaluate.evaluations.processes import Workers\n"
        "from ranking_evaluate.operations.registry import find\n"
        "workers = Workers(1)\n"
        "workers.submit(find('lexical-retrieval'), [b'{']).result()\n"
        "print(*workers.pids(), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        pid = int(service.stdout.readline())
        assert is_alive(pid)
        service.kill()
    wait_until(lambda: not is_alive(pid))


def test_a_worker_knows_no_secret_and_imports_what_evaluates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKING_EVALUATE_MPP_SECRET_KEY", "a secret of the service")
    monkeypatch.setenv("CDP_API_KEY_SECRET", "another secret")
    assert "secret" not in json.dumps(processes._environment())
    listed = subprocess.run(
        [sys.executable, "-c", "import ranking_evaluate.evaluations.worker, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    own = {name.split(".")[1] for name in listed if name.startswith("ranking_evaluate.")}
    # The package itself names `measure`, whose modules are imported when it is called.
    assert own == {"core", "evaluations", "measure", "operations", "release"}
    assert not any(name.startswith("ranking_evaluate.measure.") for name in listed)
    assert not {"asyncio", "fastapi", "httpx", "limits", "structlog", "x402", "apsw"} & set(listed)


def test_cores_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(processes, "_CGROUP_QUOTA", quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert cores() == 8
    for text, expected in (("max 100000", 8), ("150000 100000", 2), ("20000 100000", 1), ("1600000 100000", 8)):
        quota.write_text(text)
        assert cores() == expected
