"""What a facilitator says, held against docs/lifecycle.md, section 5: classifiers row by row, then over a socket."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from ranking_evaluate.payments.facilitator import (
    Answer,
    Facilitator,
    FacilitatorError,
    classify_settlement,
    classify_verification,
)
from ranking_evaluate.payments.protocol import (
    NotSent,
    Refused,
    Rejected,
    Settled,
    Spent,
    Uncertain,
    Unreachable,
    Verified,
)
from ranking_evaluate.payments.reasons import REFUSED_BEFORE_BROADCAST, in_words
from tests.faults.facilitator import HANG_SECONDS, Fault, FaultyFacilitator, ledger_only

pytestmark = pytest.mark.anyio

NETWORK = "eip155:84532"
PAYER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
TX = "0x" + "AB" * 32

# Written out, and not imported: this is the list of docs/lifecycle.md, section 5.
ALLOWLIST = [
    "invalid_exact_evm_payload_signature",
    "invalid_exact_evm_payload_recipient_mismatch",
    "invalid_exact_evm_payload_authorization_value_mismatch",
    "invalid_exact_evm_payload_authorization_valid_after",
    "invalid_exact_evm_token_name_mismatch",
    "invalid_exact_evm_token_version_mismatch",
    "invalid_exact_evm_eip3009_not_supported",
    "network_mismatch",
    "unsupported_scheme",
    "invalid_payload",
    "invalid_payment_requirements",
    "missing_eip712_domain",
    "asset_not_deployed_contract",
    "invalid_exact_evm_signature",
    "invalid_exact_evm_recipient_mismatch",
    "invalid_exact_evm_network_mismatch",
    "invalid_exact_evm_scheme",
    "invalid_exact_evm_missing_eip712_domain",
    "invalid_exact_evm_authorization_value",
    "eip6492_factory_not_allowed",
    "invalid_exact_evm_payload_undeployed_smart_wallet",
    "invalid_scheme",
    "invalid_network",
    "invalid_x402_version",
    "invalid_amount",
    "invalid_bazaar_extension",
    "invalid_exact_evm_payload_authorization_value",
    "invalid_exact_evm_payload_authorization_value_too_low",
    "invalid_exact_evm_payload_authorization_typed_data_message",
    "self_send_not_allowed",
    "amount_too_low",
]
NOT_DEFINITE = [
    "invalid_exact_evm_insufficient_balance",
    "invalid_exact_evm_payload_authorization_valid_before",
    "invalid_exact_evm_transaction_simulation_failed",
    "invalid_exact_evm_nonce_already_used",
    "nonce_already_used",
    "insufficient_funds",
    "settlement_pending",
    "transaction_failed",
    "unexpected_settle_error",
    "Invalid_Payload",
    "invalid_payload ",
    "invalid_scheme,invalid_payload",
    "",
    None,
    7,
    ["invalid_payload"],
    {"code": "invalid_payload"},
]


def settlement(status: int = 200, **changes: Any) -> Any:
    """Classify an answer that reports success, with these members changed; `...` leaves a member out."""
    document = {"success": True, "transaction": TX, "network": NETWORK, "payer": PAYER} | changes
    said = {name: value for name, value in document.items() if value is not ...}
    return classify_settlement(Answer(status, said), network=NETWORK, payer=PAYER)


def failure(status: int = 200, **changes: Any) -> Any:
    return settlement(status, **{"success": False, "transaction": "", **changes})


def verification(status: int = 200, **document: Any) -> Any:
    return classify_verification(Answer(status, document), payer=PAYER)


# Settlement.


@pytest.mark.parametrize("payer", [PAYER, PAYER.lower(), ..., None])
def test_success_with_our_network_and_payer_is_settled(payer: object) -> None:
    assert settlement(payer=payer) == Settled(receipt="", transaction=TX.lower(), payer=PAYER)


@pytest.mark.parametrize("status", [200, 400, 402, 404, 422])
@pytest.mark.parametrize("reason", ALLOWLIST)
def test_a_reason_of_the_allowlist_is_a_definite_refusal(reason: str, status: int) -> None:
    assert failure(status, errorReason=reason) == Refused(in_words(reason), code=reason)


def test_what_a_facilitator_names_without_proof_is_kept_as_its_word() -> None:
    said = failure(200, errorReason="settlement_pending", transaction="0xabc")
    assert isinstance(said, Uncertain)
    assert (said.code, said.transaction) == ("settlement_pending", "0xabc")
    odd = failure(200, errorReason="free text, with commas", transaction="no name <b>")
    assert isinstance(odd, Uncertain)
    assert (odd.code, odd.transaction) == (None, None)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("reason", NOT_DEFINITE)
def test_every_other_reason_leaves_it_uncertain(reason: object, status: int) -> None:
    assert isinstance(failure(status, errorReason=reason), Uncertain)


def test_the_allowlist_is_the_published_one() -> None:
    assert frozenset(ALLOWLIST) == REFUSED_BEFORE_BROADCAST


@pytest.mark.parametrize("status", [300, 301, 302, 307, 308, 399, 500, 502, 503, 504])
@pytest.mark.parametrize("reason", ALLOWLIST)
def test_no_redirect_and_no_server_error_is_definite(status: int, reason: str) -> None:
    assert isinstance(failure(status, errorReason=reason), Uncertain)
    assert isinstance(settlement(status), Uncertain)


@pytest.mark.parametrize("status", [201, 202, 204, 206, 400, 402, 409, 429])
def test_success_counts_with_status_200_alone(status: int) -> None:
    assert isinstance(settlement(status), Uncertain)


@pytest.mark.parametrize(
    "changes",
    [
        {"success": "true"},
        {"success": 1},
        {"success": None},
        {"success": ...},
        {"transaction": ""},
        {"transaction": None},
        {"transaction": ...},
        {"transaction": "0x" + "ab" * 31},
        {"transaction": "0x" + "ab" * 32 + "\n"},
        {"transaction": "ab" * 32},
        {"transaction": "0x" + "zz" * 32},
        {"transaction": int("ab" * 32, 16)},
        {"network": "eip155:8453"},
        {"network": "base-sepolia"},
        {"network": NETWORK.upper()},
        {"network": None},
        {"network": ...},
        {"payer": "0x" + "11" * 20},
        {"payer": ""},
        {"payer": 7},
    ],
)
def test_success_with_any_member_amiss_is_uncertain(changes: dict[str, Any]) -> None:
    assert isinstance(settlement(**changes), Uncertain)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("transaction", ["", None, ...])
def test_no_transaction_is_absent_null_or_empty(transaction: object, status: int) -> None:
    """The SDKs write an empty text, CDP leaves the member out."""
    reason = "invalid_exact_evm_payload_signature"
    assert failure(status, errorReason=reason, transaction=transaction) == Refused(in_words(reason), code=reason)


@pytest.mark.parametrize("transaction", [TX, "pending", " ", 0, False, [], {}])
def test_a_failure_that_names_any_transaction_is_uncertain(transaction: object) -> None:
    assert isinstance(failure(errorReason=ALLOWLIST[0], transaction=transaction), Uncertain)


@pytest.mark.parametrize("success", ["false", 0, None, ...])
def test_a_failure_must_be_said_by_a_boolean(success: object) -> None:
    assert isinstance(failure(errorReason=ALLOWLIST[0], success=success), Uncertain)


@pytest.mark.parametrize("status", [200, 400, 500])
def test_no_document_is_uncertain(status: int) -> None:
    assert isinstance(classify_settlement(Answer(status, None), network=NETWORK, payer=PAYER), Uncertain)
    assert isinstance(classify_settlement(Answer(status, {}), network=NETWORK, payer=PAYER), Uncertain)


# Verification.


def test_a_valid_credential_of_our_payer_is_verified() -> None:
    assert verification(isValid=True, payer=PAYER.lower()) == Verified()
    assert verification(isValid=True) == Verified()


@pytest.mark.parametrize("status", [200, 400, 402, 422])
@pytest.mark.parametrize(
    "reason", [*ALLOWLIST, "invalid_exact_evm_transaction_simulation_failed", "insufficient_funds"]
)
def test_an_invalid_credential_is_rejected(reason: str, status: int) -> None:
    assert verification(status, isValid=False, invalidReason=reason, payer=PAYER) == Rejected(in_words(reason), reason)


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("reason", ["invalid_exact_evm_nonce_already_used", "nonce_already_used"])
def test_a_used_nonce_is_spent_and_not_rejected(reason: str, status: int) -> None:
    assert isinstance(verification(status, isValid=False, invalidReason=reason), Spent)


@pytest.mark.parametrize("status", [301, 307, 500, 502, 503])
@pytest.mark.parametrize("valid", [True, False])
def test_a_verdict_with_a_redirect_or_a_server_error_is_none(status: int, valid: bool) -> None:
    assert isinstance(verification(status, isValid=valid, payer=PAYER), Unreachable)


def test_what_a_gateway_says_instead_of_a_verdict_is_kept() -> None:
    """CDP's gateway answers 401, 402 and 429 with an errorType, and with how long to wait."""
    said = Answer(429, {"errorType": "rate_limit_exceeded", "errorMessage": "Slow down, 0xabc."}, retry_after=7)
    words = "the facilitator's /verify answered with status 429 and no verdict, saying rate_limit_exceeded"
    assert classify_verification(said, payer=PAYER) == Unreachable(words, "rate_limit_exceeded", 7)
    unclear = settlement(402, errorType="payment_method_required", success=None)
    assert isinstance(unclear, Uncertain)
    assert unclear.code == "payment_method_required"


