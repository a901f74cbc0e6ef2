"""MPP through the whole service: each cell of the decision table and each outcome of a payment, on a real Tempo chain.

Walk, store and adapter are the real ones; between service and chain stands a proxy that can misbehave. The x402 side
is there because of the one thing that both protocols share: the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from mpp import Challenge, Credential

from ranking_evaluate.attempts.events import OperatorRelease
from ranking_evaluate.cli.payers.payer import Mandate
from ranking_evaluate.cli.payers.x402 import sign as sign_x402
from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.payments.mpp.protocol import MppProtocol
from ranking_evaluate.payments.mpp.transaction import read_transaction
from ranking_evaluate.payments.protocol import Offer
from ranking_evaluate.release import VERSION
from ranking_evaluate.sandbox.funded import Wallet
from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.faults.facilitator import Fault as X402Fault
from tests.faults.facilitator import FaultyFacilitator, ledger_only
from tests.faults.served import Served, served
from tests.faults.tempo_proxy import Fault, Tempo, running_tempo
from tests.payments import mpp_buyer as buyer
from tests.payments.malformed_mpp import malformed
from tests.payments.mpp_shopper import BODY, OPERATION, OTHER_BODY, PATH, PRICE, Shopper, carry_over, slug, told

X402_PATH: Final = f"/v1/x402/{OPERATION}"
X402_NETWORK: Final = "eip155:31337"
X402_ASSET: Final = "0x" + "5f" * 20
DAY: Final = 24 * 3600.0
SECOND_SECRET, THIRD_SECRET = "2" * 32, "3" * 32

REQUIRED = (402, "PAYMENT_REQUIRED")
REJECTED = (402, "PAYMENT_REJECTED")
CONFLICT = (409, "IDEMPOTENCY_CONFLICT")
DUPLICATE = (409, "DUPLICATE_PROOF")
IN_PROGRESS = (409, "PAYMENT_IN_PROGRESS")
UNCERTAIN = (409, "PAYMENT_UNCERTAIN")
UNAVAILABLE = (503, "PAYMENT_UNAVAILABLE")
SOLD = (200, None)


@dataclass
class Stage:
    """A service between a chain and a facilitator that do as the test says."""

    service: Served
    tempo: Tempo
    facilitator: FaultyFacilitator

    @cached_property
    def spent(self) -> str:
        """A credential that has paid here, for a key of its own."""
        shopper = self.shopper()
        credential = shopper.sign()
        assert told(shopper.post(credential)) == SOLD
        return credential

    def calm(self) -> None:
        """Let everything work, at the true time."""
        self.tempo.proxy.reset()
        self.facilitator.reset()
        self.service.clock.shift = 0.0

    def shopper(self, wallet: Wallet | None = None) -> Shopper:
        return Shopper(self.service.client, wallet or self.tempo.payer)

    @property
    def moved(self) -> int:
        """Base units that reached the service, ever."""
        return self.tempo.chain.balance(self.service.mpp.recipient)

    @contextlib.contextmanager
    def moving(self, units: int, sends: int | None = None) -> Iterator[None]:
        """Hold the block to the money that it moves, and to the transactions that it sends."""
        before, sent_before = self.moved, self.tempo.proxy.sends
        yield
        assert self.moved - before == units
        assert self.tempo.proxy.sends - sent_before == (units // PRICE if sends is None else sends)


@pytest.fixture(scope="module")
def tempo_session() -> Iterator[Tempo]:
    with running_tempo() as tempo:
        yield tempo


@pytest.fixture(scope="module")
def facilitator() -> Iterator[FaultyFacilitator]:
    with FaultyFacilitator(ledger_only(X402_NETWORK)) as running:
        yield running


@pytest.fixture(scope="module")
def environment(tempo_session: Tempo, facilitator: FaultyFacilitator) -> dict[str, str]:
    return {
        "MPP_RECIPIENT": new_wallet().address,
        "MPP_CHAIN_ID": str(CHAIN_ID),
        "MPP_RPC_URL": tempo_session.proxy.url,
        "MPP_CURRENCY": PATH_USD,
        "MPP_SECRET_KEY": secrets.token_urlsafe(48),
        "X402_PAY_TO": new_wallet().address,
        "X402_NETWORK": X402_NETWORK,
        "X402_ASSET": X402_ASSET,
        "X402_ASSET_NAME": "Sandbox Dollar",
        "X402_ASSET_VERSION": "1",
        "X402_FACILITATOR_URL": facilitator.url,
        "VERIFY_TIMEOUT": "15",
        "SETTLE_TIMEOUT": "15",
    }


@pytest.fixture(scope="module")
def patient(
    environment: dict[str, str],
    tempo_session: Tempo,
    facilitator: FaultyFacilitator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    with served(tmp_path_factory.mktemp("patient") / "attempts.db", environment) as running:
        yield Stage(running, tempo_session, facilitator)


@pytest.fixture(scope="module")
def impatient(
    environment: dict[str, str],
    tempo_session: Tempo,
    facilitator: FaultyFacilitator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    settings = {**environment, "MPP_RECIPIENT": new_wallet().address, "VERIFY_TIMEOUT": "3", "SETTLE_TIMEOUT": "2"}
    with served(tmp_path_factory.mktemp("impatient") / "attempts.db", settings) as running:
        yield Stage(running, tempo_session, facilitator)


@pytest.fixture
def stage(patient: Stage) -> Iterator[Stage]:
    """A service that waits long enough for everything that can be known."""
    patient.calm()
    yield patient
    patient.calm()


@pytest.fixture
def hasty(impatient: Stage) -> Iterator[Stage]:
    """A service that waits for two seconds only, so that what cannot be known is called so soon."""
    impatient.calm()
    yield impatient
    impatient.calm()


def issue(config: MppConfig, key: str, *, life: int = 300, **changes: Any) -> str:
    """Return a challenge that a service of this configuration would make for another offer than the usual one."""
    usual = {
        "operation": OPERATION,
        "description": "One paid evaluation",
        "release": VERSION,
        "url": f"http://{config.realm}{PATH}",
        "key": key,
        "amount": PRICE,
        "body": BODY,
    }

    async def make() -> str:
        protocol = MppProtocol(replace(config, challenge_seconds=life))
        try:
            return str((await protocol.challenge(Offer(**{**usual, **changes}))).headers["www-authenticate"])
        finally:
            await protocol.close()

    return asyncio.run(make())


# Where a key may stand, and how it comes to stand there.


@dataclass
class Standing:
    """A key in one state, and credentials to send for it; `same` is the one of the state, if there is any."""

    stage: Stage
    shopper: Shopper
    challenges: list[str]
    same: str
    x402: dict[str, str]
    first_answer: httpx.Response | None = None

    def fresh(self) -> str:
        """Return a good credential of another challenge, which a client may have got at the same time."""
        return self.shopper.sign(self.challenges[1])

    def recorded(self, own: bool) -> Iterator[str]:
        """Yield other credentials one of whose proofs is recorded: by this key's attempt, and by another key's."""
        spent = self.stage.spent
        yield carry_over(spent, self.challenges[2])
        yield carry_over(spent, self.challenges[2], signature="0x" + transaction_of(spent)[2:].upper())
        if own:
            transaction = transaction_of(self.same)
            yield carry_over(self.same, self.challenges[2])
            yield self.shopper.sign(self.challenges[0], gas_limit=999_999)
            issued = Challenge.from_www_authenticate(self.challenges[2])
            for spelled in (hash_of(transaction), "0x" + hash_of(transaction)[2:].upper()):
                yield buyer.present(issued, {"type": "hash", "hash": spelled})

    def unreadable(self) -> Iterator[str]:
        yield "Payment"
        yield "Payment %%%"
        yield self.same[: len(self.same) // 2]
        yield f"{self.same}, {self.same}"

    def expired(self) -> str:
        challenge = issue(self.stage.service.mpp, self.shopper.key, life=-1)
        return self.shopper.sign(challenge)


def transaction_of(credential: str) -> str:
    return str(Credential.from_authorization(credential).payload["signature"])


def hash_of(transaction: str) -> str:
    return read_transaction(transaction).hash


def prepare(stage: Stage, **changes: Any) -> Standing:
    shopper = stage.shopper()
    challenges = [shopper.challenge() for _ in range(3)]
    offered = shopper.post(path=X402_PATH)
    mandate = Mandate(wallet_key=new_wallet().key, key=shopper.key, max_amount=Decimal("0.01"), asset=X402_ASSET)
    signed = sign_x402(offered, mandate)
    return Standing(stage, shopper, challenges, shopper.sign(challenges[0], **changes), {signed.header: signed.value})


@contextlib.contextmanager
def behind(call: Callable[[], httpx.Response]) -> Iterator[Future[httpx.Response]]:
    """Make a call in the background for the length of the block."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(call)


