"""When a facilitator of a real chain misbehaves, a buyer pays once at most and gets no new challenge."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.faults.facilitator import Fault, FaultyFacilitator
from tests.judges.conftest import Books, Buy, Serve
from tests.judges.x402_buyer import PRICE, Buyer, decoded, new_key

DEADLINE = "1.0"
REFUSED = (Fault.REFUSED, Fault.REFUSED_400, Fault.REFUSED_BARE)
UNCERTAIN = [fault for fault in Fault if fault.hides_the_outcome]
NOT_VERIFIED = [
    fault for fault in Fault if fault.at_verify and fault not in {Fault.VERIFY_REFUSED, Fault.VERIFY_NONCE_USED}
]


@pytest.fixture(scope="module")
def shop(serve: Serve, faulty: FaultyFacilitator, buyer_at: Buy) -> Buyer:
    """A buyer in front of a service whose facilitator is the faulty one."""
    faulty.reset()
    server = serve(
        "faults", X402_FACILITATOR_URL=faulty.url, SETTLE_TIMEOUT=DEADLINE, VERIFY_TIMEOUT=DEADLINE, LOG_LEVEL="debug"
    )
    return buyer_at(server.origin)


@pytest.fixture
def facilitator(faulty: FaultyFacilitator) -> Iterator[FaultyFacilitator]:
    faulty.reset()
    yield faulty
    faulty.reset()


def check_uncertain(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (409, "PAYMENT_UNCERTAIN")
    assert "payment-required" not in answer.headers
    assert "payment-response" not in answer.headers
    assert "retry-after" not in answer.headers
    assert "Do not pay again" in answer.json()["nextStep"]


@pytest.mark.parametrize("fault", UNCERTAIN)
def test_a_settlement_whose_outcome_is_hidden_is_uncertain_for_ever(
    shop: Buyer, facilitator: FaultyFacilitator, books: Books, fault: Fault
) -> None:
    key = new_key()
    first, second = shop.sign(key), shop.sign(key)
    facilitator.set(fault)
    check_uncertain(shop.post(key, first))
    # Whatever is sent afterwards, and however well the facilitator is by then.
    facilitator.set(Fault.NONE)
    for payload in (first, second, None, first):
        check_uncertain(shop.post(key, payload))
    other = new_key()
    second["extensions"]["payment-identifier"]["info"]["id"] = key
    first["extensions"]["payment-identifier"]["info"]["id"] = other
    relabelled = shop.post(other, first)
    assert (relabelled.status_code, relabelled.json()["code"]) == (409, "DUPLICATE_PROOF")
    assert facilitator.attempts.total() == 1
    assert facilitator.strays == []
    assert books.moved == (PRICE if fault.moves else 0)
    assert facilitator.moves.total() == (1 if fault.moves else 0)
    found = shop.attempt(key)
    assert found is not None
    assert (found["state"], found["receipt"]) == ("uncertain", None)


@pytest.mark.parametrize("fault", REFUSED)
def test_a_definite_refusal_is_a_402_with_its_receipt_and_a_new_credential_buys(
    shop: Buyer, facilitator: FaultyFacilitator, books: Books, fault: Fault
) -> None:
    key = new_key()
    first = shop.sign(key)
    facilitator.set(fault)
    answer = shop.post(key, first)
    for again in (answer, shop.post(key, first)):
        assert (again.status_code, again.json()["code"]) == (402, "PAYMENT_REJECTED")
        assert again.headers["cache-control"] == "no-store"
        receipt = decoded(again.headers["payment-response"])
        assert (receipt["success"], receipt["transaction"]) == (False, "")
        assert receipt["errorReason"] == "the signature is not the payer's"
        assert decoded(again.headers["payment-required"])["accepts"][0]["amount"] == str(PRICE)
    assert (facilitator.attempts.total(), books.moved) == (1, 0)
    facilitator.set(Fault.NONE)
    assert shop.post(key).json()["code"] == "PAYMENT_REQUIRED"
    assert shop.post(key, first).json()["code"] == "PAYMENT_REJECTED"
    assert shop.post(key, shop.sign(key)).status_code == 200
    assert books.moved == PRICE
    assert shop.post(key, first).json()["code"] == "DUPLICATE_PROOF"


@pytest.mark.parametrize("fault", [*NOT_VERIFIED, Fault.GONE])
def test_a_call_that_was_not_made_is_503_and_the_identical_request_buys_later(
    shop: Buyer, facilitator: FaultyFacilitator, books: Books, fault: Fault
) -> None:
    key = new_key()
    payload = shop.sign(key)
    facilitator.set(fault)
    answer = shop.post(key, payload)
    assert (answer.status_code, answer.json()["code"]) == (503, "PAYMENT_UNAVAILABLE")
    assert int(answer.headers["retry-after"]) >= 1
    assert "payment-required" not in answer.headers
    assert (shop.attempt(key), facilitator.attempts.total(), books.moved) == (None, 0, 0)
    facilitator.set(Fault.NONE)
    bought = shop.post(key, payload)
    assert (bought.status_code, "idempotent-replayed" in bought.headers) == (200, False)
    assert books.moved == PRICE


def test_a_credential_that_verification_refuses_leaves_nothing_behind(
    shop: Buyer, facilitator: FaultyFacilitator, books: Books
) -> None:
    key = new_key()
    payload = shop.sign(key)
    facilitator.set(Fault.VERIFY_REFUSED)
    answer = shop.post(key, payload)
    assert (answer.status_code, answer.json()["code"]) == (402, "PAYMENT_REJECTED")
    assert "payment-response" not in answer.headers
    assert (shop.attempt(key), facilitator.attempts.total(), books.moved) == (None, 0, 0)


def test_an_authorization_that_somebody_has_used_is_uncertain(
    shop: Buyer, facilitator: FaultyFacilitator, books: Books
) -> None:
    key = new_key()
    payload = shop.sign(key)
    facilitator.set(Fault.VERIFY_NONCE_USED)
    check_uncertain(shop.post(key, payload))
    facilitator.set(Fault.NONE)
    check_uncertain(shop.post(key, payload))
    assert (facilitator.attempts.total(), books.moved) == (0, 0)


def test_a_failed_credential_stays_refused_after_a_later_one_was_not_verified(
    shop: Buyer, facilitator: FaultyFacilitator, books: Books
) -> None:
    key = new_key()
    first = shop.sign(key)
    facilitator.set(Fault.REFUSED)
    assert shop.post(key, first).status_code == 402
    facilitator.set(Fault.VERIFY_REFUSED)
    assert shop.post(key, shop.sign(key)).json()["code"] == "PAYMENT_REJECTED"
    facilitator.set(Fault.NONE)
    again = shop.post(key, first)
    assert (again.status_code, again.json()["code"]) == (402, "PAYMENT_REJECTED")
    assert decoded(again.headers["payment-response"])["success"] is False
    assert books.moved == 0


def test_a_replay_does_not_need_the_facilitator(shop: Buyer, facilitator: FaultyFacilitator) -> None:
    key = new_key()
    payload = shop.sign(key)
    bought = shop.post(key, payload)
    asked = facilitator.verifications.total()
    facilitator.set(Fault.DOWN)
    replay = shop.post(key, payload)
    assert (replay.status_code, replay.content) == (200, bought.content)
    assert replay.headers["payment-response"] == bought.headers["payment-response"]
    assert facilitator.verifications.total() == asked
    assert shop.post(key).json()["code"] == "IDEMPOTENCY_CONFLICT"


def test_a_client_that_leaves_mid_settle_finds_its_answer(
    shop: Buyer, facilitator: FaultyFacilitator, books: Books
) -> None:
    key = new_key()
    payload = shop.sign(key)
    facilitator.set(Fault.LATE)
    with (
        httpx.Client(base_url=shop.client.base_url, trust_env=False, timeout=0.15) as impatient,
        pytest.raises(httpx.ReadTimeout),
    ):
        Buyer(impatient, "", shop.body).post(key, payload)
    answer = shop.post(key, payload)
    while answer.status_code == 409:
        assert answer.json()["code"] == "PAYMENT_IN_PROGRESS"
        time.sleep(0.02)
        answer = shop.post(key, payload)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
    assert (facilitator.attempts.total(), books.moved) == (1, PRICE)