@pytest.mark.parametrize("said", ["true", 1, 0, None, "false", []])
def test_a_verdict_is_a_boolean(said: object) -> None:
    assert isinstance(verification(isValid=said, payer=PAYER), Unreachable)


def test_a_verdict_for_somebody_else_or_with_another_status_is_none() -> None:
    assert isinstance(verification(isValid=True, payer="0x" + "11" * 20), Unreachable)
    assert isinstance(verification(400, isValid=True, payer=PAYER), Unreachable)
    assert isinstance(classify_verification(Answer(200, None), payer=PAYER), Unreachable)


# Words.


@pytest.mark.parametrize("reason", ["<script>", "pay 0x12 again", "x" * 81, "", None, 7, "näin", "two\nlines"])
def test_a_facilitators_own_text_is_not_passed_on(reason: object) -> None:
    assert in_words(reason) == "the facilitator gave no reason"


def test_a_plain_code_without_words_of_ours_is_named() -> None:
    assert in_words("smart_wallet_deployment_failed") == "the facilitator's reason is smart_wallet_deployment_failed"


# Over a socket.

DEADLINE = 0.6
REFUSED = (Fault.REFUSED, Fault.REFUSED_400, Fault.REFUSED_BARE)
UNCERTAIN = [fault for fault in Fault if fault.hides_the_outcome]


