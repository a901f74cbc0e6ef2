"""Alive as long as it serves; ready when the store answers and every configured protocol does."""

from __future__ import annotations

from typing import Any

import pytest

from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.payments.protocol import Readiness
from ranking_evaluate.release import VERSION
from tests.http.conftest import Options, Service, Start

pytestmark = pytest.mark.anyio

RAIL = {"configured": True, "ready": True, "reason": None, "network": "scripted:1", "testnet": True}


async def test_a_service_that_can_sell_is_ready(service: Service) -> None:
    answer = await service.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "ready": True,
        "release": VERSION,
        "store": {"ready": True, "reason": None},
        "rails": {"scripted": RAIL},
    }


async def test_a_protocol_that_is_down_is_named(service: Service) -> None:
    service.protocol.readiness = Readiness(False, "the facilitator is down")
    answer = await service.client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert answer.json()["rails"]["scripted"] == RAIL | {"ready": False, "reason": "the facilitator is down"}
    assert answer.json()["store"] == {"ready": True, "reason": None}


async def test_a_store_that_is_down_is_named(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreadable(key: str, proofs: Any = ()) -> Any:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(service.store, "read", unreadable)
    answer = await service.client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert answer.json()["store"] == {"ready": False, "reason": "the disk is full"}


async def test_a_service_without_a_protocol_is_alive_and_not_ready(start: Start) -> None:
    service = await start(Options(is_configured=False))
    answer = await service.client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert answer.json()["rails"]["scripted"] == {
        "configured": False,
        "ready": False,
        "reason": "not configured",
        "network": None,
        "testnet": None,
    }
    alive = await service.client.get("/healthz")
    assert (alive.status_code, alive.json()) == (200, {"alive": True, "release": VERSION})
