"""Answers are kept for the same bytes alone, for a short while, and few of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ranking_evaluate import answers as module
from ranking_evaluate.answers import KEPT, KEPT_SECONDS, Answers
from ranking_evaluate.contract import answer as answering
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.operations.registry import find

pytestmark = pytest.mark.anyio

OPERATION = find("ranking-evaluate")


def body(number: int = 0) -> bytes:
    return b'{"queries":[{"id":"q%d","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}' % number


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Return what was evaluated and not remembered."""
    seen: list[tuple[str, bytes]] = []

    def counted(operation: Any, body: bytes) -> answering.Answer:
        seen.append((operation.id, body))
        return answering.answer(operation, body)

    monkeypatch.setattr(module, "answer", counted)
    return seen


async def test_the_same_bytes_are_evaluated_once_for_each_operation(evaluated: list[tuple[str, bytes]]) -> None:
    answers = Answers()
    for _ in range(3):
        assert answers.answer(OPERATION, body()) == answering.answer(OPERATION, body())
    assert evaluated == [(OPERATION.id, body())]
    for _ in range(2):
        with pytest.raises(OperationError):
            answers.answer(find("retrieval-measure"), body())
    # What is refused is not kept.
    assert len(evaluated) == 3


async def test_few_are_kept_and_the_oldest_goes_first(evaluated: list[tuple[str, bytes]]) -> None:
    answers = Answers()
    for number in range(KEPT + 1):
        answers.answer(OPERATION, body(number))
    assert len(answers._kept) == KEPT
    evaluated.clear()
    answers.answer(OPERATION, body(1))
    answers.answer(OPERATION, body(0))
    assert [asked for _, asked in evaluated] == [body(0)]


async def test_none_is_kept_for_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KEPT_SECONDS == 120
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.2)
    answers = Answers()
    answers.answer(OPERATION, body(0))
    await asyncio.sleep(0.12)
    answers.answer(OPERATION, body(1))
    await asyncio.sleep(0.12)
    assert [asked for _, asked in answers._kept] == [body(1)]
    await asyncio.sleep(0.2)
    assert answers._kept == {}
    # And so it is with what comes after a pause.
    answers.answer(OPERATION, body(2))
    await asyncio.sleep(0.25)
    assert answers._kept == {}
