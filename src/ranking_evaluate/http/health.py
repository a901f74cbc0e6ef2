"""Whether the service is alive, and whether it can sell."""

from __future__ import annotations

from pydantic import with_config
from typing_extensions import TypedDict

from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.operations.fields import STRICT
from ranking_evaluate.payments.protocol import NOT_CONFIGURED, PaymentProtocol
from ranking_evaluate.release import VERSION


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
    """Whether a payment protocol can be used, and why not; network and testnet are null where none is configured."""

    configured: bool
    ready: bool
    reason: str | None
    network: str | None
    testnet: bool | None


@with_config(STRICT)
class ServiceState(TypedDict):
    """Whether the service can sell: its store answers, and every configured protocol is ready, at least one."""

    ready: bool
    release: str
    store: StoreState
    rails: dict[str, ProtocolState]


def alive() -> Alive:
    """Return that the process serves."""
    return {"alive": True, "release": VERSION}


async def state_of(
    store: AttemptStore, wires: tuple[Wire, ...], protocols: tuple[PaymentProtocol, ...]
) -> ServiceState:
    """Return what is ready at this moment; `wires` are all protocols, `protocols` the configured ones."""
    try:
        await store.read("readiness-probe-never-used")
        await store.check_writable()
        store_reason = None
    except StoreUnavailable as error:
        store_reason = str(error)
    taken = {protocol.wire.name: protocol for protocol in protocols}
    states = {wire.name: _protocol_state(taken.get(wire.name)) for wire in wires}
    configured = [state for state in states.values() if state["configured"]]
    return {
        "ready": store_reason is None and bool(configured) and all(state["ready"] for state in configured),
        "release": VERSION,
        "store": {"ready": store_reason is None, "reason": store_reason},
        "rails": states,
    }


def _protocol_state(protocol: PaymentProtocol | None) -> ProtocolState:
    terms, (is_ready, reason) = (protocol.terms(), protocol.ready()) if protocol else (None, NOT_CONFIGURED)
    return {
        "configured": terms is not None,
        "ready": is_ready,
        "reason": reason,
        "network": None if terms is None else terms.network,
        "testnet": None if terms is None else terms.testnet,
    }