@pytest.fixture(scope="module")
def shared() -> Iterator[FaultyFacilitator]:
    with FaultyFacilitator(ledger_only(NETWORK)) as running:
        yield running


@pytest.fixture
def faulty(shared: FaultyFacilitator) -> FaultyFacilitator:
    shared.reset()
    return shared


@pytest.fixture
async def client(faulty: FaultyFacilitator) -> AsyncIterator[Facilitator]:
    opened = Facilitator(faulty.url + "/", "Bearer of-the-operator", DEADLINE, DEADLINE)
    yield opened
    await opened.close()


_nonces = iter(range(1, 10_000))


def call() -> bytes:
    """Return the body of a call for a payment that nobody has seen yet."""
    authorization = {"from": PAYER, "nonce": f"0x{next(_nonces):064x}"}
    return json.dumps(
        {"paymentPayload": {"payload": {"authorization": authorization}}, "paymentRequirements": {"network": NETWORK}}
    ).encode()


async def settle(client: Facilitator, body: bytes) -> Any:
    return await client.settle(body, network=NETWORK, payer=PAYER)


async def test_a_payment_is_verified_and_settled_once(client: Facilitator, faulty: FaultyFacilitator) -> None:
    body = call()
    assert (await client.supported())["kinds"][0]["network"] == NETWORK
    assert await client.verify(body, payer=PAYER) == Verified()
    assert isinstance(await settle(client, body), Settled)
    assert (faulty.attempts.total(), faulty.moves.total()) == (1, 1)
    assert isinstance(await client.verify(body, payer=PAYER), Spent)
    assert set(faulty.authorizations) == {"Bearer of-the-operator"}


async def test_an_answer_within_the_deadline_is_waited_for(client: Facilitator, faulty: FaultyFacilitator) -> None:
    faulty.set(Fault.LATE)
    assert isinstance(await settle(client, call()), Settled)


