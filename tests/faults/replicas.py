"""Two replicas of the walk on one PostgreSQL, and rounds of callers that all send the same; also for long trials."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.errors import ServiceError
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.operations.registry import find
from ranking_evaluate.order import Delivery, Order
from ranking_evaluate.payments.protocol import Offer, Settled, Settlement, Uncertain
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from tests.fakes import VALID_SECONDS, Ledger, ScriptedProtocol, Signed

BODY: Final = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'
COPIES: Final = 50
SETTLE_SECONDS: Final = 0.005


@dataclass
class Replica:
    """One process of the service, but for the process: a store, a protocol and a walk of its own."""

    store: PostgresStore
    ledger: Ledger
    protocol: ScriptedProtocol = field(init=False)
    purchases: Purchases = field(init=False)

    def __post_init__(self) -> None:
        self.protocol = ScriptedProtocol(self.ledger)
        self.protocol.settler = lambda signed, offer: asyncio.ensure_future(self.settle(signed, offer))
        rates = Rates("memory://", None, None)
        self.purchases = Purchases(
            self.store,
            rates,
            Evaluations(1, None),
            (self.protocol.wire,),
            chains=Chains(()),
            verify_timeout=60.0,
            settle_timeout=60.0,
        )

    async def settle(self, signed: Signed, offer: Offer) -> Settlement:
        await asyncio.sleep(SETTLE_SECONDS)
        if self.ledger.move(signed.proof, offer.key):
            return Settled(f"receipt of {signed.proof}", f"tx of {signed.proof}", "payer")
        return Uncertain("the chain has it already")

    async def buy(self, signed: Signed) -> Delivery | ServiceError:
        order = Order(
            operation=find("ranking-evaluate"),
            wire=self.protocol.wire,
            protocol=self.protocol,
            key=signed.key,
            url="http://service.test/v1/scripted/ranking-evaluate",
            body=BODY,
            headers=signed.header(),
            client="caller",
        )
        try:
            return await self.purchases.buy(order)
        except ServiceError as error:
            return error


@asynccontextmanager
async def replicas(url: str, ledger: Ledger) -> AsyncIterator[list[Replica]]:
    """Run two replicas on one database."""
    running = [Replica(PostgresStore(url), ledger) for _ in range(2)]
    for replica in running:
        await replica.store.open()
    try:
        yield running
    finally:
        for replica in running:
            await replica.purchases.drain()
            await replica.store.close()


async def identical_requests_settle_once(running: list[Replica], ledger: Ledger, number: int) -> None:
    """One round: copies of a first request at all replicas at once, then copies of it again."""
    now = (await running[0].store.read("what-time-is-it-0001")).now
    signed = Signed(f"purchase-number-{number:08d}", f"proof {number}", now + VALID_SECONDS)
    answers = await asyncio.gather(*(running[n % 2].buy(signed) for n in range(COPIES)))
    said = {answer.code if isinstance(answer, ServiceError) else "200" for answer in answers}
    assert said <= {"200", "PAYMENT_IN_PROGRESS"}, said
    assert "200" in said
    assert ledger.calls[signed.proof] == 1, "one authorization was sent to be settled more than once"
    again = await asyncio.gather(*(replica.buy(signed) for replica in running))
    delivered = [answer for answer in (*answers, *again) if isinstance(answer, Delivery)]
    assert all(isinstance(answer, Delivery) and answer.replayed for answer in again)
    assert {(answer.body, answer.receipt) for answer in delivered} == {(again[0].body, f"receipt of {signed.proof}")}  # type: ignore[union-attr]


async def one_proof_under_many_keys_settles_once(running: list[Replica], ledger: Ledger, number: int) -> None:
    """One round: one authorization, relabelled for many keys, at all replicas at once."""
    now = (await running[0].store.read("what-time-is-it-0001")).now
    proof = f"shared proof {number}"
    copies = [Signed(f"key-{n:04d}-of-round-{number:08d}", proof, now + VALID_SECONDS) for n in range(COPIES)]
    answers = await asyncio.gather(*(running[n % 2].buy(copy) for n, copy in enumerate(copies)))
    said = [answer.code if isinstance(answer, ServiceError) else "200" for answer in answers]
    assert sorted(said) == ["200", *["DUPLICATE_PROOF"] * (COPIES - 1)], said
    assert ledger.calls[proof] == 1