@contextlib.contextmanager
def absent(stage: Stage) -> Iterator[Standing]:
    standing = prepare(stage)
    assert standing.shopper.state() is None
    yield standing


@contextlib.contextmanager
def held(stage: Stage, fault: Fault, state: str) -> Iterator[Standing]:
    standing, proxy = prepare(stage), stage.tempo.proxy
    proxy.fault = fault
    before = stage.moved
    with behind(lambda: standing.shopper.post(standing.same)) as paying:
        try:
            assert proxy.held.wait(5)
            assert standing.shopper.state() == state
            yield standing
        finally:
            stage.service.clock.shift = 0.0
            proxy.fault = Fault.NONE
            proxy.release()
        # Whatever was asked meanwhile, the one payment goes its way.
        assert told(paying.result(20)) == SOLD
    assert stage.moved - before == PRICE
    assert standing.shopper.post(standing.same).headers["idempotent-replayed"] == "true"


@contextlib.contextmanager
def reserved(stage: Stage) -> Iterator[Standing]:
    with held(stage, Fault.VERIFY_HELD, "reserved") as standing:
        yield standing


@contextlib.contextmanager
def settling(stage: Stage) -> Iterator[Standing]:
    with held(stage, Fault.SEND_HELD, "settling") as standing:
        yield standing


