"""A bounded queue with a line for each client: clients in turn, and nobody keeps everybody else out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ranking_evaluate.evaluations.waiting import Full, Places, Queue


@dataclass(frozen=True)
class Waiting:
    client: str
    number: int = 0
    counted: bool = True


def queue(in_all: int = 6, per_client: int = 4) -> Queue[Waiting]:
    return Queue(Places(in_all, per_client))


def drained(waiting: Queue[Waiting]) -> list[str]:
    found = []
    while (one := waiting.next(busy=())) is not None:
        found.append(f"{one.client}{one.number}")
    return found


def test_clients_are_taken_in_turn_and_each_client_in_its_own_order() -> None:
    waiting = queue()
    for client, number in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("c", 2)):
        waiting.put(Waiting(client, number))
    assert drained(waiting) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert len(waiting) == 0


def test_a_client_that_has_had_its_turn_stands_behind_one_that_comes_later() -> None:
    waiting = queue()
    waiting.put(Waiting("a", 1))
    waiting.put(Waiting("a", 2))
    assert waiting.next(busy=()) == Waiting("a", 1)
    waiting.put(Waiting("b", 1))
    # It is a's turn once more: b has just come.
    assert drained(waiting) == ["a2", "b1"]


def test_a_busy_client_is_passed_over_and_keeps_its_place() -> None:
    waiting = queue()
    waiting.put(Waiting("a", 1))
    waiting.put(Waiting("b", 1))
    assert waiting.next(busy={"a"}) == Waiting("b", 1)
    assert waiting.next(busy={"a"}) is None
    assert drained(waiting) == ["a1"]


def test_one_client_has_no_more_than_its_places() -> None:
    waiting = queue(per_client=2)
    waiting.put(Waiting("a", 1))
    waiting.put(Waiting("a", 2))
    with pytest.raises(Full):
        waiting.put(Waiting("a", 3))
    assert waiting.put(Waiting("b", 1)) is None


def test_a_full_queue_takes_the_newest_place_of_whoever_has_most() -> None:
    waiting = queue(in_all=5)
    for client, number in (("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)):
        waiting.put(Waiting(client, number))
    assert waiting.put(Waiting("c", 1)) == Waiting("b", 3)
    assert waiting.put(Waiting("d", 1)) == Waiting("a", 2)
    assert drained(waiting) == ["a1", "b1", "c1", "d1", "b2"]


def test_nobody_loses_a_place_to_a_client_that_would_then_have_as_many() -> None:
    waiting = queue(in_all=3)
    for client, number in (("a", 1), ("a", 2), ("b", 1)):
        waiting.put(Waiting(client, number))
    with pytest.raises(Full):
        waiting.put(Waiting("b", 2))
    assert drained(waiting) == ["a1", "b1", "a2"]


def test_what_is_not_counted_is_always_let_in_and_takes_no_place_from_others() -> None:
    waiting = queue(in_all=2, per_client=1)
    for number in range(5):
        waiting.put(Waiting("a", number, counted=False))
    waiting.put(Waiting("a", 5))
    waiting.put(Waiting("b", 1))
    with pytest.raises(Full):
        waiting.put(Waiting("c", 1))
    assert len(waiting) == 7
    waiting.remove(Waiting("b", 1))
    waiting.put(Waiting("c", 1))
    assert drained(waiting) == ["a0", "c1", "a1", "a2", "a3", "a4", "a5"]


def test_who_leaves_gives_its_place_back_once() -> None:
    waiting = queue(in_all=1)
    waiting.put(Waiting("a", 1))
    waiting.remove(Waiting("a", 1))
    waiting.remove(Waiting("a", 1))
    waiting.remove(Waiting("b", 1))
    waiting.put(Waiting("b", 1))
    with pytest.raises(Full):
        waiting.put(Waiting("c", 1))
