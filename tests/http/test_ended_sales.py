"""Where sales have ended nothing is offered or taken, and what was bought is answered as ever."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from ranking_evaluate.payments.protocol import Refused, Uncertain
from ranking_evaluate.release import VERSION
from tests.fakes import VALID_SECONDS, Signed
from tests.http.conftest import BODY, JSON, KEY, PATH, Options, Service, running

pytestmark = pytest.mark.anyio

OTHER_KEY = "purchase-of-tuesday-0002"
UNCERTAIN_KEY = "purchase-of-wednesday-03"
FAILED_KEY = "purchase-of-thursday-0004"


@dataclasses.dataclass
class Ended:
    """A service that has ended its sales, and what it had sold before."""

    service: Service
    sold: httpx.Response


@pytest.fixture
async def ended(tmp_path: Path) -> AsyncIterator[Ended]:
    path = tmp_path / "attempts.db"
    async with running(path, Options()) as selling:
        sold = await selling.pay()
        selling.protocol.settler = lambda signed, offer: Uncertain("no answer")
        assert (await selling.pay("lost", UNCERTAIN_KEY)).status_code == 409
        selling.protocol.settler = lambda signed, offer: Refused("the payer has no money")
        assert (await selling.pay("poor", FAILED_KEY)).status_code == 402
    async with running(path, Options(payment_rate="0/day")) as service:
        yield Ended(service, sold)
        assert service.protocol.ledger.calls == {}


def refuses(answer: httpx.Response) -> bool:
    said = answer.json()
    challenge = "x-scripted-challenge" in answer.headers
    return (
        (answer.status_code, said["code"], said["cause"]) == (503, "PAYMENT_UNAVAILABLE", "ended")
        and (said["retryable"], said["retryAfter"], answer.headers.get("retry-after")) == (False, None, None)
        and not challenge
    )


async def test_no_challenge_goes_out_and_no_payment_is_taken(ended: Ended) -> None:
    service = ended.service
    assert refuses(await service.post(("Idempotency-Key", OTHER_KEY), *JSON.items()))
    assert refuses(await service.pay("second", OTHER_KEY))
    assert refuses(await service.client.get(PATH))
    assert refuses(await service.client.post(PATH))
    assert (await service.client.get("/v1/attempts", headers={"Idempotency-Key": OTHER_KEY})).status_code == 404
    # A key whose payment failed may be paid again elsewhere, and not here.
    assert refuses(await service.pay("poor", FAILED_KEY))
    assert refuses(await service.pay("richer", FAILED_KEY))


async def test_what_was_bought_is_delivered_and_conflicts_are_told_as_ever(ended: Ended) -> None:
    service = ended.service
    for _ in range(3):
        again = await service.pay()
        assert (again.status_code, again.content) == (200, ended.sold.content)
        assert again.headers["idempotent-replayed"] == "true"
    for answer, code in (
        (await service.post(), "IDEMPOTENCY_CONFLICT"),
        (await service.pay("another"), "IDEMPOTENCY_CONFLICT"),
        (await service.pay("first", OTHER_KEY), "DUPLICATE_PROOF"),
        (await service.pay("lost", UNCERTAIN_KEY), "PAYMENT_UNCERTAIN"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert (await service.client.get("/v1/attempts", headers={"Idempotency-Key": KEY})).json()["state"] == "settled"


async def test_an_input_is_refused_as_ever(ended: Ended) -> None:
    assert (await ended.service.post(body=b"{")).status_code == 400


async def test_the_service_says_that_it_does_not_sell(ended: Ended) -> None:
    service = ended.service
    ready = await service.client.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert ready.json()["rails"]["scripted"]["configured"] is True
    assert "sales have ended here" in ready.json()["rails"]["scripted"]["reason"]
    assert (await service.client.get("/healthz")).status_code == 200
    facts = (await service.client.get("/preflight")).json()["operations"][0]["facts"]
    assert facts["payment.scripted"] is False


@pytest.mark.parametrize("origin", [None, "https://previous.rank.example"])
async def test_what_the_previous_release_sold_names_where_that_one_answers(tmp_path: Path, origin: str | None) -> None:
    path = tmp_path / "attempts.db"
    async with running(path, Options(release="0.28.0")) as old:
        sold = await old.pay()
    async with running(path, Options(previous_origin=origin)) as new:
        refused = await new.pay()
        assert (refused.status_code, refused.json()["cause"]) == (409, "release")
        said = refused.json()["detail"]
        assert "release 0.28.0" in said
        assert f"this is release {VERSION}" in said
        named = [word for word in said.split() if "://" in word]
        assert named == ([] if origin is None else [origin + PATH])
        bought = await new.pay("second", OTHER_KEY)
    async with running(path, Options(release="0.28.0", payment_rate="0/day")) as previous:
        again = await previous.pay()
        assert (again.status_code, again.content) == (200, sold.content)
        # What the new one sells opens no window here, and the old one sells nothing more.
        assert (await previous.pay("second", OTHER_KEY)).json()["cause"] == "release"
        assert refuses(await previous.pay("third", "purchase-of-friday-00005"))
    assert bought.status_code == 200


async def test_what_is_signed_for_one_key_is_asked_at_a_client_s_own_pace(ended: Ended) -> None:
    """However often it is asked: nobody is counted, so 429 never hides that sales have ended."""
    signed = Signed(OTHER_KEY, "again", ended.service.clock.now() + VALID_SECONDS)
    (credential,) = signed.header().items()
    for _ in range(5):
        assert refuses(await ended.service.post(("Idempotency-Key", OTHER_KEY), *JSON.items(), credential, body=BODY))
