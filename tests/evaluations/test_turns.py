"""However much is ready at once, a turn of the loop takes on a bounded part of it, clients in turn."""

from __future__ import annotations

import asyncio

import pytest

from ranking_evaluate.evaluations.turns import MOST, Turns

pytestmark = pytest.mark.anyio


class Loop:
    """Counts the turns of the running loop."""

    def __init__(self) -> None:
        self.turn = 0
        self._count()

    def _count(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self._count)


async def test_so_many_begin_in_one_turn_and_no_more() -> None:
    turns, loop = Turns(), Loop()
    began: list[int] = []

    async def work() -> None:
        await turns.begin("a")
        began.append(loop.turn)

    await asyncio.gather(*(work() for _ in range(5 * MOST)))
    each = [began.count(turn) for turn in sorted(set(began))]
    assert len(began) == 5 * MOST
    assert max(each) == MOST
    assert len(each) <= 6


async def test_one_client_with_many_does_not_stand_before_another_with_one() -> None:
    turns = Turns()
    began: list[str] = []

    async def work(client: str) -> None:
        await turns.begin(client)
        began.append(client)

    many = [asyncio.create_task(work("many")) for _ in range(10 * MOST)]
    one = asyncio.create_task(work("one"))
    await asyncio.gather(*many, one)
    assert began.index("one") <= MOST + 1


async def test_who_gives_up_while_it_waits_takes_no_turn() -> None:
    turns = Turns()
    asked = [asyncio.create_task(turns.begin("a")) for _ in range(4 * MOST)]
    await asyncio.sleep(0)
    asked[-1].cancel()
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert done[:-1] == [None] * (4 * MOST - 1)
    assert isinstance(done[-1], asyncio.CancelledError)
    await asyncio.wait_for(turns.begin("b"), 1)