@contextlib.contextmanager
def settling_for_too_long(stage: Stage) -> Iterator[Standing]:
    with held(stage, Fault.SEND_HELD, "settling") as standing:
        stage.service.clock.shift = 15 + 10 + 1
        yield standing


def doubt(stage: Stage, fault: Fault) -> Standing:
    """Buy while the fault hides what became of the payment."""
    standing = prepare(stage)
    with stage.moving(0 if fault in MOVES_NOTHING else PRICE, sends=1):
        stage.tempo.proxy.fault = fault
        answer = standing.shopper.post(standing.same)
        # From now on the chain could tell; nobody asks it.
        stage.tempo.proxy.fault = Fault.NONE
        assert told(answer) == UNCERTAIN
        assert (answer.json()["retryAfter"], answer.headers.get("retry-after")) == (None, None)
        assert standing.shopper.state() == "uncertain"
    return standing


@contextlib.contextmanager
def uncertain(stage: Stage) -> Iterator[Standing]:
    standing = doubt(stage, Fault.REPLY_LOST_RECEIPT_HIDDEN)
    yield standing
    assert standing.shopper.state() == "uncertain"


@contextlib.contextmanager
def settled(stage: Stage) -> Iterator[Standing]:
    standing = prepare(stage)
    with stage.moving(PRICE):
        standing.first_answer = standing.shopper.post(standing.same)
        assert told(standing.first_answer) == SOLD
    yield standing
    assert standing.shopper.state() == "settled"


@contextlib.contextmanager
def failed(stage: Stage) -> Iterator[Standing]:
    """The transaction runs out of time while it is verified, and is not sent any more."""
    valid_before = int(time.time()) + 7
    standing, proxy = prepare(stage, valid_before=valid_before), stage.tempo.proxy
    proxy.fault = Fault.VERIFY_HELD
    with stage.moving(0), behind(lambda: standing.shopper.post(standing.same)) as paying:
        assert proxy.held.wait(5)
        time.sleep(max(0.0, valid_before - 1.8 - time.time()))
        proxy.fault = Fault.NONE
        proxy.release()
        answer = paying.result(20)
    assert (told(answer), slug(answer)) == (REJECTED, "payment-expired")
    assert standing.shopper.state() == "failed"
    yield standing


async def release(stage: Stage, key: str) -> None:
    """Release an uncertain attempt through a second door to the database, as an operator's command does."""
    store = stage.service.open_store()
    await store.open()
    try:
        row = (await store.read(key)).current
        assert row is not None
        assert (await store.move(row.claim, OperatorRelease("the test", "never landed"))).owned
    finally:
        await store.close()


@contextlib.contextmanager
def released(stage: Stage) -> Iterator[Standing]:
    standing = doubt(stage, Fault.DROPPED)
    asyncio.run(release(stage, standing.shopper.key))
    assert standing.shopper.state() == "released"
    yield standing


@contextlib.contextmanager
def paid_and_over(stage: Stage) -> Iterator[Standing]:
    with settled(stage) as standing:
        stage.service.clock.shift = DAY + 60
        yield standing


State = Callable[[Stage], contextlib.AbstractContextManager[Standing]]

MOVES_NOTHING: Final = {Fault.DROPPED, Fault.REFUSED_BY_NODE, Fault.DOWN}
PATIENT_STATES: Final[tuple[State, ...]] = (absent, reserved, settling, settling_for_too_long, settled, failed)
HASTY_STATES: Final[tuple[State, ...]] = (uncertain, released, paid_and_over)
STATES: Final = (*PATIENT_STATES, *HASTY_STATES)


