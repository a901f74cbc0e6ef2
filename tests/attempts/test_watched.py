"""A store that cannot be written: noticed without a buyer, told, and over as soon as a write succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from ranking_evaluate.attempts.events import RecordSettled, Submit
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.attempts.watched import WatchedStore
from ranking_evaluate.telemetry.metrics import REGISTRY
from tests.attempts.samples import KEY, NOW, OTHER_KEY, SETTLE_LEASE, TX, draft, reserved, settled, tried
from tests.fakes import FixedClock

pytestmark = pytest.mark.anyio


class FullDisk(apsw.VFS):
    """A disk that takes nothing while it is full."""

    def __init__(self) -> None:
        self.is_full = False
        super().__init__("full-disk", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _FileOnIt(self, name, flags)


class _FileOnIt(apsw.VFSFile):
    def __init__(self, disk: FullDisk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._disk.is_full:
            raise apsw.FullError("database or disk is full")
        super().xWrite(data, offset)


@pytest.fixture
def disk() -> FullDisk:
    return FullDisk()


@pytest.fixture
async def store(tmp_path: Path, disk: FullDisk, request: pytest.FixtureRequest) -> AsyncIterator[WatchedStore]:
    inner = SqliteStore(tmp_path / "attempts.db", FixedClock(NOW), vfs="full-disk")
    made = WatchedStore(inner, try_seconds=getattr(request, "param", 0.02), try_again_seconds=0.02)
    await made.open()
    yield made
    await made.close()


async def until(store: WatchedStore, *, writable: bool) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                await store.check_writable()
            except StoreUnavailable:
                if not writable:
                    return
            else:
                if writable:
                    return
            await asyncio.sleep(0.005)


async def test_a_full_disk_is_noticed_without_a_buyer_and_reads_go_on(store: WatchedStore, disk: FullDisk) -> None:
    row = await settled(store, draft())
    disk.is_full = True
    await until(store, writable=False)
    assert (await store.read(KEY)).rows == (row,)
    with pytest.raises(StoreUnavailable, match="full"):
        await tried(store, draft("second", key=OTHER_KEY))
    disk.is_full = False
    await until(store, writable=True)
    await settled(store, draft("second", key=OTHER_KEY))


@pytest.mark.parametrize("store", [3600.0], indirect=True, ids=["tried every hour"])
async def test_a_write_that_fails_is_followed_by_a_try_at_once(store: WatchedStore, disk: FullDisk) -> None:
    row = await reserved(store, draft())
    await asyncio.sleep(0.1)
    await store.check_writable()
    disk.is_full = True
    with pytest.raises(StoreUnavailable):
        await store.move(row.claim, Submit(SETTLE_LEASE))
    await until(store, writable=False)


async def test_what_was_sold_is_counted_in_base_units(store: WatchedStore) -> None:
    def sold() -> float:
        labels = {"protocol": "x402", "operation": "counted", "network": "eip155:84532", "asset": draft().asset}
        return REGISTRY.get_sample_value("ranking_evaluate_sold_base_units_total", labels) or 0.0

    made = draft(operation="counted")
    row = await reserved(store, made)
    await store.move(row.claim, Submit(SETTLE_LEASE))
    assert sold() == 0
    await store.move(row.claim, RecordSettled("receipt", TX))
    await store.move(row.claim, RecordSettled("receipt", TX))
    assert sold() == 10_000
