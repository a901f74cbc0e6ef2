"""The x402 adapter at its port: what it reads, what it holds against our terms, and how it speaks of outcomes."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

import orjson
import pytest
import structlog.testing
from eth_account import Account
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from x402 import x402ClientSync
from x402.extensions.payment_identifier import append_payment_identifier_to_extensions
from x402.http.utils import decode_payment_required_header, decode_payment_response_header
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.schemas import PaymentRequired

from ranking_evaluate.contract.errors import RequestMalformed
from ranking_evaluate.payments.config import USDC, Token, X402Config, X402Network
from ranking_evaluate.payments.protocol import (
    Credential,
    NotSent,
    Offer,
    Refused,
    Settled,
    Uncertain,
    Unknown,
    Verified,
)
from ranking_evaluate.payments.x402.protocol import X402Protocol
from tests.faults.facilitator import Fault, FaultyFacilitator, ledger_only

pytestmark = pytest.mark.anyio

NETWORK: Final = "eip155:84532"
PAYEE: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
KEY: Final = "purchase-of-monday-0001"
NOW: Final = 1_800_000_000
WALLET: Final = Account.create()
OFFER: Final = Offer(
    operation="ranking-evaluate",
    description="Scores rankings.",
    release="0.29.0",
    url="https://rank.example/v1/x402/ranking-evaluate",
    key=KEY,
    amount=10_000,
    body=b"{}",
)

Payload = dict[str, Any]


def config(url: str, *networks: X402Network) -> X402Config:
    return X402Config(
        pay_to=PAYEE,
        networks=networks or (X402Network(NETWORK, USDC[NETWORK]),),
        facilitator_url=url,
        verify_timeout=2.0,
        settle_timeout=2.0,
    )


@pytest.fixture
async def facilitator() -> AsyncIterator[FaultyFacilitator]:
    with FaultyFacilitator(ledger_only(NETWORK)) as running:
        yield running


@pytest.fixture
async def protocol(facilitator: FaultyFacilitator) -> AsyncIterator[X402Protocol]:
    made = X402Protocol(config(facilitator.url))
    await made.start()
    assert made.ready().ready
    yield made
    await made.close()


async def signed(protocol: X402Protocol) -> Payload:
    """Return what the official client signs; its time window is moved to NOW, which the signature does not survive."""
    challenge = await protocol.challenge(OFFER)
    required = decode_payment_required_header(challenge.headers["payment-required"])
    assert isinstance(required, PaymentRequired)
    assert required.extensions is not None
    append_payment_identifier_to_extensions(required.extensions, KEY)
    client = x402ClientSync()
    client.set_spend_controls(False)
    register_exact_evm_client(client, WALLET)
    payload = client.create_payment_payload(required).model_dump(mode="json", by_alias=True, exclude_none=True)
    payload["payload"]["authorization"] |= {"validAfter": "0", "validBefore": str(NOW + 120)}
    return payload


def read(protocol: X402Protocol, payload: object) -> Credential:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    headers = {"payment-signature": base64.b64encode(text.encode()).decode()}
    credential = protocol.read_credential(headers, OFFER)
    assert isinstance(credential, Credential)
    return credential


def altered(payload: Payload, **members: Any) -> Payload:
    """Return a copy with members of its authorization changed."""
    copy: Payload = json.loads(json.dumps(payload))
    copy["payload"]["authorization"] |= members
    return copy


# The challenge.


async def test_the_header_and_the_members_of_a_challenge_are_one_object(protocol: X402Protocol) -> None:
    challenge = await protocol.challenge(OFFER, "a reason")
    decoded = json.loads(base64.b64decode(challenge.headers["payment-required"]))
    assert decoded == challenge.members
    assert decoded["error"] == "a reason"
    assert decoded["x402Version"] == 2
    assert decoded["resource"]["url"] == OFFER.url
    assert len(challenge.headers["payment-required"]) <= 4096


async def test_challenges_do_not_grow_or_change_each_other(protocol: X402Protocol) -> None:
    first = json.dumps((await protocol.challenge(OFFER)).members)
    for reason in (None, "refused", None):
        await protocol.challenge(OFFER, reason)
    assert json.dumps((await protocol.challenge(OFFER)).members) == first
    assert "refused" not in first


async def test_ten_thousand_base_units_are_a_cent_and_not_ten_thousand_dollars(protocol: X402Protocol) -> None:
    (accepted,) = json.loads(json.dumps((await protocol.challenge(OFFER)).members))["accepts"]
    assert accepted["amount"] == "10000"
    assert accepted["extra"] == {"name": "USDC", "version": "2"}


# Reading.


async def test_no_header_is_no_credential(protocol: X402Protocol) -> None:
    for headers in ({}, {"x-payment": "e30="}, {"authorization": "Payment e30="}):
        assert protocol.read_credential(headers, OFFER) is None
        assert not protocol.wire.carries_credential(headers)


async def test_the_facts_of_a_credential(protocol: X402Protocol) -> None:
    payload = await signed(protocol)
    facts = read(protocol, payload).facts
    assert (facts.network, facts.asset, facts.amount) == (NETWORK, USDC[NETWORK].asset.lower(), 10_000)
    assert (facts.pay_to, facts.payer) == (PAYEE.lower(), WALLET.address.lower())
    assert facts.payment_id == payload["payload"]["authorization"]["nonce"].lower()
    assert facts.valid_before == NOW + 120


async def test_the_digest_is_of_the_object_and_not_of_its_text(protocol: X402Protocol) -> None:
    payload = await signed(protocol)
    plain = read(protocol, payload)
    for text in (json.dumps(dict(reversed(payload.items()))), json.dumps(payload, indent=2)):
        assert read(protocol, text).digest == plain.digest
    for other in (altered(payload, value="10001"), payload | {"more": 1}):
        assert read(protocol, other).digest != plain.digest


async def test_the_proof_is_the_authorization_alone(protocol: X402Protocol) -> None:
    payload = await signed(protocol)
    (proof,) = read(protocol, payload).proofs
    assert len(proof) == 32
    authorization = payload["payload"]["authorization"]
    same = [
        altered(payload, **{"from": authorization["from"].lower()}),
        altered(payload, **{"from": "0x" + authorization["from"][2:].upper()}),
        altered(payload, nonce="0x" + authorization["nonce"][2:].upper()),
        altered(payload, value="1", to=PAYEE.lower(), validBefore="7"),
    ]
    dressed: Payload = json.loads(json.dumps(payload))
    dressed["payload"]["signature"] = "0x00"
    dressed["accepted"]["asset"] = dressed["accepted"]["asset"].lower()
    for other in (*same, dressed):
        credential = read(protocol, other)
        assert credential.proofs == (proof,)
        assert credential.digest != read(protocol, payload).digest
    for different in (altered(payload, nonce="0x" + "12" * 32), altered(payload, **{"from": PAYEE})):
        assert read(protocol, different).proofs != (proof,)


async def test_a_key_with_a_newline_is_another_key(protocol: X402Protocol) -> None:
    payload = await signed(protocol)
    payload["extensions"]["payment-identifier"]["info"]["id"] = KEY + "\n"
    with pytest.raises(RequestMalformed, match="PAYMENT_IDENTIFIER_MISMATCH"):
        read(protocol, payload)


async def test_the_schema_that_a_credential_carries_is_not_followed(protocol: X402Protocol) -> None:
    asked = []

    class Asked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    payload = await signed(protocol)
    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        payload["extensions"]["payment-identifier"]["schema"] = {"$ref": f"http://127.0.0.1:{server.server_port}/a"}
        read(protocol, payload)
        server.shutdown()
    assert asked == []


OFFLINE: Final = X402Protocol(config("http://127.0.0.1:1"))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
PLACES = [
    (),
    ("x402Version",),
    ("accepted",),
    ("accepted", "amount"),
    ("accepted", "extra"),
    ("payload",),
    ("payload", "authorization"),
    ("payload", "authorization", "from"),
    ("payload", "authorization", "nonce"),
    ("payload", "authorization", "validBefore"),
    ("payload", "signature"),
    ("resource",),
    ("extensions",),
    ("extensions", "payment-identifier"),
    ("extensions", "payment-identifier", "info"),
    ("extensions", "payment-identifier", "info", "id"),
]
GOOD: Final[Payload] = {
    "x402Version": 2,
    "accepted": {
        "scheme": "exact",
        "network": NETWORK,
        "asset": USDC[NETWORK].asset,
        "amount": "10000",
        "payTo": PAYEE,
        "maxTimeoutSeconds": 120,
        "extra": {},
    },
    "payload": {
        "authorization": {
            "from": WALLET.address,
            "to": PAYEE,
            "value": "10000",
            "validAfter": "0",
            "validBefore": str(NOW + 120),
            "nonce": "0x" + "ab" * 32,
        },
        "signature": "0x" + "11" * 65,
    },
    "resource": {"url": OFFER.url},
    "extensions": {"payment-identifier": {"info": {"required": True, "id": KEY}, "schema": {}}},
}


@given(place=st.sampled_from(PLACES), value=JSON_VALUES)
@settings(max_examples=400, deadline=None)
def test_whatever_json_stands_in_a_credential_it_is_read_or_refused(place: tuple[str, ...], value: Any) -> None:
    """Nothing else may come out: an exception would be a 500, and an unread proof could be spent twice."""
    document = json.loads(json.dumps(GOOD))
    if place:
        inner = document
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
    else:
        document = value
    header = base64.b64encode(json.dumps(document).encode("utf-8", "surrogatepass")).decode()
    try:
        credential = OFFLINE.read_credential({"payment-signature": header}, OFFER)
    except RequestMalformed as error:
        assert error.code in {"PAYMENT_MALFORMED", "PAYMENT_IDENTIFIER_MISMATCH"}  # noqa: PT017 - Either is right.
        return
    assert isinstance(credential, Credential)
    OFFLINE.check_terms(credential, OFFER, NOW)
    assert all(len(proof) == 32 for proof in credential.proofs)


@given(header=st.text(alphabet=st.characters(max_codepoint=255), max_size=60))
@settings(max_examples=300, deadline=None)
def test_whatever_text_is_sent_as_a_credential_is_malformed(header: str) -> None:
    with pytest.raises(RequestMalformed, match="PAYMENT_MALFORMED"):
        OFFLINE.read_credential({"payment-signature": header}, OFFER)


def test_a_deeply_nested_credential_is_malformed() -> None:
    text = '{"x402Version":2,"payload":' + "[" * 10_000 + "]" * 10_000 + "}"
    with pytest.raises(RequestMalformed, match="PAYMENT_MALFORMED"):
        OFFLINE.read_credential({"payment-signature": base64.b64encode(text.encode()).decode()}, OFFER)


# Our terms.


async def test_a_good_credential_meets_our_terms(protocol: X402Protocol) -> None:
    assert protocol.check_terms(read(protocol, await signed(protocol)), OFFER, NOW) is None


@pytest.mark.parametrize(
    ("valid_before", "meets"),
    [(9, False), (10, True), (120, True), (180, True), (181, False), (2**256 - 1 - NOW, False)],
)
async def test_the_end_of_the_time_window(protocol: X402Protocol, valid_before: int, meets: bool) -> None:
    payload = altered(await signed(protocol), validBefore=str(NOW + valid_before))
    assert (protocol.check_terms(read(protocol, payload), OFFER, NOW) is None) is meets


@pytest.mark.parametrize(
    "times", [{"validBefore": str(NOW + 9)}, {"validBefore": str(NOW + 181)}, {"validAfter": str(NOW + 31)}]
)
async def test_a_payer_whose_clock_is_wrong_is_told_ours_and_how_wrong_it_may_be(
    protocol: X402Protocol, times: dict[str, str]
) -> None:
    reason = protocol.check_terms(read(protocol, altered(await signed(protocol), **times)), OFFER, NOW)
    assert reason is not None
    assert protocol.remark(reason, NOW) == (
        "It is 2027-01-15T08:00:00Z here, and a clock may be wrong: one that is up to 110 s behind or 60 s ahead is "
        "taken."
    )
    # The time would make every challenge another one, and its header longer.
    assert "2027" not in reason


@pytest.mark.parametrize(
    "reason", ["invalid_exact_evm_payload_authorization_valid_before", "the authorization has expired"]
)
def test_a_facilitator_that_refuses_for_the_times_is_explained_too(reason: str) -> None:
    remark = OFFLINE.remark(f"the facilitator's reason is {reason}", NOW)
    assert remark is not None
    assert "2027-01-15T08:00:00Z" in remark


def test_a_reason_that_is_not_about_times_gets_no_clock() -> None:
    assert OFFLINE.remark("the wallet holds less than the price", NOW) is None


@pytest.mark.parametrize(("valid_after", "meets"), [(0, True), (NOW, True), (NOW + 30, True), (NOW + 31, False)])
async def test_the_start_of_the_time_window(protocol: X402Protocol, valid_after: int, meets: bool) -> None:
    payload = altered(await signed(protocol), validAfter=str(valid_after))
    assert (protocol.check_terms(read(protocol, payload), OFFER, NOW) is None) is meets


@pytest.mark.parametrize(
    "written", ["-1", "+1", "1.0", "1e3", "0x10", "01", "", " 1", "1\n", 1, None, "\u0661", "9" * 79]
)
@pytest.mark.parametrize("member", ["value", "validAfter", "validBefore"])
async def test_numbers_are_decimal_strings(protocol: X402Protocol, member: str, written: object) -> None:
    payload = altered(await signed(protocol), **{member: written})
    assert protocol.check_terms(read(protocol, payload), OFFER, NOW) is not None


async def test_nothing_rides_along_that_a_facilitator_could_take_for_the_payment(protocol: X402Protocol) -> None:
    """The SDK's facilitator settles a Permit2 authorization where there is one, and its nonce is not our proof."""
    payload = await signed(protocol)
    for member in ("permit2Authorization", "transaction", "more"):
        other: Payload = json.loads(json.dumps(payload))
        other["payload"][member] = {}
        assert protocol.check_terms(read(protocol, other), OFFER, NOW) is not None
    assert protocol.check_terms(read(protocol, altered(payload, v=27)), OFFER, NOW) is not None


