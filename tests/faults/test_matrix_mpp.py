"""Every cell of the fault matrix over MPP, through the whole service, on a real Tempo chain behind a faulty proxy."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from ranking_evaluate.sandbox.funded import Wallet
from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD, PAYER_TOKENS
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.faults.matrix import COLUMNS, MPP, MPP_PAYERS
from tests.faults.served import Served, served
from tests.faults.tempo_proxy import Fault, Tempo, running_tempo
from tests.faults.told import IN_PROGRESS, SOLD
from tests.payments.mpp_shopper import BODY, PATH, PRICE, Shopper, told
from tests.payments.tempo_wallet import Key, TempoWallet

DEADLINE = "3"
LATE_SECONDS = 1.0
"""How long an answer is kept that comes late, but in time to look for the receipt."""

INSTRUMENTS = {Fault.VERIFY_HELD, Fault.SEND_HELD}


@dataclass
class Stage:
    """A service in front of a chain that does as the test says; each column of a row has a payer of its own."""

    service: Served
    tempo: Tempo
    payers: dict[str, Wallet]
    accounts: dict[str, Key]

    @property
    def moved(self) -> int:
        """Payments that reached the service, ever."""
        return self.tempo.chain.balance(self.service.mpp.recipient) // PRICE

    def shopper(self, column: str, payer: str = MPP_PAYERS[0]) -> Shopper:
        """Return somebody with a new key and the column's wallet."""
        if payer == MPP_PAYERS[0]:
            return Shopper(self.service.client, self.payers[column])
        wallet = TempoWallet(self.accounts[column], Key("webcrypto"))
        return FirstTime(self.service.client, self.payers[column], new=wallet, authorized=wallet.authorization())


@dataclass(kw_only=True)
class FirstTime(Shopper):
    """Somebody whose wallet has a new access key for this purchase; it signs again with the same authorization."""

    new: TempoWallet
    authorized: list[Any]

    def sign(self, challenge: str | None = None, **changes: Any) -> str:
        return self.new.pay(challenge or self.challenge(), self.authorized, **changes)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running_tempo() as tempo:
        environment = {
            "MPP_RECIPIENT": new_wallet().address,
            "MPP_CHAIN_ID": str(CHAIN_ID),
            "MPP_RPC_URL": tempo.proxy.url,
            "MPP_CURRENCY": PATH_USD,
            "MPP_SECRET_KEY": secrets.token_urlsafe(48),
            "VERIFY_TIMEOUT": DEADLINE,
            "SETTLE_TIMEOUT": DEADLINE,
        }
        with served(tmp_path_factory.mktemp("matrix") / "attempts.db", environment) as service:
            payers = {column: tempo.chain.new_payer() for column in COLUMNS}
            accounts = {column: Key("passkey") for column in COLUMNS}
            for account in accounts.values():
                tempo.chain.fund(account.account, PAYER_TOKENS)
            yield Stage(service, tempo, payers, accounts)


def further(column: str, shopper: Shopper, credential: str, challenge: str) -> tuple[int, str | None]:
    """Send the further request of a column and return what it is answered; a fresh payment answers the challenge."""
    match column:
        case "identical":
            return told(shopper.post(credential))
        case "fresh":
            return told(shopper.post(shopper.sign(challenge)))
        case "none":
            return told(shopper.post())
        case _:
            return told(shopper.post("Payment %%%"))


@pytest.mark.parametrize("payer", MPP_PAYERS)
@pytest.mark.parametrize("fault", MPP)
def test_every_further_request_is_answered_by_the_table_and_pays_nothing_twice(
    stage: Stage, fault: Fault, payer: str
) -> None:
    _, row = MPP[fault]
    proxy = stage.tempo.proxy
    proxy.reset()
    proxy.hang_seconds = LATE_SECONDS if fault is Fault.REPLY_LATE else float(DEADLINE) + 1
    shoppers = {column: stage.shopper(column, payer) for column in COLUMNS}
    signed = {column: shopper.sign() for column, shopper in shoppers.items()}
    # A client may have got a second one at the same time; where money may have moved, none is to be had any more.
    challenge = shoppers["fresh"].challenge()
    moved, sends = stage.moved, proxy.sends
    proxy.fault = fault
    with ThreadPoolExecutor(len(COLUMNS)) as threads:
        posting = {column: threads.submit(shoppers[column].post, signed[column]) for column in COLUMNS}
    assert {told(posted.result()) for posted in posting.values()} == {row.first}
    assert proxy.sends - sends == row.calls * len(COLUMNS)
    assert {shopper.state() for shopper in shoppers.values()} == {row.state}
    proxy.reset()
    assert stage.moved - moved == row.moves * len(COLUMNS)
    for column, expected in row.columns.items():
        moved, sends = stage.moved, proxy.sends
        assert further(column, shoppers[column], signed[column], challenge) == expected, column
        # What is answered 200 and was not paid before pays now, and nothing else does.
        paid = int(expected == SOLD and row.first != SOLD)
        assert (stage.moved - moved, proxy.sends - sends) == (paid, paid), column


def test_a_caller_that_leaves_mid_settle_gets_its_answer_on_resend(stage: Stage) -> None:
    proxy, shopper = stage.tempo.proxy, stage.shopper("identical")
    proxy.reset()
    credential, moved = shopper.sign(), stage.moved
    proxy.fault = Fault.SEND_HELD
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: {shopper.key}\r\n"
        f"Authorization: {credential}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    url = httpx.URL(stage.service.origin)
    with socket.create_connection((url.host, url.port), timeout=10) as connection:
        connection.sendall(head.encode() + BODY)
        assert proxy.held.wait(5)
    assert told(shopper.post(credential)) == IN_PROGRESS
    proxy.reset()
    give_up = time.monotonic() + 10
    while told(answer := shopper.post(credential)) == IN_PROGRESS:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    assert (told(answer), answer.headers["idempotent-replayed"]) == (SOLD, "true")
    assert (stage.moved - moved, proxy.sends) == (1, 0)


def test_every_fault_has_its_row() -> None:
    assert set(MPP) == set(Fault) - INSTRUMENTS