@pytest.fixture
def stage_of(request: pytest.FixtureRequest) -> Callable[[State], Stage]:
    def stage_of(state: State) -> Stage:
        return request.getfixturevalue("hasty" if state in HASTY_STATES else "stage")  # type: ignore[no-any-return]

    return stage_of


# The decision table


@dataclass(frozen=True)
class Row:
    """What the table says in one state: of the same input with each kind of credential, and of any other input."""

    none: tuple[int, str]
    unreadable: tuple[int, str]
    same: tuple[int, str | None] | None
    fresh: tuple[int, str | None]
    recorded: tuple[int, str]
    expired: tuple[int, str]
    other: tuple[int, str] | None = CONFLICT


UNDER_WAY = Row(IN_PROGRESS, IN_PROGRESS, IN_PROGRESS, CONFLICT, DUPLICATE, CONFLICT)
IN_DOUBT = Row(UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN)
NOT_PAID = Row(REQUIRED, REJECTED, REJECTED, SOLD, DUPLICATE, REJECTED)

TABLE: Final[dict[State, Row]] = {
    absent: Row(REQUIRED, REJECTED, None, SOLD, DUPLICATE, REJECTED, other=None),
    reserved: UNDER_WAY,
    settling: UNDER_WAY,
    settling_for_too_long: IN_DOUBT,
    uncertain: IN_DOUBT,
    settled: Row(CONFLICT, CONFLICT, SOLD, CONFLICT, DUPLICATE, CONFLICT),
    failed: NOT_PAID,
    released: NOT_PAID,
    paid_and_over: Row(CONFLICT, CONFLICT, CONFLICT, CONFLICT, CONFLICT, CONFLICT),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_every_cell_of_the_decision_table(state: State, stage_of: Callable[[State], Stage]) -> None:
    stage, row = stage_of(state), TABLE[state]
    assert stage.spent
    with state(stage) as standing:
        shopper = standing.shopper
        with stage.moving(0, sends=0) if state not in HELD else contextlib.nullcontext():
            assert told(shopper.post()) == row.none
            for credential in standing.unreadable():
                answer = shopper.post(credential)
                assert told(answer) == row.unreadable, credential[:40]
                if answer.status_code == 402:
                    assert slug(answer) == "malformed-credential"
            for credential in standing.recorded(own=state is not absent):
                assert told(shopper.post(credential)) == row.recorded
            answer = shopper.post(standing.expired())
            assert told(answer) == row.expired
            if answer.status_code == 402:
                assert slug(answer) == "payment-expired"
            if row.other is not None:
                elsewhere = shopper.sign(issue(stage.service.mpp, shopper.key, body=OTHER_BODY))
                others: tuple[str | None, ...] = (None, standing.same, standing.fresh(), elsewhere, "Payment %%%")
                for other in others:
                    assert told(shopper.post(other, body=OTHER_BODY)) == row.other
            if row.same is not None:
                calls = len(stage.tempo.proxy.calls)
                answer = shopper.post(standing.same)
                assert told(answer) == row.same
                # Neither a replay nor a stored refusal asks anybody.
                assert len(stage.tempo.proxy.calls) == calls
                if answer.is_success:
                    assert standing.first_answer is not None
                    assert answer.headers["idempotent-replayed"] == "true"
                    assert answer.headers["payment-receipt"] == standing.first_answer.headers["payment-receipt"]
            if row.fresh != SOLD:
                assert told(shopper.post(standing.fresh())) == row.fresh
        if row.fresh == SOLD:
            with stage.moving(PRICE):
                assert told(shopper.post(standing.fresh())) == SOLD


HELD: Final = (reserved, settling, settling_for_too_long)
"""States in which a payment is under way; what moves is counted when it has ended."""


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_the_key_is_taken_on_the_other_protocols_route_in_every_state_past_absent(
    state: State, stage_of: Callable[[State], Stage]
) -> None:
    stage = stage_of(state)
    with state(stage) as standing:
        shopper = standing.shopper
        mixed = shopper.post(standing.same, path=X402_PATH)
        both = shopper.post(standing.same, standing.x402, path=X402_PATH)
        assert told(mixed) == told(both) == (400, "PAYMENT_PROTOCOL_MISMATCH")
        assert not stage.facilitator.verifications
        unpaid = shopper.post(path=X402_PATH)
        assert told(unpaid) == (REQUIRED if state is absent else CONFLICT)
        paid = shopper.post(headers=standing.x402, path=X402_PATH)
        assert told(paid) == (SOLD if state is absent else CONFLICT)
        if state is not absent:
            assert "payment-required" not in {*unpaid.headers, *paid.headers}
            assert not stage.facilitator.attempts


X402_STATES: Final = {
    "reserved": X402Fault.VERIFY_HANG,
    "settling": X402Fault.HANG_BEFORE,
    "uncertain": X402Fault.RESET_AFTER,
    "settled": X402Fault.NONE,
    "failed": X402Fault.REFUSED,
    "released": X402Fault.RESET_BEFORE,
}


@pytest.mark.parametrize("state", X402_STATES)
def test_a_key_of_the_other_protocol_buys_nothing_over_mpp_in_every_state_past_absent(state: str, hasty: Stage) -> None:
    standing, facilitator = prepare(hasty), hasty.facilitator
    shopper = standing.shopper
    facilitator.set(X402_STATES[state])
    with hasty.moving(0), behind(lambda: shopper.post(headers=standing.x402, path=X402_PATH)) as paying:
        try:
            if state not in {"reserved", "settling"}:
                paying.result(10)
            if state == "released":
                asyncio.run(release(hasty, shopper.key))
            until(lambda: shopper.state() == state)
            for credential in (None, standing.fresh(), standing.same, standing.expired(), *standing.unreadable()):
                answer = shopper.post(credential)
                assert told(answer) == CONFLICT
            assert told(shopper.post(headers=standing.x402)) == (400, "PAYMENT_PROTOCOL_MISMATCH")
            assert shopper.state() == state
        finally:
            facilitator.reset()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# The outcomes


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REPLY_LATE, Fault.ERROR_AFTER, Fault.ALREADY_KNOWN])
def test_executed_and_the_reply_lost_is_sold_when_the_receipt_is_found(stage: Stage, fault: Fault) -> None:
    shopper = stage.shopper()
    credential = shopper.sign()
    with stage.moving(PRICE):
        stage.tempo.proxy.fault, stage.tempo.proxy.hang_seconds = fault, 1.0
        first = shopper.post(credential)
        stage.tempo.proxy.fault = Fault.NONE
        again = shopper.post(credential)
    assert told(first) == told(again) == SOLD
    assert (again.content, again.headers["payment-receipt"]) == (first.content, first.headers["payment-receipt"])
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    "fault",
    [
        Fault.ERROR_AFTER_RECEIPT_HIDDEN,
        Fault.NOT_JSON,
        Fault.OTHER_RECEIPT,
        Fault.REPLY_LATE_RECEIPT_HIDDEN,
        Fault.REFUSED_BY_NODE,
        Fault.DROPPED,
    ],
)
def test_what_nobody_can_know_is_uncertain_and_never_paid_again(hasty: Stage, fault: Fault) -> None:
    hasty.tempo.proxy.hang_seconds = 3.0
    standing = doubt(hasty, fault)
    with hasty.moving(0, sends=0):
        for credential in (standing.same, standing.fresh(), None, "Payment e30"):
            assert told(standing.shopper.post(credential)) == UNCERTAIN


