"""A client has a window for requests and one for payment attempts; whoever fills one is told when it opens."""

from __future__ import annotations

import pytest
from limits import parse

from ranking_evaluate import rates as module
from ranking_evaluate.contract.errors import RateLimited
from ranking_evaluate.rates import EvaluationTime, Rates, Windows
from tests.fakes import FixedClock

pytestmark = pytest.mark.anyio


async def test_one_more_than_the_window_allows_is_refused_and_told_when_to_come_back() -> None:
    rates = Rates("memory://", "3/minute", None)
    for _ in range(3):
        await rates.count_request("client")
    with pytest.raises(RateLimited) as refused:
        await rates.count_request("client")
    assert (refused.value.status, refused.value.code) == (429, "RATE_LIMITED")
    assert refused.value.retry_after is not None
    assert 1 <= refused.value.retry_after <= 60


async def test_clients_do_not_share_a_window() -> None:
    rates = Rates("memory://", "1/minute", None)
    await rates.count_request("one")
    await rates.count_request("another")
    with pytest.raises(RateLimited):
        await rates.count_request("one")


async def test_requests_and_payments_are_counted_apart() -> None:
    rates = Rates("memory://", "2/minute", "1/minute")
    await rates.count_payment("client")
    await rates.count_request("client")
    await rates.count_request("client")
    with pytest.raises(RateLimited, match="payments"):
        await rates.count_payment("client")
    with pytest.raises(RateLimited, match="requests"):
        await rates.count_request("client")


async def test_a_rate_that_is_off_counts_nothing() -> None:
    rates = Rates("memory://", None, "1/minute")
    for _ in range(1000):
        await rates.count_request("client")
    await rates.count_payment("client")
    with pytest.raises(RateLimited):
        await rates.count_payment("client")


async def test_the_window_opens_again() -> None:
    rates = Rates("memory://", "1/second", None)
    await rates.count_request("client")
    with pytest.raises(RateLimited) as refused:
        await rates.count_request("client")
    assert refused.value.retry_after == 1


def test_the_windows_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CLIENTS", 10)
    windows = Windows()
    rate = parse("1/minute")
    for number in range(100):
        assert windows.hit(rate, "request", str(number)) is None
    assert windows.hit(rate, "request", "99") is not None
    assert windows.hit(rate, "request", "0") is None, "the one used least recently made room"


def test_a_window_moves() -> None:
    clock = FixedClock()
    windows = Windows(clock)
    rate = parse("2/minute")
    for seconds, wait in ((0, None), (20, None), (10, 30), (29, 1), (1, None), (0, 20)):
        clock.advance(seconds)
        assert windows.hit(rate, "request", "client") == wait


def test_evaluation_time_is_used_up_and_comes_back_as_its_window_moves() -> None:
    clock = FixedClock(0.0)
    budget = EvaluationTime("20/minute", clock)
    for _ in range(4):
        budget.check("a")
        budget.charge("a", 5.0)
        clock.advance(10)
    # At 40 s twenty are spent: five each at 0, 10, 20 and 30.
    with pytest.raises(RateLimited) as refused:
        budget.check("a")
    assert refused.value.retry_after == 20
    budget.check("b")
    clock.advance(20)
    budget.check("a")
    budget.charge("a", 5.0)
    with pytest.raises(RateLimited) as refused:
        budget.check("a")
    assert refused.value.retry_after == 10


def test_evaluation_time_without_a_rate_is_not_counted() -> None:
    budget = EvaluationTime(None)
    budget.charge("a", 1e9)
    budget.check("a")


def test_evaluation_time_takes_a_bounded_part_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranking_evaluate.rates.MOST_CLIENTS", 3)
    clock = FixedClock(0.0)
    budget = EvaluationTime("20/minute", clock)
    for number in range(10_000):
        budget.charge(f"client {number % 5}", 0.001)
        clock.advance(0.01)
    assert len(budget._spent) == 3
    assert max(map(len, budget._spent.values())) <= 60
