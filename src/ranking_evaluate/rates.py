"""How often one client may ask and try to pay, and for how long its inputs are evaluated; replays are requests only.

Replicas share their windows in Redis. While it does not answer, each replica counts alone: rates bound the load, the
store alone keeps the money safe, and a limiter that is down must not stop anybody from fetching what was paid for.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from limits import RateLimitItem, parse
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import ConfigurationError

from ranking_evaluate import telemetry
from ranking_evaluate.contract.errors import RateLimited

_TEXT: Final = {
    "request": "This client has sent more requests than its window allows.",
    "payment": "This client has tried more payments than its window allows.",
    "evaluation": "The inputs of this client took more time to evaluate than its window allows.",
}

REDIS_SECONDS: Final = 0.5
"""How long a request waits for the shared storage."""

ALONE_SECONDS: Final = 5.0
"""How long a replica counts alone after the shared storage failed, before it is asked again."""

MOST_CLIENTS: Final = 100_000
"""Windows kept in memory; the one that was used least recently makes room."""

WINDOW_PARTS: Final = 60
"""Parts of a window of evaluation time; what was spent in one of them is kept, and leaves the window, together."""


class RateStorageUnavailable(Exception):
    """The shared storage cannot be used at the start; the text says why."""


class Rates:
    """Two moving windows per client.

    Args:
        storage_url: `memory://`, or the `redis://` storage that replicas share.
        request_rate: Requests per client, in the notation of `limits`; None switches it off.
        payment_rate: Payment attempts per client; None switches it off, and of none at all `sales_ended` tells.
    """

    def __init__(self, storage_url: str, request_rate: str | None, payment_rate: str | None) -> None:
        self._own = Windows()
        self._storage = None if storage_url == "memory://" else _redis(storage_url)
        self._shared = None if self._storage is None else MovingWindowRateLimiter(self._storage)
        self._alone_until = 0.0
        self._rates = {"request": _item(request_rate), "payment": _item(payment_rate)}
        payments = self._rates["payment"]
        self.sales_ended: Final = payments is not None and payments.amount == 0

    async def open(self) -> None:
        """Ask the shared storage, if there is one; raises `RateStorageUnavailable`."""
        if self._storage is None:
            return
        try:
            async with asyncio.timeout(5):
                alive = await self._storage.check()
        except Exception as error:
            raise RateStorageUnavailable(f"Redis cannot be asked ({type(error).__name__})") from error
        if not alive:
            raise RateStorageUnavailable("Redis does not answer")

    async def close(self) -> None:
        """Close the connections to the shared storage."""
        if self._storage is not None:
            # The bridge's type does not say which client it holds; `_redis` chose it.
            bridge: Any = self._storage.bridge
            await bridge.get_connection().aclose()

    async def count_request(self, client: str) -> None:
        """Count a request; raises `RateLimited` when the window is full."""
        await self._count("request", client)

    async def count_payment(self, client: str) -> None:
        """Count a payment attempt; raises `RateLimited` when the window is full."""
        await self._count("payment", client)

    async def _count(self, kind: str, client: str) -> None:
        rate = self._rates[kind]
        if rate is None:
            return
        wait = await self._hit(rate, kind, client)
        if wait is not None:
            raise _limited(kind, wait)

    async def _hit(self, rate: RateLimitItem, kind: str, client: str) -> float | None:
        """Count; return None, or the seconds until the window opens when it is full."""
        if self._shared is not None and time.monotonic() >= self._alone_until:
            try:
                async with asyncio.timeout(REDIS_SECONDS):
                    if await self._shared.hit(rate, kind, client):
                        return None
                    reset_at, _ = await self._shared.get_window_stats(rate, kind, client)
                    return reset_at - time.time()
            except Exception as error:  # noqa: BLE001 - whatever fails there, the request goes on.
                self._alone_until = time.monotonic() + ALONE_SECONDS
                telemetry.RATE_STORAGE_FAILURES.inc()
                telemetry.logger().error("rate storage unavailable, counting alone", error=type(error).__name__)
        return self._own.hit(rate, kind, client)


class Windows:
    """Moving windows of this process, bounded in memory.

    The memory storage of `limits` walks all its clients in other threads at every request.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def hit(self, rate: RateLimitItem, kind: str, client: str) -> float | None:
        """Count; return None, or the seconds until the window opens when it is full."""
        now, span = self._clock(), rate.get_expiry()
        times = self._times.get((kind, client))
        if times is None:
            times = self._times[kind, client] = deque(maxlen=rate.amount)
            if len(self._times) > MOST_CLIENTS:
                self._times.popitem(last=False)
        else:
            self._times.move_to_end((kind, client))
        if len(times) == rate.amount and times[0] > now - span:
            return times[0] + span - now
        times.append(now)
        return None


class EvaluationTime:
    """Seconds of evaluation per client in a moving window of this process, bounded in memory.

    Args:
        rate: The seconds and their window in the notation of `limits`, such as `20/minute`; None switches it off.
        clock: Seconds that only grow.
    """

    def __init__(self, rate: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        item = _item(rate)
        self._most = math.inf if item is None else float(item.amount)
        self._part_seconds = 1.0 if item is None else item.get_expiry() / WINDOW_PARTS
        self._clock = clock
        self._spent: OrderedDict[str, deque[tuple[int, float]]] = OrderedDict()

    def check(self, client: str) -> None:
        """Raise `RateLimited` when the client's window is used up; what it costs is known, and charged, afterwards."""
        now, left = self._part(), self._most
        for part, seconds in reversed(self._spent.get(client, ())):
            if part <= now - WINDOW_PARTS:
                break
            left -= seconds
            if left <= 0:
                # The window opens when this part, and with it all before it, has left.
                raise _limited("evaluation", (part + WINDOW_PARTS - now) * self._part_seconds)

    def charge(self, client: str, seconds: float) -> None:
        """Count the time that an evaluation took."""
        if self._most == math.inf:
            return
        now = self._part()
        spent = self._spent.setdefault(client, deque(maxlen=WINDOW_PARTS))
        self._spent.move_to_end(client)
        if len(self._spent) > MOST_CLIENTS:
            self._spent.popitem(last=False)
        if spent and spent[-1][0] == now:
            seconds += spent.pop()[1]
        spent.append((now, seconds))

    def _part(self) -> int:
        """Return the number of the present part of a window."""
        return int(self._clock() / self._part_seconds)


def _limited(kind: str, wait: float) -> RateLimited:
    return RateLimited("RATE_LIMITED", _TEXT[kind], retry_after=max(1, math.ceil(wait)))


def _item(rate: str | None) -> RateLimitItem | None:
    return None if rate is None else parse(rate)


def _redis(url: str) -> RedisStorage:
    try:
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        return RedisStorage(
            url,
            implementation="redispy",
            key_prefix="ranking-evaluate",
            # A connection from before a restart of Redis breaks at its next use, and a new one takes its place.
            retry=Retry(NoBackoff(), 1),  # type: ignore[arg-type]  # Passed on to the client as it is.
            socket_timeout=REDIS_SECONDS,
            socket_connect_timeout=REDIS_SECONDS,
        )
    except (ImportError, ConfigurationError) as error:
        raise RateStorageUnavailable("the Redis client is not installed: install ranking-evaluate[redis]") from error