def test_no_resend_of_an_uncertain_payment_pays_again_after_everything_has_expired(hasty: Stage) -> None:
    with uncertain(hasty) as standing, hasty.moving(0, sends=0):
        for shift in (0.0, 400.0, 2 * DAY):
            hasty.service.clock.shift = shift
            calls = len(hasty.tempo.proxy.calls)
            credentials = (standing.same, standing.fresh(), None, *standing.unreadable(), standing.expired())
            for credential in (*credentials, *standing.recorded(own=True)):
                assert told(standing.shopper.post(credential)) == UNCERTAIN
            assert len(hasty.tempo.proxy.calls) == calls


@pytest.mark.parametrize("fault", [Fault.DOWN, Fault.BUSY, Fault.STRANGE])
def test_a_node_that_gives_no_answer_to_the_verification_costs_nothing(stage: Stage, fault: Fault) -> None:
    shopper = stage.shopper()
    credential = shopper.sign()
    with stage.moving(0):
        stage.tempo.proxy.fault = fault
        answer = shopper.post(credential)
    assert told(answer) == UNAVAILABLE
    assert answer.headers["retry-after"]
    assert shopper.state() is None
    stage.tempo.proxy.fault = Fault.NONE
    with stage.moving(PRICE):
        assert told(shopper.post(credential)) == SOLD


