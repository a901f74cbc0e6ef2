"""A store with its calls timed, and a look now and then at what is uncertain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.attempt import Attempt, Audit, Event, State, Step
from ranking_evaluate.attempts.decide import Request, Snapshot
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable

LOOK_SECONDS: Final = 15.0
MOST_COUNTED: Final = 1_000


class WatchedStore:
    """Passes every call on to a store; see `AttemptStore`."""

    def __init__(self, store: AttemptStore) -> None:
        self._store = store
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the store, and look at it from now on."""
        await self._store.open()
        self._looking = asyncio.create_task(self._keep_looking(), name="count the uncertain attempts")

    async def close(self) -> None:
        """Stop looking, and close the store."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._store.close()

    async def read(self, key: str, proofs: Sequence[bytes] = ()) -> Snapshot:
        """Pass on."""
        with telemetry.store_call("read"):
            return await self._store.read(key, proofs)

    async def reserve(self, draft: Attempt, request: Request, seen: Snapshot) -> Attempt | None:
        """Pass on."""
        with telemetry.store_call("reserve"):
            return await self._store.reserve(draft, request, seen)

    async def move(self, claim: str, event: Event) -> Step:
        """Pass on."""
        with telemetry.store_call("move"):
            return await self._store.move(claim, event)

    async def find(self, claim: str) -> Attempt | None:
        """Pass on."""
        with telemetry.store_call("find"):
            return await self._store.find(claim)

    async def recent(self, state: State | None = None, limit: int = 100) -> list[Attempt]:
        """Pass on."""
        with telemetry.store_call("recent"):
            return await self._store.recent(state, limit)

    async def audits(self, key: str) -> list[tuple[float, int, Audit]]:
        """Pass on."""
        with telemetry.store_call("audits"):
            return await self._store.audits(key)

    async def purge(self, limit: int = 500) -> int:
        """Pass on."""
        with telemetry.store_call("purge"):
            return await self._store.purge(limit)

    async def look(self) -> None:
        """Count the uncertain attempts, at most `MOST_COUNTED`, and tell the age of the oldest."""
        found = await self.recent(State.UNCERTAIN, MOST_COUNTED)
        now = (await self.read("uncertain-probe-never-used")).now
        telemetry.UNCERTAIN.set(len(found))
        telemetry.UNCERTAIN_AGE.set(max((now - attempt.created_at for attempt in found), default=0.0))

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self.look()
            except StoreUnavailable as error:
                telemetry.logger().warning("the uncertain attempts cannot be counted", reason=str(error))
            await asyncio.sleep(LOOK_SECONDS)
