"""The steps of the drill: what is broken, and what must come of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from tests.drill.shop import Shop
from tests.faults.facilitator import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault, and what is expected while it lasts.

    Attributes:
        name: What happens, for the table.
        fault: Breaks something and, at its end, mends it.
        must: The alarms that fire; the fault lasts until they do.
        may: Alarms that may fire as well; any other one is a failure.
        seconds: How long the fault lasts at least.
        is_clean: Whether no caller gets a 5xx or loses an answer.
        may_stay_open: How many purchases may end without a 200; none of them has been paid twice, either.
        is_short: Whether the short form has it.
        is_shortened: Whether alarms fire after a tenth of the time for which their condition must hold.
    """

    name: str
    fault: Callable[[Shop], AbstractContextManager[None]]
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    seconds: float = 5.0
    is_clean: bool = False
    is_short: bool = False
    is_shortened: bool = True


@contextmanager
def nothing(shop: Shop) -> Iterator[None]:
    yield


@contextmanager
def rolling_restart(shop: Shop) -> Iterator[None]:
    for replica in shop.replicas:
        shop.restart(replica)
        time.sleep(1)
    yield


@contextmanager
def kill(shop: Shop) -> Iterator[None]:
    """Kill it while a payment over x402 is being settled."""
    shop.facilitator.settling.wait(10)
    shop.replicas[0].end(kill=True)
    yield
    shop.replicas[0].start()


@contextmanager
def without_postgres(shop: Shop) -> Iterator[None]:
    """Take the database away between a payment and its record."""
    shop.facilitator.set(Fault.LATE)
    shop.facilitator.settling.clear()
    shop.facilitator.settling.wait(10)
    shop.postgres.stop()
    shop.facilitator.set(Fault.NONE)
    yield
    shop.postgres.start()


@contextmanager
def without_facilitator(shop: Shop) -> Iterator[None]:
    shop.facilitator.set(Fault.DOWN)
    yield
    shop.facilitator.set(Fault.NONE)


STEPS: Final = (
    Step(name="nothing, for two minutes", fault=nothing, seconds=120, is_clean=True, is_shortened=False),
    Step(
        name="rolling restart",
        fault=rolling_restart,
        is_clean=True,
        is_short=True,
        is_shortened=False,
    ),
    Step(
        name="kill -9 of a replica",
        fault=kill,
        must=frozenset({"ReplicaDown"}),
        may=frozenset({"SettlementsUncertain", "ServerErrors"}),
        is_short=True,
    ),
    Step(
        name="PostgreSQL gone",
        fault=without_postgres,
        must=frozenset({"StoreFails", "NotReady", "ProxyFails", "ServerErrors", "MoneyUnrecorded"}),
        may=frozenset({"StoreSlow"}),
        is_short=True,
    ),
    Step(
        name="facilitator down",
        fault=without_facilitator,
        must=frozenset({"ProviderFails"}),
        is_short=True,
    ),
)