async def test_a_price_that_changed_is_not_met_by_the_old_one(protocol: X402Protocol) -> None:
    dearer = Offer(**{name: getattr(OFFER, name) for name in OFFER.__dataclass_fields__} | {"amount": 20_000})
    assert protocol.check_terms(read(protocol, await signed(protocol)), dearer, NOW) is not None


# Verification and settlement.


async def test_outcomes_carry_their_receipts(protocol: X402Protocol, facilitator: FaultyFacilitator) -> None:
    credential = read(protocol, await signed(protocol))
    assert await protocol.verify(credential, OFFER) == Verified()
    outcome = await protocol.settle(credential, OFFER)
    assert isinstance(outcome, Settled)
    receipt = decode_payment_response_header(outcome.receipt)
    assert (receipt.success, receipt.transaction, receipt.network) == (True, outcome.transaction, NETWORK)
    assert receipt.payer is not None
    assert receipt.payer == outcome.payer == WALLET.address.lower()
    facilitator.set(Fault.REFUSED)
    refused = await protocol.settle(read(protocol, altered(await signed(protocol))), OFFER)
    assert isinstance(refused, Refused)
    assert refused.receipt is not None
    receipt = decode_payment_response_header(refused.receipt)
    assert (receipt.success, receipt.transaction, receipt.error_reason) == (False, "", refused.reason)
    facilitator.set(Fault.ERROR_AFTER)
    assert isinstance(await protocol.settle(read(protocol, await signed(protocol)), OFFER), Uncertain)
    facilitator.set(Fault.DOWN)
    assert isinstance(await protocol.settle(read(protocol, await signed(protocol)), OFFER), NotSent)


