"""Secrets and releases change while replicas sell over MPP, as docs/operate.md says: who has signed is served."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ranking_evaluate.release import VERSION
from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.faults.served import Served, served
from tests.faults.tempo_proxy import Tempo, running_tempo
from tests.payments.mpp_shopper import PATH, PRICE, Shopper, slug, told

SOLD = (200, None)
REJECTED = (402, "PAYMENT_REJECTED")
OLD_RELEASE = "0.28.0"
PREVIOUS = "https://previous.rank.example.org"


@pytest.fixture(scope="module")
def tempo() -> Iterator[Tempo]:
    with running_tempo() as started:
        yield started


@pytest.fixture
def environment(tempo: Tempo) -> dict[str, str]:
    return {
        "MPP_RECIPIENT": new_wallet().address,
        "MPP_CHAIN_ID": str(CHAIN_ID),
        "MPP_RPC_URL": tempo.proxy.url,
        "MPP_CURRENCY": PATH_USD,
        "MPP_SECRET_KEY": secrets.token_urlsafe(48),
        # Replicas have one name.
        "PUBLIC_ORIGIN": "https://rank.example.org",
    }


def purchases(tempo: Tempo, replicas: list[Served]) -> list[tuple[int, str | None]]:
    """Buy once for each pair of replicas: the terms of one, paid for at the other."""
    outcomes = []
    for asked in replicas:
        for paid in replicas:
            shopper = Shopper(asked.client, tempo.payer)
            credential = shopper.sign()
            outcomes.append(told(Shopper(paid.client, tempo.payer, shopper.key).post(credential)))
    return outcomes


def step(tempo: Tempo, database: Path, *environments: dict[str, str]) -> list[tuple[int, str | None]]:
    with ExitStack() as stack:
        return purchases(tempo, [stack.enter_context(served(database, each)) for each in environments])


def test_a_secret_that_is_announced_before_it_is_used_refuses_nobody(
    tempo: Tempo, environment: dict[str, str], tmp_path: Path
) -> None:
    old, new = environment["MPP_SECRET_KEY"], secrets.token_urlsafe(48)
    before = environment
    announced = {**environment, "MPP_PREVIOUS_SECRET_KEY": new}
    in_use = {**environment, "MPP_SECRET_KEY": new, "MPP_PREVIOUS_SECRET_KEY": old}
    after = {**environment, "MPP_SECRET_KEY": new}
    database = tmp_path / "attempts.db"
    # One replica after the other is restarted with the next of the three.
    for first, second in ((announced, before), (announced, announced), (in_use, announced), (in_use, in_use)):
        assert step(tempo, database, first, second) == [SOLD] * 4
    # The old one is dropped when its last challenge is over.
    assert step(tempo, database, after, in_use) == [SOLD] * 4
    # In the order of the older documents the replica that does not know the new secret refuses it.
    assert sorted(step(tempo, database, in_use, before)) == [SOLD, SOLD, SOLD, REJECTED]


def test_the_order_of_an_upgrade_refuses_nobody_who_has_signed(
    tempo: Tempo, environment: dict[str, str], tmp_path: Path
) -> None:
    database = tmp_path / "attempts.db"
    new_environment = {**environment, "PREVIOUS_ORIGIN": PREVIOUS}
    with served(database, {**environment, "MPP_CHALLENGE_SECONDS": "25"}, OLD_RELEASE) as old:
        bought = Shopper(old.client, tempo.payer)
        credential = bought.sign()
        sold = bought.post(credential)
        late = Shopper(old.client, tempo.payer)
        signed = late.sign()
        # The proxy gives out no terms from here on; whoever has signed still comes to the old release.
        late_answer = late.post(signed)
        assert (told(sold), told(late_answer)) == (SOLD, SOLD)
        # What comes after the challenge's time has an end of its own, whichever release it meets.
        stray = Shopper(old.client, tempo.payer)
        stray_signed = stray.sign()
    with (
        served(database, new_environment) as new,
        served(database, {**environment, "PUBLIC_ORIGIN": PREVIOUS, "PAYMENT_RATE": "0/day"}, OLD_RELEASE) as previous,
    ):
        assert purchases(tempo, [new]) == [SOLD]
        for shopper, paid, first in ((bought, credential, sold), (late, signed, late_answer)):
            refused = Shopper(new.client, tempo.payer, shopper.key).post(paid)
            assert (refused.status_code, refused.json()["cause"]) == (409, "release")
            assert f"{PREVIOUS}{PATH}" in refused.json()["detail"].split()
            again = Shopper(previous.client, tempo.payer, shopper.key).post(paid)
            assert (told(again), again.content) == (SOLD, first.content)
        unsold = Shopper(previous.client, tempo.payer).post()
        assert (unsold.status_code, unsold.json()["cause"]) == (503, "ended")
        # A challenge of the other release is answered as what it is; it costs nothing, and the new one is good.
        moved = tempo.chain.balance(environment["MPP_RECIPIENT"])
        refused = Shopper(new.client, tempo.payer, stray.key).post(stray_signed)
        assert (told(refused), slug(refused)) == (REJECTED, "invalid-challenge")
        said = refused.json()["detail"]
        assert f"for another release: {OLD_RELEASE}, and this is {VERSION}" in said
        assert "Its transaction was not sent" in said
        assert tempo.chain.balance(environment["MPP_RECIPIENT"]) == moved
        fresh = Shopper(new.client, tempo.payer, stray.key)
        assert told(fresh.post(fresh.sign(refused.headers["www-authenticate"]))) == SOLD
        assert tempo.chain.balance(environment["MPP_RECIPIENT"]) == moved + PRICE
