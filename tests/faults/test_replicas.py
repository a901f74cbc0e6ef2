"""Replicas on one PostgreSQL: each purchase settles once, also while the database stops and comes back."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.http.app import build_app
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.http.health import ASK_SECONDS
from ranking_evaluate.order import Delivery
from ranking_evaluate.payments.protocol import Offer, Settlement
from ranking_evaluate.rates import Rates
from tests.fakes import VALID_SECONDS, Ledger, Signed
from tests.faults.replicas import (
    BODY,
    Replica,
    identical_requests_settle_once,
    one_proof_under_many_keys_settles_once,
    replicas,
)
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio

ROUNDS = 100
"""scripts/trials runs a thousand."""


async def test_of_fifty_identical_requests_at_two_replicas_one_settles(postgres_server: PostgresServer) -> None:
    ledger = Ledger()
    async with replicas(postgres_server.new_database(), ledger) as running:
        for number in range(ROUNDS):
            await identical_requests_settle_once(running, ledger, number)
    assert len(ledger.moved) == ROUNDS


async def test_of_fifty_keys_with_one_proof_at_two_replicas_one_settles(postgres_server: PostgresServer) -> None:
    ledger = Ledger()
    async with replicas(postgres_server.new_database(), ledger) as running:
        for number in range(ROUNDS // 10):
            await one_proof_under_many_keys_settles_once(running, ledger, number)
    assert len(ledger.moved) == ROUNDS // 10


async def test_without_its_database_the_service_says_503_and_it_recovers_by_itself(
    stoppable_server: PostgresServer,
) -> None:
    replica = Replica(PostgresStore(stoppable_server.new_database()), Ledger())
    app = build_app(
        Parts(
            chains=Chains(()),
            store=replica.store,
            wires=(replica.protocol.wire,),
            protocols=(replica.protocol,),
            purchases=replica.purchases,
            evaluations=replica.purchases._evaluations,
            rates=Rates("memory://", None, None),
            public_origin="https://rank.example",
            max_in_flight=256,
            cors_origins=(),
        )
    )
    transport = httpx.ASGITransport(app)

    async def post(number: int) -> httpx.Response:
        signed = Signed(f"purchase-number-{number:04d}", f"proof {number}", 4e9 + VALID_SECONDS)
        headers = {"Idempotency-Key": signed.key, "Content-Type": "application/json", **signed.header()}
        return await client.post("/v1/scripted/ranking-evaluate", content=BODY, headers=headers)

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="https://rank.example") as client,
    ):
        first = await post(0)
        assert first.status_code == 200
        for number in range(1, 4):
            await asyncio.to_thread(stoppable_server.stop)
            for sent in (0, number):
                refused = await post(sent)
                assert (refused.status_code, refused.json()["code"]) == (503, "STATE_UNAVAILABLE")
                assert int(refused.headers["retry-after"]) >= 1
            assert (await client.get("/healthz")).status_code == 200
            await asyncio.sleep(ASK_SECONDS)
            assert (await client.get("/readyz")).json()["store"]["ready"] is False
            await asyncio.to_thread(stoppable_server.start)
            replayed = await post(0)
            assert (replayed.status_code, replayed.content) == (200, first.content)
            assert (await post(number)).status_code == 200
            await asyncio.sleep(ASK_SECONDS)
            assert (await client.get("/readyz")).status_code == 200
    assert set(replica.ledger.calls.values()) == {1}


async def test_money_that_moves_while_the_database_is_gone_is_recorded_when_it_is_back(
    stoppable_server: PostgresServer,
) -> None:
    ledger = Ledger()
    async with replicas(stoppable_server.new_database(), ledger) as (replica, other):
        original = replica.settle

        async def settle(signed: Signed, offer: Offer) -> Settlement:
            moved = await original(signed, offer)
            await asyncio.to_thread(stoppable_server.stop)
            return moved

        replica.settle = settle  # type: ignore[method-assign]
        signed = Signed("purchase-of-monday-0001", "first", 4e9)
        buying = asyncio.create_task(replica.buy(signed))
        await asyncio.sleep(1)
        assert not buying.done(), "a 200 without a record"
        await asyncio.to_thread(stoppable_server.start)
        delivered, replayed = await buying, await other.buy(signed)
        assert isinstance(delivered, Delivery)
        assert isinstance(replayed, Delivery)
        assert (replayed.body, replayed.receipt) == (delivered.body, delivered.receipt)
    assert ledger.calls == {"first": 1}
