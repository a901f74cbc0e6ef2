"""Freeing space in the background, for as long as a service runs."""

from __future__ import annotations

import asyncio
from typing import Final

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable

INTERVAL: Final = 600.0
"""Seconds between two purges. Nothing waits for one: a row whose window is over counts as over, purged or not."""

BATCH: Final = 100
"""Rows at a time: the embedded store's one writer is held for a few milliseconds, and no request notices."""

PAUSE: Final = 0.2
"""Seconds between two batches, for the requests; 500 rows a second is more than any service here sells."""


async def keep_purging(
    store: AttemptStore, *, interval: float = INTERVAL, batch: int = BATCH, pause: float = PAUSE
) -> None:
    """Purge now and then until cancelled; a store that is unavailable is asked again at the next turn."""
    while True:
        purged = 0
        try:
            while (gone := await store.purge(batch)) > 0:
                purged += gone
                await asyncio.sleep(pause)
        except StoreUnavailable as error:
            telemetry.logger().warning("purge put off", reason=str(error))
        if purged:
            telemetry.logger().info("purged", rows=purged)
        await asyncio.sleep(interval)
