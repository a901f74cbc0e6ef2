"""A store with its calls timed, its sales counted, and a try now and then whether it can be written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.attempt import Attempt, Audit, Draft, State, Step
from ranking_evaluate.attempts.decide import Request, Snapshot
from ranking_evaluate.attempts.events import Event
from ranking_evaluate.attempts.sales import Sale
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable

TRY_SECONDS: Final = 5.0
TRY_AGAIN_SECONDS: Final = 1.0


class WatchedStore:
    """Passes every call on to a store; see `AttemptStore`.

    Args:
        store: The store.
        try_seconds: Seconds between two tries whether it can be written, while nothing is wrong.
        try_again_seconds: Seconds between two tries while it cannot.
    """

    def __init__(
        self, store: AttemptStore, *, try_seconds: float = TRY_SECONDS, try_again_seconds: float = TRY_AGAIN_SECONDS
    ) -> None:
        self._store = store
        self._try_seconds = try_seconds
        self._try_again_seconds = try_again_seconds
        self._fault: StoreUnavailable | None = None
        self._suspicion = asyncio.Event()
        self._trying: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the store, and try from now on whether it can be written."""
        await self._store.open()
        self._trying = asyncio.create_task(self._keep_trying(), name="try whether the store can be written")

    async def close(self) -> None:
        """Stop trying, and close the store."""
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.wait([self._trying])
        await self._store.close()

    async def read(self, key: str, proofs: Sequence[bytes] = ()) -> Snapshot:
        """Pass on."""
        with telemetry.store_call("read"):
            return await self._store.read(key, proofs)

    async def reserve(self, draft: Draft, request: Request, seen: Snapshot) -> Attempt | None:
        """Pass on."""
        with telemetry.store_call("reserve"), self._suspecting():
            return await self._store.reserve(draft, request, seen)

    async def move(self, claim: str, event: Event) -> Step:
        """Pass on."""
        with telemetry.store_call("move"), self._suspecting():
            step = await self._store.move(claim, event)
        if step.sold and (row := step.attempt) is not None:
            telemetry.count_sale(row.protocol, row.operation, row.network, row.asset, row.amount)
        return step

    async def find(self, claim: str) -> Attempt | None:
        """Pass on."""
        with telemetry.store_call("find"):
            return await self._store.find(claim)

    async def recent(self, state: State | None = None, limit: int = 100) -> list[Attempt]:
        """Pass on."""
        with telemetry.store_call("recent"):
            return await self._store.recent(state, limit)

    async def under_way(self, attempt: Attempt) -> int:
        """Pass on."""
        with telemetry.store_call("under_way"):
            return await self._store.under_way(attempt)

    async def audits(self, key: str) -> list[tuple[float, int, Audit]]:
        """Pass on."""
        with telemetry.store_call("audits"):
            return await self._store.audits(key)

    async def purge(self, limit: int = 500) -> int:
        """Pass on."""
        with telemetry.store_call("purge"):
            return await self._store.purge(limit)

    async def sales(self, after: int = 0, limit: int = 10_000) -> list[Sale]:
        """Pass on."""
        with telemetry.store_call("sales"):
            return await self._store.sales(after, limit)

    async def sales_of(self, key: str) -> list[Sale]:
        """Pass on."""
        with telemetry.store_call("sales_of"):
            return await self._store.sales_of(key)

    async def refund(self, sale: Sale, transaction: str, audit: Audit, key: str) -> bool:
        """Pass on."""
        with telemetry.store_call("refund"):
            return await self._store.refund(sale, transaction, audit, key)

    @property
    def has_failed(self) -> bool:
        """Return whether the last try to write failed."""
        return self._fault is not None

    async def check_writable(self) -> None:
        """Raise what the last try to write came to, when it failed."""
        if self._fault is not None:
            raise StoreUnavailable(str(self._fault))

    async def _keep_trying(self) -> None:
        while True:
            self._suspicion.clear()
            try:
                with telemetry.store_call("check_writable"):
                    await self._store.check_writable()
            except StoreUnavailable as error:
                was_well, self._fault = self._fault is None, error
                if was_well:
                    telemetry.logger().error("the store cannot be written", reason=str(error))
            else:
                was_well, self._fault = self._fault is None, None
                if not was_well:
                    telemetry.logger().info("the store can be written again")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._try_seconds if self._fault is None else self._try_again_seconds):
                    await self._suspicion.wait()

    @contextmanager
    def _suspecting(self) -> Iterator[None]:
        """Let a write that fails be followed by a try at once; one that succeeds says that all is well."""
        try:
            yield
        except StoreUnavailable:
            self._suspicion.set()
            raise
        self._fault = None
