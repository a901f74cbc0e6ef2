"""Whether the service is alive, and whether it can sell."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.http.responses import json_response
from ranking_evaluate.payments.protocol import PaymentProtocol
from ranking_evaluate.release import VERSION


def alive() -> Response:
    """Return 200 as long as the process serves."""
    return json_response({"alive": True, "release": VERSION})


async def readiness(store: AttemptStore, protocols: tuple[PaymentProtocol, ...]) -> Response:
    """Return 200 when the service can sell, else 503 with the reasons."""
    document = await state_of(store, protocols)
    return json_response(document, 200 if document["ready"] else 503)


async def state_of(store: AttemptStore, protocols: tuple[PaymentProtocol, ...]) -> dict[str, Any]:
    """Return what is ready: all is when the store answers and every configured rail is ready, at least one."""
    try:
        await store.read("readiness-probe-never-used")
        await store.check_writable()
        store_reason = None
    except StoreUnavailable as error:
        store_reason = str(error)
    rails: dict[str, dict[str, object]] = {}
    for protocol in protocols:
        terms, (is_ready, reason) = protocol.terms(), protocol.ready()
        rails[protocol.name] = {
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
