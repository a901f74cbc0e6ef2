"""Whether the service is alive, and whether it can sell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from pydantic import with_config
from typing_extensions import TypedDict

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.operations.fields import STRICT
from ranking_evaluate.payments.protocol import NOT_CONFIGURED, PaymentProtocol, Readiness
from ranking_evaluate.release import VERSION

SALES_ENDED: Final = Readiness(False, "sales have ended here; what was bought is still delivered")

ASK_SECONDS: Final = 1.0
"""Seconds between two questions to the store: whoever asks whether the service is ready must not keep it busy."""


@with_config(STRICT)
class Alive(TypedDict):
    """A process that serves."""

    alive: bool
    release: str


@with_config(STRICT)
class StoreState(TypedDict):
    """Whether the record of purchases can be read, and why not."""

    ready: bool
    reason: str | None


@with_config(STRICT)
class ProtocolState(TypedDict):
    """Whether a payment protocol can be used, and why not; what follows is null where none is configured.

    `network` is the preferred one of `networks`.
    """

    configured: bool
    ready: bool
    reason: str | None
    network: str | None
    networks: list[str] | None
    testnet: bool | None


@with_config(STRICT)
class ServiceState(TypedDict):
    """Whether the service can sell: its store answers, and every configured protocol is ready, at least one."""

    ready: bool
    release: str
    store: StoreState
    rails: dict[str, ProtocolState]


class StoreHealth:
    """Whether the store can be used: it is asked at most once a second, and one question at a time, for all who ask.

    Args:
        store: The store.
        clock: Seconds that only go on.
    """

    def __init__(self, store: AttemptStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._asked = 0.0
        self._asking: asyncio.Task[str | None] | None = None
        self._fault: str | None = None

    async def reason(self) -> str | None:
        """Return why the store cannot be used, in words that may be published; None when it can."""
        if self._asking is None or (self._asking.done() and self._clock() - self._asked >= ASK_SECONDS):
            self._asked = self._clock()
            self._asking = asyncio.create_task(self._ask(), name="ask whether the store can be used")
        return await asyncio.shield(self._asking)

    async def _ask(self) -> str | None:
        try:
            await self._store.read("readiness-probe-never-used")
        except StoreUnavailable as error:
            return self._told("the record of purchases cannot be read", error)
        try:
            await self._store.check_writable()
        except StoreUnavailable as error:
            return self._told("the record of purchases cannot be written", error)
        self._fault = None
        return None

    def _told(self, words: str, error: StoreUnavailable) -> str:
        """Return the words, and write what the driver says into the log, once: it may name files, hosts and roles."""
        if self._fault != str(error):
            self._fault = str(error)
            telemetry.logger().error(words, reason=self._fault)
        return words


def alive() -> Alive:
    """Return that the process serves."""
    return {"alive": True, "release": VERSION}


async def state_of(
    store: StoreHealth, wires: tuple[Wire, ...], protocols: tuple[PaymentProtocol, ...], *, sales_ended: bool = False
) -> ServiceState:
    """Return what is ready at this moment; `wires` are all protocols, `protocols` the configured ones."""
    store_reason = await store.reason()
    taken = {protocol.wire.name: protocol for protocol in protocols}
    states = {wire.name: _protocol_state(taken.get(wire.name), sales_ended) for wire in wires}
    configured = [state for state in states.values() if state["configured"]]
    return {
        "ready": store_reason is None and bool(configured) and all(state["ready"] for state in configured),
        "release": VERSION,
        "store": {"ready": store_reason is None, "reason": store_reason},
        "rails": states,
    }


def readiness(protocol: PaymentProtocol) -> Readiness:
    """Return whether it can be used; with a clock that is off it cannot, though no payment is refused for that here."""
    connected = protocol.ready()
    fault = protocol.clock.fault() if connected.ready else None
    return connected if fault is None else Readiness(False, f"{fault}: its payments are refused")


def _protocol_state(protocol: PaymentProtocol | None, sales_ended: bool) -> ProtocolState:
    terms, (is_ready, reason) = (protocol.terms(), readiness(protocol)) if protocol else ((), NOT_CONFIGURED)
    if protocol is not None and sales_ended:
        is_ready, reason = SALES_ENDED
    return {
        "configured": protocol is not None,
        "ready": is_ready,
        "reason": reason,
        "network": terms[0].network if terms else None,
        "networks": list(dict.fromkeys(each.network for each in terms)) or None,
        "testnet": terms[0].testnet if terms else None,
    }
