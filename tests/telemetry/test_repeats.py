"""However often a caller is refused, the log has one line for the first time and one number for the rest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from ranking_evaluate.telemetry import repeats, reports
from ranking_evaluate.telemetry.repeats import MANY, Kind, Repeats

REFUSED = Kind("POST", "/v1/x402/ranking-evaluate", 429, "RATE_LIMITED")
NOT_THERE = Kind("GET", None, 404, "NOT_FOUND")


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def test_the_first_has_its_own_line_and_the_rest_one_number(lines: list[Any]) -> None:
    now = [100.0]
    counted = Repeats(clock=lambda: now[0])
    assert [counted.is_first(REFUSED, "192.0.2.1", f"id-{number}") for number in range(5000)].count(True) == 1
    now[0] += 42
    counted.write()
    assert lines == [
        {
            "event": "more requests like this",
            "log_level": "info",
            "request_id": "id-0",
            "method": "POST",
            "route": "/v1/x402/ranking-evaluate",
            "status": 429,
            "code": "RATE_LIMITED",
            "clients": "one",
            "more": 4999,
            "seconds": 42.0,
        }
    ]
    counted.write()
    assert len(lines) == 1
    assert counted.is_first(REFUSED, "192.0.2.1", "later")


def test_what_came_once_has_no_number(lines: list[Any]) -> None:
    counted = Repeats()
    assert counted.is_first(REFUSED, "192.0.2.1", "id")
    counted.write()
    assert lines == []


def test_kinds_and_clients_are_told_apart() -> None:
    counted = Repeats()
    assert counted.is_first(REFUSED, "192.0.2.1", "a")
    assert counted.is_first(REFUSED, "192.0.2.2", "b")
    assert counted.is_first(NOT_THERE, "192.0.2.1", "c")
    assert not counted.is_first(NOT_THERE, "192.0.2.1", "d")


def test_a_million_clients_take_bounded_memory_and_lines(lines: list[Any]) -> None:
    counted = Repeats(most=10)
    firsts = sum(counted.is_first(REFUSED, f"client {number}", "id") for number in range(20_000))
    firsts += sum(counted.is_first(NOT_THERE, f"client {number}", "id") for number in range(20_000))
    # Ten pairs on their own, and each kind once for everybody else.
    assert firsts == len(counted._counted) == 12
    counted.write()
    assert [(line["code"], line["clients"], line["more"]) for line in lines] == [
        ("RATE_LIMITED", MANY, 19_989),
        ("NOT_FOUND", MANY, 19_999),
    ]


@pytest.mark.parametrize(
    ("counted", "code", "own_lines"),
    [
        (True, "", 3),
        (True, "PAYMENT_REQUIRED", 3),
        (True, "PAYMENT_UNCERTAIN", 3),
        (True, "RATE_LIMITED", 1),
        (True, "OVERLOADED", 1),
        (False, "", 1),
        (False, "RATE_LIMITED", 1),
        (False, "NOT_FOUND", 1),
    ],
)
def test_what_a_rate_bounds_keeps_its_own_lines(
    lines: list[Any], monkeypatch: pytest.MonkeyPatch, counted: bool, code: str, own_lines: int
) -> None:
    monkeypatch.setattr(reports, "REPEATS", Repeats())
    for number in range(3):
        request = reports.Request(f"id-{number}", "POST", status=200, code=code, client="192.0.2.1", counted=counted)
        reports.log_request(request)
    assert [line["request_id"] for line in lines] == [f"id-{number}" for number in range(own_lines)]


def test_the_number_is_written_in_time_and_at_the_end(lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Repeats()
    monkeypatch.setattr(repeats, "REPEATS", counted)

    async def serve() -> None:
        telling = asyncio.create_task(repeats.keep_telling_repeats(0.01))
        for _ in range(3):
            counted.is_first(REFUSED, "192.0.2.1", "before")
        while not lines:  # noqa: ASYNC110 - nothing tells that a line was written.
            await asyncio.sleep(0.005)
        for _ in range(2):
            counted.is_first(REFUSED, "192.0.2.1", "after")
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling

    asyncio.run(serve())
    assert [(line["request_id"], line["more"]) for line in lines] == [("before", 2), ("after", 1)]
