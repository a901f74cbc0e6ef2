"""The service dies at each named point of one purchase over MPP, on a real Tempo chain, and is started again.

What the identical request gets then stands in docs/lifecycle.md, section 6. The trials do the same over x402, with
many purchases at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.faults.crashing_service import ALL_POINTS
from tests.faults.lives import Nursery, Replicas
from tests.faults.tempo_proxy import Fault, Tempo, running_tempo
from tests.faults.told import IN_PROGRESS, REJECTED, SOLD, UNKNOWN
from tests.judges.tempo_wallets import Wallets
from tests.payments.mpp_shopper import PRICE, Shopper, told

DEADLINE: Final = 3.0
RESERVED_SECONDS: Final = DEADLINE + 20
SETTLING_SECONDS: Final = DEADLINE + 10

NOTHING_WRITTEN: Final = ("before RESERVE", "before the COMMIT of RESERVE")
NOTHING_SENT: Final = (
    "after the COMMIT of RESERVE",
    "after RESERVE",
    "before the verification",
    "after the verification",
    "before SUBMIT",
    "before the COMMIT of SUBMIT",
)
SUBMITTED: Final = ("after the COMMIT of SUBMIT", "after SUBMIT", "before the settle call")
MOVED: Final = ("after the settle call", "before SETTLED", "before the COMMIT of SETTLED")
RECORDED: Final = ("after the COMMIT of SETTLED", "after SETTLED", "before the answer", "within the answer")


@dataclass
class Stage:
    """One replica of the service in front of a chain."""

    lives: Replicas
    tempo: Tempo
    recipient: str
    client: httpx.Client

    @property
    def moved(self) -> int:
        """Payments that reached the service, ever."""
        return self.tempo.chain.balance(self.recipient) // PRICE

    def die_while_buying(self, shopper: Shopper, credential: str, point: str) -> None:
        """Buy, and let the service die at the point."""
        self.lives.strings.doom(0, point)
        with contextlib.suppress(httpx.TransportError):
            answer = shopper.post(credential)
            raise AssertionError(f"it lives, and answers {told(answer)}")
        self.rise()

    def rise(self) -> None:
        """Start the service again, at the true time."""
        asyncio.run(self.lives.revive([0]))
        self.lives.strings.shift = 0.0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("crashes")
    recipient = new_wallet().address
    with running_tempo() as tempo, Nursery() as nursery:
        settings = {
            "DATABASE_URL": f"sqlite:///{directory / 'attempts.db'}",
            "MPP_RECIPIENT": recipient,
            "MPP_CHAIN_ID": str(CHAIN_ID),
            "MPP_RPC_URL": tempo.proxy.url,
            "MPP_CURRENCY": PATH_USD,
            "MPP_SECRET_KEY": secrets.token_urlsafe(48),
            "MPP_CHALLENGE_SECONDS": "25",
            "VERIFY_TIMEOUT": str(DEADLINE),
            "SETTLE_TIMEOUT": str(DEADLINE),
            "REQUEST_RATE": "",
            "PAYMENT_RATE": "",
        }
        lives = Replicas(nursery, directory, {f"RANKING_EVALUATE_{name}": value for name, value in settings.items()})
        asyncio.run(lives.open())
        with httpx.Client(base_url=f"http://127.0.0.1:{lives.ports[0]}", trust_env=False, timeout=20) as client:
            yield Stage(lives, tempo, recipient, client)
        lives.close()


@pytest.fixture
def shopper(stage: Stage) -> Iterator[Shopper]:
    stage.tempo.proxy.reset()
    stage.lives.strings.shift = 0.0
    yield Shopper(stage.client, stage.tempo.payer)
    stage.tempo.proxy.reset()


def test_every_point_is_tried() -> None:
    assert sorted((*NOTHING_WRITTEN, *NOTHING_SENT, *SUBMITTED, *MOVED, *RECORDED)) == sorted(ALL_POINTS)


@pytest.mark.parametrize("point", NOTHING_WRITTEN)
def test_before_anything_is_written_the_identical_request_buys(stage: Stage, shopper: Shopper, point: str) -> None:
    credential, moved = shopper.sign(), stage.moved
    stage.die_while_buying(shopper, credential, point)
    assert (shopper.state(), stage.moved) == (None, moved)
    assert told(shopper.post(credential)) == SOLD
    assert stage.moved == moved + 1


@pytest.mark.parametrize("point", NOTHING_SENT)
def test_a_reservation_is_in_progress_until_its_lease_is_over_and_then_nothing(
    stage: Stage, shopper: Shopper, point: str
) -> None:
    credential, moved = shopper.sign(), stage.moved
    stage.die_while_buying(shopper, credential, point)
    assert shopper.state() == "reserved"
    assert told(shopper.post(credential)) == told(shopper.post()) == IN_PROGRESS
    stage.lives.strings.shift = RESERVED_SECONDS
    # Nothing had moved, and by now this transaction could not land any more.
    assert shopper.state() is None
    assert told(shopper.post(credential)) == REJECTED
    assert stage.moved == moved


@pytest.mark.parametrize("point", [*SUBMITTED, *MOVED])
def test_a_submitted_payment_is_in_progress_and_then_uncertain_and_never_made_again(
    stage: Stage, shopper: Shopper, point: str
) -> None:
    challenge = shopper.challenge()
    credential, moved = shopper.sign(), stage.moved
    stage.die_while_buying(shopper, credential, point)
    check_uncertain(stage, shopper, credential, challenge)
    assert stage.moved == moved + (point in MOVED)


@pytest.mark.parametrize("fault", [Fault.SEND_HELD, Fault.REPLY_LATE])
def test_killed_while_the_node_has_the_transaction_it_is_uncertain_whatever_became_of_it(
    stage: Stage, shopper: Shopper, fault: Fault
) -> None:
    challenge = shopper.challenge()
    credential = shopper.sign()
    die_while_the_node_has_it(stage, shopper, credential, fault)
    check_uncertain(stage, shopper, credential, challenge)


def die_while_the_node_has_it(stage: Stage, shopper: Shopper, credential: str, fault: Fault) -> None:
    """Buy, kill the service between the send and the receipt, and start it again; the payment is made once."""
    proxy, moved = stage.tempo.proxy, stage.moved
    proxy.fault, proxy.hang_seconds = fault, DEADLINE

    async def buy_and_die() -> None:
        buying = asyncio.create_task(asyncio.to_thread(shopper.post, credential))
        await until(lambda: proxy.sends == 1 and (proxy.held.is_set() or stage.moved == moved + 1))
        stage.lives.kill(0)
        with contextlib.suppress(httpx.TransportError):
            raise AssertionError(f"it lives, and answers {told(await buying)}")

    asyncio.run(buy_and_die())
    stage.rise()
    # What the node still held goes to the chain now, after the sender's death.
    proxy.reset()
    asyncio.run(until(lambda: stage.moved == moved + 1))


WALLETS: Final = [
    ("secp256k1", None),
    ("p256", None),
    ("passkey", None),
    ("secp256k1", "secp256k1"),
    ("p256", "p256"),
    ("passkey", "webcrypto"),
]


@pytest.mark.parametrize("fault", [Fault.SEND_HELD, Fault.REPLY_LATE])
@pytest.mark.parametrize(("root", "key"), WALLETS, ids=str)
def test_killed_between_the_send_and_the_receipt_every_wallet_has_paid_once(
    stage: Stage, shopper: Shopper, root: str, key: str | None, fault: Fault
) -> None:
    """The official client signs; an access key's payment is its first, with its authorization."""
    with Wallets(stage.tempo.proxy.url) as wallets:
        stage.tempo.chain.fund(wallets.open("the wallet", root, key), 1_000_000)
        credential = wallets.sign("the wallet", shopper.challenge())
    die_while_the_node_has_it(stage, shopper, credential, fault)
    sends = stage.tempo.proxy.sends
    for shift, expected in ((0.0, IN_PROGRESS), (SETTLING_SECONDS, UNKNOWN)):
        stage.lives.strings.shift = shift
        assert told(shopper.post(credential)) == expected
    assert (shopper.state(), stage.tempo.proxy.sends) == ("uncertain", sends)


async def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)


def check_uncertain(stage: Stage, shopper: Shopper, credential: str, challenge: str) -> None:
    sends = stage.tempo.proxy.sends
    assert shopper.state() == "settling"
    assert told(shopper.post(credential)) == told(shopper.post()) == IN_PROGRESS
    stage.lives.strings.shift = SETTLING_SECONDS
    for sent in (credential, shopper.sign(challenge), None, "Payment %%%", credential):
        assert told(shopper.post(sent)) == UNKNOWN
    assert shopper.state() == "uncertain"
    assert stage.tempo.proxy.sends == sends


@pytest.mark.parametrize("point", RECORDED)
def test_once_it_is_recorded_the_identical_request_is_replayed(stage: Stage, shopper: Shopper, point: str) -> None:
    credential, moved = shopper.sign(), stage.moved
    stage.die_while_buying(shopper, credential, point)
    assert shopper.state() == "settled"
    answers = [shopper.post(credential) for _ in range(2)]
    assert {(told(answer), answer.headers["idempotent-replayed"]) for answer in answers} == {(SOLD, "true")}
    assert answers[0].headers["payment-receipt"] == answers[1].headers["payment-receipt"]
    assert stage.moved == moved + 1
