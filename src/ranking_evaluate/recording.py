"""The record of money that moved: tried for as long as the process lives, whoever waits for it."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.attempt import Attempt, Step
from ranking_evaluate.attempts.events import RecordSettled
from ranking_evaluate.attempts.store import AttemptStore

RECORD_FOR: Final = 60.0
"""Seconds after which a caller, or a shutdown, waits no longer for the record of money that moved.

As long as a database takes to start again. After that the caller is told PAYMENT_UNCERTAIN, and the row is uncertain
by its lease until the record is written.
"""

RECORD_AGAIN: Final = 0.5
"""Seconds before that record is tried again; twice as long each time, up to `RECORD_AGAIN_AT_MOST`."""

RECORD_AGAIN_AT_MOST: Final = 10.0


class Recorder:
    """Writes SETTLED, as often as it takes.

    Args:
        store: Where attempts are kept.
        record_for: Seconds that a caller, or a shutdown, waits for a record.
        record_again: Seconds before a record is tried a second time.
    """

    def __init__(self, store: AttemptStore, record_for: float, record_again: float) -> None:
        self._store = store
        self._record_for = record_for
        self._record_again = record_again
        # Each with the instant of its first try.
        self._recording: dict[asyncio.Task[Step], float] = {}

    async def record(self, attempt: Attempt, event: RecordSettled) -> Step | None:
        """Return what became of the attempt, or None when a caller should wait no longer; the record goes on then."""
        recording = asyncio.create_task(self._keep_recording(attempt, event), name="record money that moved")
        self._recording[recording] = time.monotonic()
        recording.add_done_callback(self._recording.pop)
        done, _ = await asyncio.wait([recording], timeout=self._record_for)
        return await recording if done else None

    async def drain(self) -> None:
        """Wait a minute at most for the records under way, counted from the first try of each, and end the others."""
        for recording, began in list(self._recording.items()):
            await asyncio.wait([recording], timeout=max(0.0, began + self._record_for - time.monotonic()))
        given_up = list(self._recording)
        for recording in given_up:
            recording.cancel()
        if given_up:
            await asyncio.wait(given_up)

    async def _keep_recording(self, attempt: Attempt, event: RecordSettled) -> Step:
        """Write it; a row that its lease has made uncertain takes it as well."""
        wait, tries = self._record_again, 1
        facts = {"transaction": event.transaction, "key_digest": telemetry.key_digest(attempt.key)}
        while True:
            try:
                step = await self._store.move(attempt.claim, event)
            except Exception as error:  # noqa: BLE001 - whatever fails here, the money has moved.
                if tries == 1:
                    # One alarm for one purchase, however long it takes.
                    words = "money moved and is not recorded yet"
                    telemetry.alarm("unrecorded_money", words, reason=str(error), receipt=event.receipt, **facts)
                tries += 1
                await asyncio.sleep(wait)
                wait = min(2 * wait, RECORD_AGAIN_AT_MOST)
                continue
            if tries > 1:
                telemetry.logger().warning("money that moved is recorded at last", tries=tries, **facts)
            if step.attempt is None:
                words = "money moved and its attempt is gone from the store"
                telemetry.alarm("unrecorded_money", words, receipt=event.receipt, **facts)
            return step