async def test_a_pending_settlement_is_not_tried_again(protocol: X402Protocol, facilitator: FaultyFacilitator) -> None:
    """The SDK's own wrapper calls a second time."""
    facilitator.set(Fault.PENDING)
    assert isinstance(await protocol.settle(read(protocol, await signed(protocol)), OFFER), Uncertain)
    assert facilitator.attempts.total() == 1


@dataclass
class Recorder:
    """A facilitator that settles every nonce once, and keeps the very bytes that it gets."""

    got: list[tuple[str, bytes]] = field(default_factory=list)
    answer: Any = field(default_factory=lambda: ledger_only(NETWORK))

    def __call__(self, path: str, body: bytes) -> tuple[int, bytes]:
        if body:
            self.got.append((path, body))
        said: tuple[int, bytes] = self.answer(path, body)
        return said


def member(name: str, value: object) -> bytes:
    """Return a member as it stands in compact JSON."""
    return f'"{name}":'.encode() + orjson.dumps(value)


async def test_the_facilitator_gets_our_own_words_byte_for_byte_whatever_the_payer_wrote() -> None:
    """https://github.com/x402-foundation/x402/issues/3005: catalogues take what a payload says, which nobody signs."""
    recorder = Recorder()
    with FaultyFacilitator(recorder) as facilitator:
        protocol = X402Protocol(config(facilitator.url))
        await protocol.start()
        challenge = base64.b64decode((await protocol.challenge(OFFER)).headers["payment-required"])
        asked = json.loads(challenge)
        ours = [member("resource", asked["resource"]), member("extensions", asked["extensions"])]
        assert all(part in challenge for part in ours)
        honest = await signed(protocol)
        bare: Payload = {name: value for name, value in honest.items() if name != "resource"}
        only_the_key = {"payment-identifier": {"info": {"required": True, "id": KEY}, "schema": {}}}
        evil = {"url": "https://evil.example/x", "description": "CHEAP", "mimeType": "text/html"}
        bazaar = json.loads(json.dumps(asked["extensions"]["bazaar"]))
        bazaar["info"]["input"]["body"] = {"insult": True}
        identifier = asked["extensions"]["payment-identifier"] | {"more": "of the payer's"}
        written: list[Payload] = [
            honest,
            bare | {"extensions": only_the_key},
            honest | {"resource": evil, "extensions": only_the_key | {"bazaar": bazaar}, "more": 1},
            honest | {"extensions": {"payment-identifier": identifier, "other": {"info": {}}}},
        ]
        for number, payload in enumerate(written):
            credential = read(protocol, altered(payload, nonce=f"0x{number + 1:064x}"))
            assert protocol.check_terms(credential, OFFER, NOW) is None
            assert await protocol.verify(credential, OFFER) == Verified()
            assert isinstance(await protocol.settle(credential, OFFER), Settled)
        await protocol.close()
    assert [path for path, _ in recorder.got] == ["/verify", "/settle"] * len(written)
    for number, (_, body) in enumerate(recorder.got):
        assert all(body.count(part) == 1 for part in ours)
        call = json.loads(body)
        assert set(call) == {"x402Version", "paymentPayload", "paymentRequirements"}
        assert call["paymentRequirements"] == asked["accepts"][0]
        payload = call["paymentPayload"]
        assert set(payload) == {"x402Version", "payload", "accepted", "resource", "extensions"}
        assert (call["x402Version"], payload["x402Version"]) == (2, 2)
        assert payload["accepted"] == asked["accepts"][0]
        assert set(payload["extensions"]) == {"payment-identifier", "bazaar"}
        assert payload["extensions"]["payment-identifier"]["info"] == {"required": True, "id": KEY}
        assert payload["payload"] == altered(honest, nonce=f"0x{number // 2 + 1:064x}")["payload"]
        assert b"evil.example" not in body


