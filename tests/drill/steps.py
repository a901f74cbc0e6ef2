"""The steps of the drill: what is broken, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from tests.drill import faults
from tests.drill.buyers import Seen
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
        is_short: Whether the short form has it.
        is_shortened: Whether alarms fire after a tenth of the time for which their condition must hold.
    """

    name: str
    fault: Callable[[Shop, Seen], AbstractContextManager[None]]
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    seconds: float = 5.0
    is_clean: bool = False
    is_short: bool = False
    is_shortened: bool = True


STEPS: Final = (
    Step(name="nothing", fault=faults.nothing, seconds=120, is_clean=True, is_shortened=False),
    Step(name="rolling restart", fault=faults.rolling_restart, is_clean=True, is_short=True, is_shortened=False),
    Step(
        name="kill -9 of a replica in a settlement",
        fault=faults.kill,
        must=frozenset({"ReplicaDown"}),
        may=frozenset({"ServerErrors", "SettlementsUncertain"}),
        is_short=True,
    ),
    Step(
        name="PostgreSQL gone in a settlement",
        fault=faults.postgres_gone,
        must=frozenset({"MoneyUnrecorded", "NotReady", "ProxyFails", "ServerErrors", "StoreFails"}),
        may=frozenset({"StoreSlow"}),
        is_short=True,
    ),
    Step(
        name="PostgreSQL takes no writes",
        fault=faults.postgres_takes_no_writes,
        must=frozenset({"NotReady", "ProxyFails", "ServerErrors", "StoreFails"}),
        may=frozenset({"MoneyUnrecorded", "StoreSlow"}),
    ),
    Step(
        name="PostgreSQL slow",
        fault=faults.postgres_slow,
        must=frozenset({"StoreSlow"}),
        may=frozenset({"ServerErrors", "StoreFails"}),
    ),
    Step(name="Redis gone", fault=faults.redis_gone, must=frozenset({"RateStorageFails"}), is_clean=True),
    Step(
        name="facilitator down",
        fault=lambda shop, seen: faults.facilitator(shop, Fault.DOWN),
        must=frozenset({"ProviderFails"}),
        is_short=True,
    ),
    Step(
        name="facilitator's answers lost",
        fault=lambda shop, seen: faults.facilitator(shop, Fault.RESET_AFTER),
        must=frozenset({"SettlementsUncertain"}),
    ),
    Step(
        name="facilitator names no transaction",
        fault=lambda shop, seen: faults.facilitator(shop, Fault.EMPTY_TRANSACTION),
        must=frozenset({"NoTransactionHash"}),
        may=frozenset({"SettlementsUncertain"}),
        seconds=0,
    ),
    Step(
        name="clock 90 s off the facilitator's",
        fault=faults.clock_off,
        must=frozenset({"ClockOff", "NotReady", "ProxyFails"}),
        is_clean=True,
    ),
    Step(name="a client far over its rate", fault=faults.flood, must=frozenset({"RateLimited"}), is_clean=True),
    Step(
        name="a worker process killed",
        fault=faults.worker_killed,
        must=frozenset({"WorkerLost"}),
        may=frozenset({"ServerErrors"}),
        is_clean=True,
    ),
    Step(
        name="a replica of another build under this version",
        fault=faults.other_bytes,
        must=frozenset({"ReplayDiffers"}),
        may=frozenset({"ReplicaDown", "ServerErrors"}),
        is_clean=True,
    ),
    Step(
        name="another release",
        fault=faults.next_release,
        may=frozenset({"ReplicaDown"}),
        is_shortened=False,
    ),
)
