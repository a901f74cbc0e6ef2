"""Whether the service is alive, and whether it can sell."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.http.responses import json_response
from ranking_evaluate.payments.protocol import NOT_CONFIGURED, PaymentProtocol
from ranking_evaluate.release import VERSION


def alive() -> Response:
    """Return 200 as long as the process serves."""
    return json_response({"alive": True, "release": VERSION})


async def readiness(store: AttemptStore, wires: tuple[Wire, ...], protocols: tuple[PaymentProtocol, ...]) -> Response:
    """Return 200 when the service can sell, else 503 with the reasons."""
    document = await state_of(store, wires, protocols)
    return json_response(document, 200 if document["ready"] else 503)


async def state_of(
    store: AttemptStore, wires: tuple[Wire, ...], protocols: tuple[PaymentProtocol, ...]
) -> dict[str, Any]:
    """Return what is ready: all is when the store answers and every configured protocol is ready, at least one."""
    try:
        await store.read("readiness-probe-never-used")
        store_reason = None
    except StoreUnavailable as error:
        store_reason = str(error)
    taken = {protocol.wire.name: protocol for protocol in protocols}
    rails: dict[str, dict[str, object]] = {}
    for wire in wires:
        protocol = taken.get(wire.name)
        terms, (is_ready, reason) = (protocol.terms(), protocol.ready()) if protocol else (None, NOT_CONFIGURED)
        rails[wire.name] = {
            "configured": terms is not None,
            "ready": is_ready,
            "reason": reason,
            "network": None if terms is None else terms.network,
            "testnet": None if terms is None else terms.testnet,
        }
    configured = [rail for rail in rails.values() if rail["configured"]]
    ready = store_reason is None and bool(configured) and all(rail["ready"] for rail in configured)
    return {
        "ready": ready,
        "release": VERSION,
        "store": {"ready": store_reason is None, "reason": store_reason},
        "rails": rails,
    }