async def test_a_payment_for_a_refusal_s_challenge_carries_the_whole_declaration_too() -> None:
    """A PAYMENT_REJECTED declares no bazaar, and the client echoes what it was given."""
    recorder = Recorder()
    with FaultyFacilitator(recorder) as facilitator:
        protocol = X402Protocol(config(facilitator.url))
        await protocol.start()
        refused = (await protocol.challenge(OFFER, "it has expired")).members["extensions"]
        assert isinstance(refused, dict)
        assert set(refused) == {"payment-identifier"}
        credential = read(protocol, await signed(protocol) | {"extensions": refused})
        await protocol.verify(credential, OFFER)
        [(_, body)] = recorder.got
        assert member("extensions", (await protocol.challenge(OFFER)).members["extensions"]) in body
        await protocol.close()


async def test_the_digest_of_a_credential_is_over_what_the_client_sent(protocol: X402Protocol) -> None:
    payload = await signed(protocol)
    for other in (
        payload | {"resource": {"url": "https://evil.example/x"}},
        payload | {"extensions": {**payload["extensions"], "other": {}}},
    ):
        assert read(protocol, other).digest != read(protocol, payload).digest


async def test_success_without_a_hash_is_told_at_the_first_sale(protocol: X402Protocol) -> None:
    """Circle's gateway answers a UUID: the money moves, and no sale can be told from another."""
    uuid = "b6ae6bd6-6ca1-4c5a-9d2f-0c8a1f3f1a11"
    answer = ledger_only(NETWORK)

    def gateway(path: str, body: bytes) -> tuple[int, bytes]:
        status, said = answer(path, body)
        return status, orjson.dumps(json.loads(said) | ({"transaction": uuid} if path == "/settle" else {}))

    with FaultyFacilitator(gateway) as circle:
        own = X402Protocol(config(circle.url))
        await own.start()
        with capture_logs() as told:
            outcome = await own.settle(read(own, await signed(own)), OFFER)
        await own.close()
    assert isinstance(outcome, Uncertain)
    assert outcome.transaction == uuid
    [alarm] = [line for line in told if "alarm" in line]
    assert (alarm["alarm"], alarm["reported_transaction"]) == ("no_transaction_hash", uuid)
    with capture_logs() as told:
        await protocol.settle(read(protocol, await signed(protocol)), OFFER)
    assert [line for line in told if "alarm" in line] == []


