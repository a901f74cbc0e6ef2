"""Two processes on one SQLite file: however busy one of them is, the other's purchases do not wait for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranking_evaluate.attempts.sqlite import SqliteStore
from tests.attempts.samples import draft, settled

pytestmark = pytest.mark.anyio

BUSY = """
import asyncio, sys, time
from ranking_evaluate.attempts.sqlite import SqliteStore
from tests.attempts.samples import draft, settled

def evaluate(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(1000))

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print("busy", flush=True)

    async def buys(client):
        for n in range(10**6):
            await settled(store, draft(f"busy {client} {n}", key=f"busy-purchase-{client:02d}-{n:07d}"))

    async def reads():
        for n in range(10**6):
            for k in range(50):
                await store.read(f"somebody-asks-{k:04d}-{n:07d}", (bytes(32),))
            evaluate(0.15)  # A long evaluation in the same turn as the reads.
            await asyncio.sleep(0)

    await asyncio.gather(reads(), store.recent(limit=1000), *(buys(client) for client in range(20)))

asyncio.run(main())
"""


async def test_a_busy_neighbour_keeps_no_purchase_waiting_for_half_a_second(tmp_path: Path) -> None:
    path = tmp_path / "attempts.db"
    store = SqliteStore(path)
    await store.open()
    busy = subprocess.Popen([sys.executable, "-c", BUSY, path], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert busy.stdout is not None
        assert busy.stdout.readline() == "busy\n"
        taken = []
        for n in range(150):
            began = time.perf_counter()
            await settled(store, draft(f"mine {n}", key=f"my-own-purchase-{n:06d}"))
            taken.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
    finally:
        busy.kill()
        busy.communicate()
    await store.close()
    assert max(taken) < 0.5, sorted(taken)[-5:]