def test_a_node_that_accepts_no_connection_for_the_send_has_sent_nothing(stage: Stage) -> None:
    shopper = stage.shopper()
    credential = shopper.sign()
    with stage.moving(0):
        stage.tempo.proxy.fault = Fault.GONE
        answer = shopper.post(credential)
        assert told(answer) == UNAVAILABLE
        assert "was not sent" in answer.json()["detail"]
        assert shopper.state() is None
        # Now it cannot even be verified.
        assert told(shopper.post(credential)) == UNAVAILABLE
    stage.tempo.proxy.reset()
    with stage.moving(PRICE):
        assert told(shopper.post(credential)) == SOLD


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        (0, "verification-failed"),
        (PRICE - 1, "verification-failed"),
        (PRICE, "verification-failed"),
        # Enough for the price and for what the gas will cost, but not for what it may cost.
        (PRICE + 19_000, "payment-insufficient"),
    ],
)
def test_a_poor_wallet_is_told_so_before_anything_is_sent(stage: Stage, held: int, problem: str) -> None:
    shopper = stage.shopper(stage.tempo.chain.new_payer(held) if held else new_wallet())
    credential = shopper.sign()
    with stage.moving(0):
        answer = shopper.post(credential)
    assert (told(answer), slug(answer)) == (REJECTED, problem)
    assert shopper.state() is None
    stage.tempo.chain.fund(shopper.wallet.address, 10 * PRICE)
    with stage.moving(PRICE):
        assert told(shopper.post(credential)) == SOLD


def test_a_transaction_that_somebody_else_sent_first_is_uncertain(stage: Stage) -> None:
    shopper = stage.shopper()
    credential = shopper.sign()
    with stage.moving(PRICE, sends=0):
        rpc, raw = stage.tempo.chain.chain.rpc, transaction_of(credential)
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransactionSync", "params": [raw]}
        assert httpx.post(rpc, json=call, trust_env=False).json()["result"]["status"] == "0x1"
        for _ in range(2):
            assert told(shopper.post(credential)) == UNCERTAIN
    assert shopper.state() == "uncertain"


def test_twenty_copies_at_once_move_money_once(stage: Stage) -> None:
    shopper = stage.shopper()
    credential = shopper.sign()
    with stage.moving(PRICE), ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: shopper.post(credential), range(20)))
        last = shopper.post(credential)
    said = Counter(told(answer) for answer in answers)
    assert said[SOLD] >= 1
    assert set(said) <= {SOLD, IN_PROGRESS}
    receipts = {answer.headers["payment-receipt"] for answer in (*answers, last) if answer.is_success}
    assert receipts == {last.headers["payment-receipt"]}
    assert sum("idempotent-replayed" not in answer.headers for answer in answers if answer.is_success) == 1


def test_one_transaction_under_twenty_keys_at_once_moves_money_once(stage: Stage) -> None:
    first, *others = (stage.shopper() for _ in range(20))
    good = first.sign()
    sent = [(first, good), *((other, carry_over(good, other.challenge())) for other in others)]
    with stage.moving(PRICE), ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda pair: pair[0].post(pair[1]), sent))
    assert told(answers[0]) == SOLD
    # Before the first one is recorded, a challenge that the transaction was not signed for refuses it.
    assert {told(answer) for answer in answers[1:]} <= {DUPLICATE, REJECTED}
    for other, carried in sent[1:]:
        assert told(other.post(carried)) == DUPLICATE
        assert other.state() is None


# What a credential is bound to


BOUND: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "another body": ({"body": OTHER_BODY}, "another body"),
    "another operation": ({"operation": "retrieval-measure"}, "another operation"),
    "another release": ({"release": "0.28.0"}, "another release"),
    "a lower amount": ({"amount": 1}, "another amount"),
    "a higher amount": ({"amount": PRICE + 1}, "another amount"),
}
FOREIGN: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "another recipient": ({"recipient": "0x" + "22" * 20}, "another recipient"),
    "another currency": ({"currencies": ("0x20c0000000000000000000000000000000000001",)}, "another currency"),
    "another chain": ({"chain_id": CHAIN_ID + 1}, "another chain"),
    "another realm": ({"realm": "other.example"}, "not issued by this service"),
    "another secret": ({"secret_key": "x" * 32}, "not issued by this service"),
}


@pytest.mark.parametrize("case", BOUND)
def test_a_challenge_of_another_offer_buys_nothing(stage: Stage, case: str) -> None:
    changes, reason = BOUND[case]
    refused(stage, issue_for(stage, **changes), reason)


@pytest.mark.parametrize("case", FOREIGN)
def test_a_challenge_of_another_shop_buys_nothing(stage: Stage, case: str) -> None:
    changes, reason = FOREIGN[case]
    shopper = stage.shopper()
    challenge = issue(replace(stage.service.mpp, **changes), shopper.key)
    refused(stage, (shopper, challenge), reason)


def issue_for(stage: Stage, **changes: Any) -> tuple[Shopper, str]:
    shopper = stage.shopper()
    return shopper, issue(stage.service.mpp, shopper.key, **changes)


