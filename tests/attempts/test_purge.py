"""The purge in the background: in small batches, for as long as the service runs, in nobody's way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ranking_evaluate.attempts.purge import BATCH, keep_purging
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import StoreUnavailable
from tests.attempts.samples import DAY, NOW, draft, settled
from tests.fakes import FixedClock

pytestmark = pytest.mark.anyio


class Flaky(SqliteStore):
    """A store that is unavailable the first time, and remembers how much was purged at once."""

    def __init__(self, path: Path, clock: FixedClock) -> None:
        super().__init__(path, clock)
        self.batches: list[int] = []
        self.fail = True

    async def purge(self, limit: int = 500) -> int:
        if self.fail:
            self.fail = False
            raise StoreUnavailable("not now")
        self.batches.append(await super().purge(limit))
        return self.batches[-1]


async def test_it_works_in_batches_outlives_an_unavailable_store_and_comes_again(tmp_path: Path) -> None:
    clock = FixedClock(NOW)
    store = Flaky(tmp_path / "attempts.db", clock)
    await store.open()

    async def sell(round_: int) -> None:
        for n in range(7):
            await settled(store, draft(f"{round_} {n}", key=f"purchase-{round_:04d}-{n:06d}"))
        clock.advance(DAY)

    await sell(1)
    purging = asyncio.create_task(keep_purging(store, interval=0.01, batch=3, pause=0.001))
    for round_ in (2, 3):
        async with asyncio.timeout(5):
            while await store.recent():  # noqa: ASYNC110 - A row has no event.
                await asyncio.sleep(0.005)
        await sell(round_)
    purging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await purging
    assert max(store.batches) <= 3
    await store.close()


async def test_a_batch_holds_the_embedded_store_for_milliseconds(tmp_path: Path) -> None:
    clock = FixedClock(NOW)
    store = SqliteStore(tmp_path / "attempts.db", clock)
    await store.open()
    await asyncio.gather(*(settled(store, draft(f"{n}", key=f"purchase-number-{n:06d}")) for n in range(BATCH)))
    clock.advance(DAY)
    began = asyncio.get_running_loop().time()
    assert await store.purge(BATCH) == BATCH
    assert asyncio.get_running_loop().time() - began < 2
    await store.close()