@pytest.mark.parametrize("fault", REFUSED)
async def test_a_refusal_is_definite(client: Facilitator, faulty: FaultyFacilitator, fault: Fault) -> None:
    faulty.set(fault)
    assert await settle(client, call()) == Refused(
        "the signature is not the payer's", code="invalid_exact_evm_payload_signature"
    )
    assert (faulty.attempts.total(), faulty.moves.total()) == (1, 0)


@pytest.mark.parametrize("fault", UNCERTAIN)
async def test_every_fault_of_a_settlement_is_uncertain_and_called_once(
    client: Facilitator, faulty: FaultyFacilitator, fault: Fault
) -> None:
    faulty.set(fault)
    started = time.monotonic()
    assert isinstance(await settle(client, call()), Uncertain)
    assert time.monotonic() - started < DEADLINE + 2 < HANG_SECONDS
    assert faulty.attempts.total() == 1
    assert faulty.moves.total() == (1 if fault.moves else 0)
    assert faulty.strays == []


async def test_a_refused_connection_is_not_sent(client: Facilitator, faulty: FaultyFacilitator) -> None:
    faulty.set(Fault.GONE)
    body = call()
    assert await client.verify(body, payer=PAYER) == Verified()
    assert isinstance(await settle(client, body), NotSent)
    assert faulty.attempts.total() == 0
    faulty.set(Fault.NONE)
    assert isinstance(await settle(client, body), Settled)


async def test_a_name_that_leads_nowhere_is_not_sent() -> None:
    nowhere = Facilitator("http://facilitator.invalid", None, DEADLINE * 10, DEADLINE * 10)
    try:
        assert isinstance(await settle(nowhere, call()), NotSent)
        assert isinstance(await nowhere.verify(call(), payer=PAYER), Unreachable)
    finally:
        await nowhere.close()


async def test_a_settle_call_never_rides_on_a_kept_connection(client: Facilitator, faulty: FaultyFacilitator) -> None:
    """A kept connection that went stale would make of a call that was not sent one that is uncertain."""
    assert isinstance(await settle(client, call()), Settled)
    faulty.set(Fault.DOWN)
    assert isinstance(await settle(client, call()), NotSent)


async def test_proxies_of_the_environment_are_not_asked(
    monkeypatch: pytest.MonkeyPatch, faulty: FaultyFacilitator
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    client = Facilitator(faulty.url, None, DEADLINE, DEADLINE)
    try:
        assert isinstance(await settle(client, call()), Settled)
        assert await client.verify(call(), payer=PAYER) == Verified()
    finally:
        await client.close()
    assert set(faulty.authorizations) == {None}


VERIFICATIONS = {
    Fault.VERIFY_REFUSED: Rejected,
    Fault.VERIFY_NONCE_USED: Spent,
    Fault.VERIFY_ERROR: Unreachable,
    Fault.VERIFY_HANG: Unreachable,
    Fault.VERIFY_RESET: Unreachable,
    Fault.VERIFY_GARBAGE: Unreachable,
    Fault.VERIFY_OTHER_PAYER: Unreachable,
    Fault.VERIFY_AS_STRING: Unreachable,
    Fault.VERIFY_REDIRECT: Unreachable,
    Fault.DOWN: Unreachable,
}


def test_every_fault_has_its_expectation() -> None:
    assert set(VERIFICATIONS) == {fault for fault in Fault if fault.at_verify}


@pytest.mark.parametrize("fault", VERIFICATIONS)
async def test_every_fault_of_a_verification_has_its_class(
    client: Facilitator, faulty: FaultyFacilitator, fault: Fault
) -> None:
    faulty.set(fault)
    assert isinstance(await client.verify(call(), payer=PAYER), VERIFICATIONS[fault])
    assert faulty.strays == []


@pytest.mark.parametrize("said", [b"", b"[]", b"{", b'{"kinds":1,"kinds":2}', b'{"x":"' + b"y" * 70_000 + b'"}'])
async def test_an_unusable_supported_document_is_no_answer(said: bytes) -> None:
    with FaultyFacilitator(lambda path, body: (200, said)) as odd:
        client = Facilitator(odd.url, None, DEADLINE, DEADLINE)
        with pytest.raises(FacilitatorError):
            await client.supported()
        await client.close()