def refused(stage: Stage, asked: tuple[Shopper, str], reason: str) -> None:
    shopper, challenge = asked
    credential = shopper.sign(challenge)
    with stage.moving(0):
        calls = len(stage.tempo.proxy.calls)
        answer = shopper.post(credential)
        assert (told(answer), slug(answer)) == (REJECTED, "invalid-challenge")
        assert reason in answer.json()["detail"]
        assert len(stage.tempo.proxy.calls) == calls
    assert shopper.state() is None
    # The challenge that came with the refusal is a good one.
    with stage.moving(PRICE):
        assert told(shopper.post(shopper.sign(answer.headers["www-authenticate"]))) == SOLD


def test_the_same_challenges_made_for_this_very_offer_are_good(stage: Stage) -> None:
    """The test's own way of making challenges is none that is refused anyway."""
    shopper, challenge = issue_for(stage)
    with stage.moving(PRICE):
        assert told(shopper.post(shopper.sign(challenge))) == SOLD


def test_an_expired_challenge_buys_nothing(stage: Stage) -> None:
    shopper = stage.shopper()
    credential = shopper.sign()
    with stage.moving(0):
        stage.service.clock.shift = 301.0
        answer = shopper.post(credential)
    assert (told(answer), slug(answer)) == (REJECTED, "payment-expired")
    stage.service.clock.shift = 0.0
    with stage.moving(PRICE):
        assert told(shopper.post(credential)) == SOLD


def test_a_challenge_of_another_key_is_a_mismatch(stage: Stage) -> None:
    shopper, other, spent = stage.shopper(), stage.shopper(), stage.spent
    with stage.moving(0):
        for credential in (other.sign(), spent):
            assert told(shopper.post(credential)) == (400, "PAYMENT_IDENTIFIER_MISMATCH")
    assert shopper.state() is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"recipient": "0x" + "22" * 20}, "verification-failed"),
        ({"amount": PRICE - 1}, "verification-failed"),
        ({"token": "0x20c0000000000000000000000000000000000001"}, "verification-failed"),
        ({"nonce_key": 0}, "verification-failed"),
        ({"valid_before": None}, "verification-failed"),
        ({"chain_id": 4217}, "verification-failed"),
        ({"root": "0x" + "33" * 20}, "verification-failed"),
    ],
)
def test_a_transaction_that_is_not_the_payment_is_not_sent(stage: Stage, changes: dict[str, Any], reason: str) -> None:
    shopper = stage.shopper()
    credential = shopper.sign(**changes)
    with stage.moving(0):
        answer = shopper.post(credential)
    assert (told(answer), slug(answer)) == (REJECTED, reason)
    assert shopper.state() is None


def test_the_hash_of_a_transaction_that_was_sent_by_the_client_is_never_looked_up(stage: Stage) -> None:
    shopper = stage.shopper()
    challenge = shopper.challenge()
    transaction = transaction_of(shopper.sign(challenge))
    with stage.moving(PRICE, sends=0):
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransactionSync", "params": [transaction]}
        sent = httpx.post(stage.tempo.chain.chain.rpc, json=call, trust_env=False).json()["result"]
        assert (sent["status"], sent["transactionHash"]) == ("0x1", hash_of(transaction))
        calls = len(stage.tempo.proxy.calls)
        issued = Challenge.from_www_authenticate(challenge)
        answer = shopper.post(buyer.present(issued, {"type": "hash", "hash": hash_of(transaction)}))
        assert (told(answer), slug(answer)) == (REJECTED, "invalid-payload")
        assert "pull mode" in answer.json()["detail"]
        assert len(stage.tempo.proxy.calls) == calls
    assert shopper.state() is None


# The credential and its header


def test_an_authorization_of_another_scheme_is_no_credential(stage: Stage) -> None:
    shopper = stage.shopper()
    good = shopper.sign()
    for header in ("Bearer x", "Basic cGF5", f"Bearer {good.split()[1]}", 'Digest a="b, Payment e30"'):
        assert told(shopper.post(header)) == REQUIRED, header
    with stage.moving(PRICE):
        assert told(shopper.post(f"Bearer x, {good}")) == SOLD


def test_a_credential_of_the_other_protocol_or_of_both_is_refused(stage: Stage) -> None:
    standing = prepare(stage)
    shopper = standing.shopper
    with stage.moving(0):
        for credential in (None, standing.same, "Payment %%%", "Bearer x"):
            for header in (standing.x402, {"PAYMENT-SIGNATURE": "%%%"}):
                assert told(shopper.post(credential, header)) == (400, "PAYMENT_PROTOCOL_MISMATCH")
        two = [("Content-Type", "application/json"), ("Idempotency-Key", shopper.key)]
        two += [("Authorization", standing.same), ("Authorization", "Bearer x")]
        assert told(shopper.client.post(PATH, content=BODY, headers=two)) == (400, "HEADER_INVALID")
    assert shopper.state() is None