async def test_a_bill_that_is_not_paid_makes_it_not_ready(
    protocol: X402Protocol, facilitator: FaultyFacilitator
) -> None:
    facilitator.set(Fault.UNPAID_BILL)
    for _ in range(3):
        assert protocol.ready().ready
        await protocol.settle(read(protocol, await signed(protocol)), OFFER)
    assert protocol.ready() == (False, "the facilitator refuses every call for reasons of its own")


# Readiness.


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - The protocol has no event for it.
            await asyncio.sleep(0.01)


async def test_a_facilitator_that_is_down_at_the_start_is_asked_again(
    facilitator: FaultyFacilitator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ranking_evaluate.payments.connecting.RETRY_SECONDS", 0.02)
    facilitator.set(Fault.DOWN)
    protocol = X402Protocol(config(facilitator.url))
    await protocol.start()
    ready, reason = protocol.ready()
    assert (ready, reason) == (False, "the facilitator could not be reached")
    assert [terms.network for terms in protocol.terms()] == [NETWORK]
    facilitator.set(Fault.NONE)
    await until(lambda: protocol.ready().ready)
    assert protocol.ready().reason is None
    await protocol.close()


@pytest.mark.parametrize(
    ("supported", "reason"),
    [
        ({"kinds": [{"x402Version": 2, "scheme": "exact", "network": "eip155:1"}]}, "does not serve exact on"),
        ({"kinds": [{"x402Version": 1, "scheme": "exact", "network": NETWORK}]}, "does not serve exact on"),
        ({"kinds": [{"x402Version": 2, "scheme": "upto", "network": NETWORK}]}, "does not serve exact on"),
        ({"kinds": "all"}, "not of the x402 form"),
        ({}, "not of the x402 form"),
    ],
)
async def test_a_facilitator_that_does_not_serve_our_network_is_no_protocol(supported: Payload, reason: str) -> None:
    with FaultyFacilitator(lambda path, body: (200, json.dumps(supported).encode())) as other:
        protocol = X402Protocol(config(other.url))
        await protocol.start()
        ready, why = protocol.ready()
        await protocol.close()
    assert not ready
    assert why is not None
    assert reason in why


# Several networks.

SECOND: Final = "eip155:31337"
OTHER_TOKEN: Final = Token("0x" + "5f" * 20, "Sandbox Dollar", "1")
BOTH: Final = (X402Network(NETWORK, USDC[NETWORK]), X402Network(SECOND, OTHER_TOKEN))


@pytest.fixture
async def on_both() -> AsyncIterator[tuple[X402Protocol, FaultyFacilitator]]:
    with FaultyFacilitator(ledger_only(NETWORK, SECOND)) as running:
        made = X402Protocol(config(running.url, *BOTH))
        await made.start()
        assert made.ready().ready
        yield made, running
        await made.close()


async def test_the_challenge_offers_every_network_in_the_order_of_the_setting(
    on_both: tuple[X402Protocol, FaultyFacilitator],
) -> None:
    members: Any = (await on_both[0].challenge(OFFER)).members
    common = {"scheme": "exact", "amount": "10000", "payTo": PAYEE, "maxTimeoutSeconds": 120}
    assert members["accepts"] == [
        {**common, "network": NETWORK, "asset": USDC[NETWORK].asset, "extra": {"name": "USDC", "version": "2"}},
        {
            **common,
            "network": SECOND,
            "asset": OTHER_TOKEN.asset,
            "extra": {"name": "Sandbox Dollar", "version": "1"},
        },
    ]
    announced = on_both[0].announce(10_000)
    assert list(announced.accepts) == members["accepts"]
    assert [offer["network"] for offer in announced.offers] == [NETWORK, SECOND]


@pytest.mark.parametrize("number", [0, 1])
async def test_a_credential_is_held_against_the_entry_that_it_accepted(
    on_both: tuple[X402Protocol, FaultyFacilitator], number: int
) -> None:
    protocol, _ = on_both
    payload = await signed(protocol)
    accepts: Any = (await protocol.challenge(OFFER)).members["accepts"]
    mine, other = accepts[number], accepts[1 - number]
    assert protocol.check_terms(read(protocol, payload | {"accepted": mine}), OFFER, NOW) is None
    mixed: list[Payload] = [mine | {name: other[name]} for name in ("network", "asset", "extra")]
    mixed += [mine | {"network": "eip155:1"}, mine | {"amount": "1"}, mine | {"payTo": OTHER_TOKEN.asset}]
    for accepted in mixed:
        objection = protocol.check_terms(read(protocol, payload | {"accepted": accepted}), OFFER, NOW)
        assert objection is not None, accepted
        assert "not what is asked" in objection


async def test_the_facilitator_and_the_receipt_are_told_the_network_that_was_accepted(
    on_both: tuple[X402Protocol, FaultyFacilitator],
) -> None:
    protocol, facilitator = on_both
    calls: list[Payload] = []
    answer = facilitator._call

    def recorded(path: str, body: bytes) -> tuple[int, bytes]:
        calls.append(json.loads(body))
        return answer(path, body)

    facilitator._call = recorded
    accepts: Any = (await protocol.challenge(OFFER)).members["accepts"]
    for number, nonce in ((1, "11"), (0, "22")):
        payload = altered(await signed(protocol), nonce="0x" + nonce * 32) | {"accepted": accepts[number]}
        credential = read(protocol, payload)
        assert await protocol.verify(credential, OFFER) == Verified()
        outcome = await protocol.settle(credential, OFFER)
        assert isinstance(outcome, Settled)
        assert decode_payment_response_header(outcome.receipt).network == accepts[number]["network"]
        assert [call["paymentRequirements"] for call in calls[-2:]] == [accepts[number]] * 2


async def test_success_on_the_other_network_is_uncertain(on_both: tuple[X402Protocol, FaultyFacilitator]) -> None:
    protocol, facilitator = on_both
    facilitator._call = lambda path, body: (
        200,
        json.dumps({"success": True, "transaction": "0x" + "ab" * 32, "network": NETWORK}).encode(),
    )
    accepts: Any = (await protocol.challenge(OFFER)).members["accepts"]
    outcome = await protocol.settle(read(protocol, await signed(protocol) | {"accepted": accepts[1]}), OFFER)
    assert isinstance(outcome, Uncertain)
    assert "another network" in outcome.reason


async def test_one_nonce_on_two_networks_is_two_proofs_and_on_two_tokens_as_well(
    on_both: tuple[X402Protocol, FaultyFacilitator],
) -> None:
    protocol, _ = on_both
    payload = await signed(protocol)
    accepts: Any = (await protocol.challenge(OFFER)).members["accepts"]
    entries = [accepts[0], accepts[1], accepts[1] | {"asset": accepts[0]["asset"]}]
    proofs = {read(protocol, payload | {"accepted": accepted}).proofs for accepted in entries}
    assert len(proofs) == 3
    assert read(protocol, payload | {"accepted": accepts[0] | {"asset": accepts[0]["asset"].lower()}}).proofs in proofs


async def test_a_facilitator_that_serves_some_networks_only_is_none_and_the_missing_ones_are_named() -> None:
    with FaultyFacilitator(ledger_only(NETWORK)) as running:
        protocol = X402Protocol(config(running.url, *BOTH, X402Network("eip155:10143", OTHER_TOKEN)))
        await protocol.start()
        said = protocol.ready()
        await protocol.close()
    assert said == (False, f"the facilitator does not serve exact on {SECOND} and eip155:10143 in version 2")


async def test_a_payment_is_looked_up_at_the_node_of_its_own_network(
    on_both: tuple[X402Protocol, FaultyFacilitator],
) -> None:
    facts = read(on_both[0], await signed(on_both[0])).facts
    nobody = "http://127.0.0.1:1"
    seeing = X402Protocol(config(on_both[1].url, BOTH[0], X402Network(SECOND, OTHER_TOKEN, nobody)))
    for network, said in (
        (NETWORK, f"X402_RPC_URL names no node of {NETWORK}"),
        (SECOND, "the chain could not be read"),
        ("eip155:8453", "X402_NETWORK does not name eip155:8453, on which the payment is"),
    ):
        found = await seeing.inspect(replace(facts, network=network))
        assert isinstance(found, Unknown)
        assert found.reason.startswith(said)
    await seeing.close()


async def test_the_start_names_the_networks_without_a_node(on_both: tuple[X402Protocol, FaultyFacilitator]) -> None:
    half = X402Protocol(config(on_both[1].url, X402Network(NETWORK, USDC[NETWORK], "http://127.0.0.1:1"), BOTH[1]))
    with structlog.testing.capture_logs() as logs:
        await half.start()
        await half.close()
    assert [line["networks"] for line in logs if "X402_RPC_URL" in line["event"]] == [[SECOND]]


async def test_closing_ends_the_asking(facilitator: FaultyFacilitator) -> None:
    facilitator.set(Fault.DOWN)
    protocol = X402Protocol(config(facilitator.url))
    await protocol.start()
    await protocol.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("x402")]


# Reconciliation.


async def test_without_a_node_the_chain_is_unknown(protocol: X402Protocol) -> None:
    credential = read(protocol, await signed(protocol))
    assert await protocol.inspect(credential.facts) == Unknown(f"X402_RPC_URL names no node of {NETWORK}")


async def test_a_reconciled_receipt_says_so(protocol: X402Protocol) -> None:
    facts = read(protocol, await signed(protocol)).facts
    header = await protocol.reconciled_receipt(facts, "0x" + "ab" * 32, KEY)
    receipt = json.loads(base64.b64decode(header))
    assert receipt["success"] is True
    assert (receipt["transaction"], receipt["network"]) == ("0x" + "ab" * 32, NETWORK)
    assert receipt["payer"] == WALLET.address.lower()
    assert receipt["extra"] == {"reconciled": True}
