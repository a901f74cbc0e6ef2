"""Alive as long as it serves; ready when the store answers and every configured protocol does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from ranking_evaluate import bootstrap
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.http.health import StoreHealth
from ranking_evaluate.payments.clock import FACILITATOR
from ranking_evaluate.payments.protocol import Readiness
from ranking_evaluate.release import VERSION
from ranking_evaluate.telemetry.metrics import REGISTRY
from tests.fakes import FixedClock
from tests.http.conftest import Options, Service, Start

pytestmark = pytest.mark.anyio

RAIL = {
    "configured": True,
    "ready": True,
    "reason": None,
    "network": "scripted:1",
    "networks": ["scripted:1"],
    "testnet": True,
}


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


DRIVER_SAYS = "cannot reach the database: connection failed: 10.9.8.7, port 5432: role canary, /var/lib/canary.db"


async def fails(*given: Any) -> Any:
    raise StoreUnavailable(DRIVER_SAYS)


@pytest.mark.parametrize(("call", "what"), [("read", "read"), ("check_writable", "written")])
async def test_a_store_that_is_down_is_told_in_plain_words_and_its_driver_s_in_the_log_alone(
    service: Service,
    logs: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    what: str,
) -> None:
    monkeypatch.setattr(service.store, call, fails)
    answers = [await service.client.get(path) for path in ("/readyz", "/", "/readyz")]
    assert [answer.status_code for answer in answers] == [503, 200, 503]
    reason = f"the record of purchases cannot be {what}"
    assert answers[0].json()["store"] == {"ready": False, "reason": reason}
    assert reason in answers[1].text
    for answer in answers:
        assert "canary" not in answer.text
        assert "10.9.8.7" not in answer.text
    said = [line for line in map(json.loads, logs().splitlines()) if line["event"] == reason]
    assert [line["reason"] for line in said] == [DRIVER_SAYS]


class CountedStore:
    """A store that counts how often it was asked, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def read(self, key: str, proofs: Any = ()) -> None:
        self.asked += 1
        await self.may_answer.wait()

    async def check_writable(self) -> None:
        return None


async def test_however_many_ask_the_store_is_asked_once_a_second() -> None:
    store, clock = CountedStore(), FixedClock()
    health = StoreHealth(store, clock)  # type: ignore[arg-type]
    store.may_answer.clear()
    waiting = [asyncio.create_task(health.reason()) for _ in range(1000)]
    await asyncio.sleep(0.01)
    clock.advance(5)
    waiting += [asyncio.create_task(health.reason()) for _ in range(1000)]
    await asyncio.sleep(0.01)
    assert store.asked == 1, "a question under way is everybody's"
    store.may_answer.set()
    assert set(await asyncio.gather(*waiting)) == {None}
    assert await health.reason() is None
    assert store.asked == 2
    for seconds, asked in ((0.9, 2), (0.2, 3), (0.9, 3)):
        clock.advance(seconds)
        await health.reason()
        assert store.asked == asked


async def test_a_caller_that_leaves_takes_the_answer_from_nobody() -> None:
    store = CountedStore()
    health = StoreHealth(store)  # type: ignore[arg-type]
    store.may_answer.clear()
    leaving, staying = asyncio.create_task(health.reason()), asyncio.create_task(health.reason())
    await asyncio.sleep(0.01)
    leaving.cancel()
    await asyncio.sleep(0.01)
    store.may_answer.set()
    assert await staying is None


async def test_a_service_without_a_protocol_is_alive_and_not_ready(start: Start) -> None:
    service = await start(Options(is_configured=False))
    answer = await service.client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert answer.json()["rails"]["scripted"] == {
        "configured": False,
        "ready": False,
        "reason": "not configured",
        "network": None,
        "networks": None,
        "testnet": None,
    }
    alive = await service.client.get("/healthz")
    assert (alive.status_code, alive.json()) == (200, {"alive": True, "release": VERSION})


@pytest.mark.parametrize(
    ("ahead", "is_told", "refuses"),
    [
        (0, False, False),
        (5, False, False),
        (5.1, True, False),
        (-5.1, True, False),
        (59, True, False),
        (-59, True, False),
        (-60, True, True),
        (109, True, False),
        (110, True, True),
        (-3000, True, True),
    ],
)
async def test_beyond_five_seconds_a_line_warns_and_beyond_the_limits_readyz_says_so(
    service: Service, logs: Callable[[], str], ahead: float, is_told: bool, refuses: bool
) -> None:
    service.protocol.clock.note(FACILITATOR, ahead)
    service.protocol.clock.note(FACILITATOR, ahead)
    said = [line for line in map(json.loads, logs().splitlines()) if line["event"] == "the clock is off"]
    assert [(line["level"], line["seconds_ahead"], line["refuses_payments"]) for line in said] == (
        [("warning", round(ahead, 1), refuses)] if is_told else []
    )
    labels = {"against": FACILITATOR, "protocol": "scripted"}
    assert REGISTRY.get_sample_value("ranking_evaluate_clock_offset_seconds", labels) == ahead
    answer = await service.client.get("/readyz")
    rail = answer.json()["rails"]["scripted"]
    assert (answer.status_code, rail["ready"]) == ((503, False) if refuses else (200, True))
    way = f"{abs(ahead)} s {'ahead of' if ahead > 0 else 'behind'} the facilitator's"
    assert rail["reason"] == (f"this machine's clock is {way}: its payments are refused" if refuses else None)
    assert bootstrap._is_ready(service.protocol) is not refuses, "the gauge says what /readyz does"
    # Only told: a clock that is compared with a wrong one must not end sales.
    assert (await service.pay()).status_code == 200


async def test_a_clock_that_is_mended_is_told_and_ready_again(service: Service, logs: Callable[[], str]) -> None:
    service.protocol.clock.note(FACILITATOR, -90)
    assert (await service.client.get("/readyz")).status_code == 503
    service.protocol.clock.note(FACILITATOR, 0.4)
    assert (await service.client.get("/readyz")).status_code == 200
    assert "the clock is right again" in [json.loads(line)["event"] for line in logs().splitlines()]
