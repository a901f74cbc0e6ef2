"""The benches run; what they find is for a quiet machine and not for a test."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from bench.timing import side_by_side

from bench import __main__ as run
from bench import collections, evaluations, free_path, growth, jobs, metrics, paid, service, store
from ranking_evaluate import OperationError, evaluate


def test_what_is_compared_computes_something() -> None:
    small = jobs.ranking_job(2, 5, 5)
    ours_and_pytrec = list(metrics.candidates(small).values())[:4]
    for candidate in (*ours_and_pytrec, *free_path.candidates(small).values()):
        assert candidate()
    timed = side_by_side({"a": ours_and_pytrec[0], "b": ours_and_pytrec[1]}, rounds=3, budget=0.01)
    assert timed["a"].ratio(timed["a"]) == 1.0


def test_every_tool_measures_a_whole_collection(tmp_path: Path) -> None:
    commands = collections.candidates(*collections.made(tmp_path, 8, 20))
    taken = collections.in_turns(commands, rounds=1)

    assert {collections.OURS, collections.IR_MEASURES, collections.PYTREC_EVAL} <= taken.keys()
    assert all(one.seconds > 0 and one.bytes > 1_000_000 for [one] in taken.values())


def test_hostile_bodies_are_refused_and_their_neighbours_are_not() -> None:
    for refused, valid in free_path.hostile().values():
        assert isinstance(refused(), OperationError)
        assert isinstance(valid(), bytes)


@pytest.mark.parametrize("operation_id", growth.INPUTS)
def test_every_operation_takes_the_inputs_that_grow(operation_id: str) -> None:
    assert set(growth.by_queries(operation_id, rounds=2, budget=0.01)) >= {1, 10}


def test_look_ups_find_their_way_in_a_filled_store() -> None:
    assert [len(seconds) for seconds in store.lookups((1, 50), looks=3).values()] == [3, 3]


def test_a_purchase_commits_three_times() -> None:
    taken = store.commits(3)
    assert [len(seconds) for seconds in taken.values()] == [3, 3, 3]
    assert all(0 < each < 5 for seconds in taken.values() for each in seconds)


def test_evaluating_is_timed_on_the_loop_and_beside_it() -> None:
    places = evaluations.felt(0.2)
    assert list(places) == [evaluations.ON_THE_LOOP, evaluations.IN_A_THREAD, evaluations.IN_A_PROCESS]
    assert all(one.rate > 0 and one.most > 0 for one in places.values())
    assert all(rate > 0 for rate in evaluations.rates(0.1).values())


def test_a_run_writes_its_table_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fast(*_: object, **__: object) -> object:
        return side_by_side(dict.fromkeys((metrics.OURS, metrics.PEER), int), rounds=2, budget=0.001)

    monkeypatch.setattr(run, "side_by_side", fast)
    monkeypatch.setattr("sys.argv", ["bench", "metrics", "--quick", "--out", str(tmp_path)])
    run.main()
    assert "pytrec_eval" in (tmp_path / "results.md").read_text()
    assert "<svg" in (tmp_path / "results.svg").read_text()


def test_the_paid_bench_asks_for_what_the_service_sells() -> None:
    assert evaluate("ranking-evaluate", jobs.TYPICAL.body)
    assert jobs.TYPICAL.body in paid.Caller(1).unpaid()
    first, second = itertools.islice(paid.bodies(), 2)
    assert evaluate("ranking-evaluate", first) != evaluate("ranking-evaluate", second)
    assert len(first) == len(second) == len(jobs.TYPICAL.body)
    assert callable(service.start)
