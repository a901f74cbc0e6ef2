"""A facilitator that refuses every call for reasons of its own sells nothing for a while, and its operator is told."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from ranking_evaluate.payments.facilitator import Answer, Facilitator, own_reason
from ranking_evaluate.payments.protocol import Readiness, Settled, Uncertain, Unreachable, Verified
from ranking_evaluate.payments.refusing import IN_A_ROW, PAUSE, Refusing
from tests.fakes import FixedClock
from tests.faults.facilitator import Fault, FaultyFacilitator, ledger_only

pytestmark = pytest.mark.anyio

NETWORK: Final = "eip155:84532"
PAYER: Final = "0x" + "11" * 20
PAUSED: Final = Readiness(False, "the facilitator refuses every call for reasons of its own")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(1_000)


@pytest.fixture
def refusing(clock: FixedClock) -> Refusing:
    return Refusing("the facilitator", clock)


def refuse(refusing: Refusing, times: int, call: str = "/settle") -> None:
    for _ in range(times):
        refusing.refused(call, "payment_method_required")


def test_the_third_refusal_in_a_row_pauses_for_a_minute(refusing: Refusing, clock: FixedClock) -> None:
    refuse(refusing, IN_A_ROW - 1)
    assert refusing.ready().ready
    refuse(refusing, 1)
    assert refusing.ready() == PAUSED
    clock.advance(PAUSE - 1)
    assert refusing.ready() == PAUSED
    clock.advance(1)
    assert refusing.ready().ready


def test_after_the_minute_one_refusal_is_enough_and_one_answer_ends_it(refusing: Refusing, clock: FixedClock) -> None:
    refuse(refusing, IN_A_ROW)
    clock.advance(PAUSE)
    refuse(refusing, 1)
    assert refusing.ready() == PAUSED
    refusing.answered("/settle")
    assert refusing.ready().ready
    refuse(refusing, IN_A_ROW - 1)
    assert refusing.ready().ready


def test_an_answer_between_them_ends_the_row(refusing: Refusing) -> None:
    for _ in range(5):
        refuse(refusing, IN_A_ROW - 1)
        refusing.answered("/settle")
    assert refusing.ready().ready


def test_a_good_verification_says_nothing_of_settling(refusing: Refusing) -> None:
    """CDP's unpaid bill was seen to fail /settle alone."""
    for _ in range(IN_A_ROW):
        refusing.answered("/verify")
        refuse(refusing, 1)
    assert refusing.ready() == PAUSED
    refusing.answered("/verify")
    assert refusing.ready() == PAUSED


def test_the_log_names_the_call_and_the_errortype(refusing: Refusing) -> None:
    with capture_logs() as told:
        refuse(refusing, IN_A_ROW)
        refusing.answered("/settle")
    paused, again = told
    assert (paused["event"], paused["log_level"]) == ("a provider cannot be used", "error")
    assert (paused["reason"], paused["cause"]) == (PAUSED.reason, "/settle: payment_method_required")
    assert again["event"] == "a provider can be used again"


@pytest.mark.parametrize(
    ("status", "document", "reason"),
    [
        (401, None, "status 401"),
        (401, {"errorType": "unauthorized"}, "unauthorized"),
        (402, {"errorType": "payment_method_required", "errorMessage": "Add a card."}, "payment_method_required"),
        (402, {"error": "Payment Required"}, "status 402"),
        (429, {"errorType": "rate_limit_exceeded"}, "rate_limit_exceeded"),
        (403, {"errorType": "forbidden"}, "forbidden"),
        (403, None, None),
        # A payer writes what a call holds: nobody may close the shop with odd credentials.
        (400, {"errorType": "invalid_request"}, None),
        (422, {"errorType": "invalid_request"}, None),
        (404, None, None),
        # These fail; they do not refuse.
        (500, {"errorType": "internal_server_error"}, None),
        (503, None, None),
        (200, {"errorType": "unauthorized"}, None),
        (401, {"errorType": "<b>free text</b>"}, "status 401"),
    ],
)
def test_what_counts_as_a_reason_of_its_own(status: int, document: dict[str, Any] | None, reason: str | None) -> None:
    assert own_reason(Answer(status, document)) == reason


def call(number: int) -> bytes:
    authorization = {"from": PAYER, "nonce": f"0x{number:064x}"}
    payload = {"payload": {"authorization": authorization}}
    return json.dumps({"paymentPayload": payload, "paymentRequirements": {"network": NETWORK}}).encode()


async def test_a_facilitator_whose_bill_is_unpaid_is_not_ready_until_it_settles_again() -> None:
    with FaultyFacilitator(ledger_only(NETWORK)) as faulty:
        client = Facilitator(faulty.url, None, 5, 5)
        faulty.set(Fault.UNPAID_BILL)
        for number in range(IN_A_ROW):
            assert client.ready().ready
            assert await client.verify(call(number), payer=PAYER) == Verified()
            unclear = await client.settle(call(number), network=NETWORK, payer=PAYER)
            assert isinstance(unclear, Uncertain)
            assert unclear.code == "payment_method_required"
        assert client.ready() == PAUSED
        # One that was on its way already.
        faulty.set(Fault.NONE)
        assert isinstance(await client.settle(call(99), network=NETWORK, payer=PAYER), Settled)
        assert client.ready().ready
        await client.close()


async def test_refused_verifications_count_too_and_a_refused_credential_does_not() -> None:
    unauthorized = (401, b'{"errorType":"unauthorized"}')
    answers = iter([unauthorized] * 2 + [(200, b'{"isValid":false,"invalidReason":"invalid_payload"}')])
    with FaultyFacilitator(lambda path, body: next(answers, unauthorized)) as faulty:
        client = Facilitator(faulty.url, None, 5, 5)
        for _ in range(3 + IN_A_ROW - 1):
            await client.verify(call(1), payer=PAYER)
            assert client.ready().ready
        assert isinstance(await client.verify(call(1), payer=PAYER), Unreachable)
        assert client.ready() == PAUSED
        await client.close()