def test_the_discovery_key_gets_a_challenge_and_never_buys(stage: Stage) -> None:
    shopper = replace(stage.shopper(), key="discovery_example_never_pay_0001")
    credential = shopper.sign()
    with stage.moving(0):
        for sent in (credential, "Payment %%%"):
            assert told(shopper.post(sent)) == (400, "DISCOVERY_KEY")


@pytest.mark.parametrize("state", [absent, settled, uncertain], ids=lambda state: state.__name__)
def test_500_malformed_credentials_are_refused_and_never_a_bug(
    state: State, stage_of: Callable[[State], Stage]
) -> None:
    """On a key that may have been charged none of them brings a challenge."""
    stage = stage_of(state)
    refusal = 402 if state is absent else 409
    with state(stage) as standing:
        # What can still be read after the damage is too old to pay with.
        good = standing.shopper.sign(standing.challenges[1], valid_before=int(time.time()) - 60)
        with stage.moving(0), Wire(stage.service.origin) as wire:
            tally = Counter(wire.post(standing.shopper.key, header) for header in malformed(good))
        assert tally.total() >= 500
        assert set(tally) <= {400, refusal}
        assert tally[refusal] > 300


class Wire:
    """A connection on which any bytes can be sent: HTTP clients refuse to send most malformed headers."""

    def __init__(self, origin: str) -> None:
        url = httpx.URL(origin)
        self._address = (url.host, url.port or 80)

    def __enter__(self) -> Wire:
        self._connect()
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=10)
        self._file = self._socket.makefile("rb")

    def post(self, key: str, authorization: str) -> int:
        """Send one request and return the status of its answer."""
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: shop.example\r\nContent-Type: application/json\r\n"
            f"Idempotency-Key: {key}\r\nContent-Length: {len(BODY)}\r\nAuthorization: {authorization}\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(head.encode("utf-8", "surrogatepass") + BODY)
        status = int(self._file.readline().split()[1])
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip().lower()
        self._file.read(int(headers.get(b"content-length", b"0")))
        if headers.get(b"connection") == b"close":
            self._socket.close()
            self._connect()
        return status


# Time passes, secrets change


def test_a_replay_survives_the_challenge_and_two_rotations_of_the_secret(
    stage: Stage, environment: dict[str, str], tmp_path: Path
) -> None:
    secrets_in_turn = (environment["MPP_SECRET_KEY"], SECOND_SECRET, THIRD_SECRET)
    database = tmp_path / "attempts.db"
    with served(database, environment) as service:
        shopper, late = Shopper(service.client, stage.tempo.payer), Shopper(service.client, stage.tempo.payer)
        credential, unused = shopper.sign(), late.sign()
        first = shopper.post(credential)
        assert told(first) == SOLD
    for previous, current in itertools.pairwise(secrets_in_turn):
        rotated = {**environment, "MPP_SECRET_KEY": current, "MPP_PREVIOUS_SECRET_KEY": previous}
        with served(database, rotated) as service:
            shopper, late = replace(shopper, client=service.client), replace(late, client=service.client)
            for shift in (0.0, 400.0):
                service.clock.shift = shift
                again = shopper.post(credential)
                assert told(again) == SOLD
                assert again.content == first.content
                assert again.headers["payment-receipt"] == first.headers["payment-receipt"]
                assert again.headers["idempotent-replayed"] == "true"
            service.clock.shift = 0.0
            if current is SECOND_SECRET:
                # One rotation later what was signed before is still taken ...
                fresh = replace(late, key=shopper.key)
                assert told(fresh.post(unused)) == (400, "PAYMENT_IDENTIFIER_MISMATCH")
                assert told(late.post(unused)) == SOLD
            else:
                # ... and what was never sent within two is not.
                old = replace(service.mpp, secret_key=secrets_in_turn[0], previous_secret_key=None)
                stale = Shopper(service.client, stage.tempo.payer)
                answer = stale.post(stale.sign(issue(old, stale.key)))
                assert (told(answer), slug(answer)) == (REJECTED, "invalid-challenge")


def test_a_release_of_the_service_in_between_is_a_conflict_that_says_so(
    stage: Stage, environment: dict[str, str]
) -> None:
    with settled(stage) as standing, served(stage.service.database, environment, "0.30.0") as newer:
        shopper = replace(standing.shopper, client=newer.client)
        for credential in (None, standing.same):
            answer = shopper.post(credential)
            assert (told(answer), answer.json()["cause"]) == (CONFLICT, "release")
