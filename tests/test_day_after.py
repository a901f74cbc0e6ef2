"""What stands after the replay window: paid keys, used proofs and uncertain payments; and between two releases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.errors import ServiceError
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.operations.registry import find
from ranking_evaluate.order import Delivery, Order
from ranking_evaluate.payments.protocol import Offer, Refused, Settled, Settlement, Uncertain
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from ranking_evaluate.release import VERSION
from tests.attempts.samples import DAY, KEY, OTHER_KEY
from tests.attempts.test_store import STORES
from tests.fakes import FixedClock, ScriptedProtocol, Signed

pytestmark = pytest.mark.anyio

BODY = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'


@dataclass
class Shop:
    """A walk over a real store, with time in the test's hands."""

    store: AttemptStore
    clock: FixedClock
    protocol: ScriptedProtocol
    release: str = VERSION
    outcome: Settlement | None = None

    def settle(self, signed: Signed, offer: Offer) -> Settlement:
        return self.outcome or Settled(f"receipt of {signed.proof}", f"tx of {signed.proof}", "payer")

    def signed(self, proof: str, key: str = KEY) -> Signed:
        # What can still be sent is what counts here, not whether its own terms are over.
        return Signed(key, proof, self.clock() + 400 * DAY)

    async def says(self, signed: Signed | None, key: str = KEY) -> str:
        """Return what a request is answered: 200, or the code with its cause."""
        order = Order(
            operation=find("ranking-evaluate"),
            wire=self.protocol.wire,
            protocol=self.protocol,
            key=key,
            url="http://service.test/v1/scripted/ranking-evaluate",
            body=BODY,
            headers=signed.header() if signed else {},
            client="caller",
        )
        rates = Rates("memory://", None, None)
        purchases = Purchases(
            self.store,
            rates,
            Evaluations(1, None),
            (self.protocol.wire,),
            chains=Chains(()),
            verify_timeout=5.0,
            settle_timeout=5.0,
            clock=self.clock,
            release=self.release,
        )
        try:
            delivery: Delivery = await purchases.buy(order)
        except ServiceError as error:
            return f"{error.code} {error.cause}" if error.cause else error.code
        return "200 replayed" if delivery.replayed else "200"

    async def days_pass(self, days: float, *, purge: bool) -> None:
        self.clock.advance(days * DAY)
        while purge and await self.store.purge(1):
            pass


@pytest.fixture(params=STORES)
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    clock = FixedClock()
    store: AttemptStore = request.param(request, clock)()
    await store.open()
    protocol = ScriptedProtocol()
    made = Shop(store, clock, protocol)
    protocol.settler = made.settle
    yield made
    await store.close()


PURGED = pytest.mark.parametrize("purge", [False, True], ids=["kept", "purged"])


@PURGED
async def test_a_paid_key_is_replayed_for_a_day_and_never_sold_again(shop: Shop, purge: bool) -> None:
    first = shop.signed("first")
    assert await shop.says(first) == "200"
    await shop.days_pass(0.999, purge=purge)
    assert await shop.says(first) == "200 replayed"
    for days in (0.001, 30, 300):
        await shop.days_pass(days, purge=purge)
        for sent in (first, shop.signed(f"fresh after {days}"), None):
            assert await shop.says(sent) == "IDEMPOTENCY_CONFLICT expired"
    assert shop.protocol.ledger.calls == {"first": 1}


@PURGED
async def test_a_failed_key_is_free_after_a_day_and_its_proof_is_not(shop: Shop, purge: bool) -> None:
    first = shop.signed("first")
    shop.outcome = Refused("the script refuses")
    assert await shop.says(first) == "PAYMENT_REJECTED"
    await shop.days_pass(1, purge=purge)
    assert await shop.says(None) == "PAYMENT_REQUIRED"
    shop.outcome = None
    assert await shop.says(first) == "DUPLICATE_PROOF"
    assert await shop.says(shop.signed("first", OTHER_KEY), OTHER_KEY) == "DUPLICATE_PROOF"
    assert await shop.says(shop.signed("second")) == "200"
    assert shop.protocol.ledger.calls == {"first": 1, "second": 1}


@PURGED
async def test_a_paid_proof_buys_nothing_under_any_key_for_ever(shop: Shop, purge: bool) -> None:
    assert await shop.says(shop.signed("first")) == "200"
    await shop.days_pass(400, purge=purge)
    assert await shop.says(shop.signed("first", OTHER_KEY), OTHER_KEY) == "DUPLICATE_PROOF"


@PURGED
async def test_an_uncertain_payment_waits_for_its_operator_however_long(shop: Shop, purge: bool) -> None:
    first = shop.signed("first")
    shop.outcome = Uncertain("no answer")
    assert await shop.says(first) == "PAYMENT_UNCERTAIN"
    await shop.days_pass(300, purge=purge)
    for sent in (first, shop.signed("second"), None):
        assert await shop.says(sent) == "PAYMENT_UNCERTAIN"
    assert len(await shop.store.recent()) == 1


async def test_another_release_within_the_day_is_a_conflict_with_its_cause(shop: Shop) -> None:
    first = shop.signed("first")
    assert await shop.says(first) == "200"
    shop.release = "0.30.0"
    for sent in (first, shop.signed("second"), None):
        assert await shop.says(sent) == "IDEMPOTENCY_CONFLICT release"
    shop.release = VERSION
    assert await shop.says(first) == "200 replayed"
