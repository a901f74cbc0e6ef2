"""The store's file under a running service: what callers and /readyz are told, and that it goes on by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

from tests.faults.facilitator import FaultyFacilitator, ledger_only
from tests.faults.served import Served, served
from tests.hostile.service import BODY, CHAIN_ID, CURRENCY, MPP_KEY, NETWORK, PAYEE, node
from tests.judges.x402_buyer import Buyer, new_key

SECONDS = 8.0
"""Within so many everything is noticed."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with FaultyFacilitator(ledger_only(NETWORK)) as facilitator, node() as node_url:
        environment = {
            "X402_PAY_TO": PAYEE,
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": facilitator.url,
            "MPP_RECIPIENT": PAYEE,
            "MPP_CHAIN_ID": str(CHAIN_ID),
            "MPP_RPC_URL": node_url,
            "MPP_CURRENCY": CURRENCY,
            "MPP_SECRET_KEY": MPP_KEY,
        }
        with served(tmp_path / "attempts.db", environment) as running:
            yield running


@pytest.fixture
def buyer(service: Served) -> Buyer:
    return Buyer(service.client, Account.create().key.hex(), BODY)


def until(said: Callable[[], Any], expected: Any) -> None:
    """Ask until the answer is the expected one."""
    give_up = time.monotonic() + SECONDS
    while (got := said()) != expected:
        assert time.monotonic() < give_up, got
        time.sleep(0.05)


def store_is_ready(service: Served) -> bool:
    return bool(service.client.get("/readyz").json()["store"]["ready"])


def files(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]


def test_a_store_that_is_taken_away_sells_nothing_and_one_that_is_put_back_goes_on(
    service: Served, buyer: Buyer
) -> None:
    key = new_key()
    payload = buyer.sign(key)
    assert buyer.post(key, payload).status_code == 200
    for file in files(service.database):
        file.rename(file.with_name(f"away-{file.name}"))
    until(lambda: store_is_ready(service), False)
    for asked in (None, payload):
        answer = buyer.post(key if asked else new_key(), asked)
        assert (answer.status_code, answer.json()["code"]) == (503, "STATE_UNAVAILABLE")
        assert "payment-required" not in answer.headers
    assert not service.database.exists()
    for file in files(service.database):
        file.with_name(f"away-{file.name}").rename(file)
    until(lambda: store_is_ready(service), True)
    assert buyer.post(key, payload).headers["idempotent-replayed"] == "true"
    other = new_key()
    assert buyer.post(other, buyer.sign(other)).status_code == 200


def test_an_older_copy_in_its_place_is_told_and_sells_nothing_until_the_newest_is_back(
    service: Served, buyer: Buyer
) -> None:
    first, second = new_key(), new_key()
    assert buyer.post(first, buyer.sign(first)).status_code == 200
    older, newest = service.database.with_name("older.db"), service.database.with_name("newest.db")
    back_up(service, older)
    payload = buyer.sign(second)
    assert buyer.post(second, payload).status_code == 200
    back_up(service, newest)

    put_in_place(service, older)
    until(lambda: store_is_ready(service), False)
    assert service.client.get("/readyz").json()["store"]["reason"] == "the record of purchases cannot be read"
    again = buyer.post(second, payload)
    assert (again.status_code, again.json()["code"]) == (503, "STATE_UNAVAILABLE"), (
        "it was sold, and would be sold again"
    )

    put_in_place(service, newest)
    until(lambda: store_is_ready(service), True)
    assert buyer.post(second, payload).headers["idempotent-replayed"] == "true"


def back_up(service: Served, target: Path) -> None:
    async def copy() -> None:
        store = service.open_store()
        await store.open()
        await store.back_up(target)
        await store.close()

    asyncio.run(copy())


def put_in_place(service: Served, copy: Path) -> None:
    for file in files(service.database)[1:]:
        file.unlink(missing_ok=True)
    copy.rename(service.database)
