"""`pay` signs at most one living payment per key, within its mandate, and says what to do when it is not sure."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from mpp import Challenge
from mpp.methods.tempo import MACH, OUSD
from x402.extensions.payment_identifier import declare_payment_identifier_extension
from x402.http.utils import (
    decode_payment_signature_header,
    encode_payment_required_header,
    encode_payment_response_header,
)
from x402.schemas import PaymentPayload, PaymentRequired, PaymentRequirements, SettleResponse

from ranking_evaluate.cli import saved_credential
from ranking_evaluate.cli.buying import PATIENCE_SECONDS, Order, run_pay
from ranking_evaluate.cli.exchange import http_client, read_receipt
from ranking_evaluate.cli.payers.mpp import sign as sign_mpp
from ranking_evaluate.cli.payers.payer import NOT_CHARGED, UNCLEAR, Mandate, PayError
from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.payments.mpp.protocol import MppProtocol
from ranking_evaluate.payments.protocol import Credential, Offer
from ranking_evaluate.sandbox.tempo import TempoProxy
from ranking_evaluate.sandbox.wallets import new_wallet

if TYPE_CHECKING:
    from pathlib import Path

    from ranking_evaluate.cli.buying import Answer

URL = "https://ranking.example/v1/x402/ranking-evaluate"
KEY = "test_key_0123456789"
LONG_AFTER = 120 + saved_credential.EXPIRY_MARGIN_SECONDS + 5.0
"""Seconds after which no chain takes what was signed at the start."""

WALLET = new_wallet()
ANSWER = b'{"operation":"ranking-evaluate"}'
OFFER = PaymentRequirements(
    scheme="exact",
    network="eip155:31337",
    asset="0x5FbDB2315678afecb367f032d93F642f64180aa3",
    amount="10000",
    pay_to="0x" + "11" * 20,
    max_timeout_seconds=120,
    extra={"name": "Sandbox Dollar", "version": "1"},
)
USDC_ON_BASE = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
RECEIPT = encode_payment_response_header(
    SettleResponse(success=True, transaction="0x" + "ab" * 32, network=OFFER.network, payer=WALLET.address)
)

Reply = Callable[[httpx.Request], httpx.Response]


def challenge(*offers: PaymentRequirements, identifier: bool = True) -> httpx.Response:
    required = PaymentRequired(
        x402_version=2,
        accepts=list(offers),
        extensions={"payment-identifier": declare_payment_identifier_extension(required=True)} if identifier else None,
    )
    return httpx.Response(402, headers={"PAYMENT-REQUIRED": encode_payment_required_header(required)})


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"code": code, "nextStep": "Look."}, headers=headers)


def delivered(replayed: bool = False) -> httpx.Response:
    marks = {"Idempotent-Replayed": "true"} if replayed else {}
    return httpx.Response(200, content=ANSWER, headers={"PAYMENT-RESPONSE": RECEIPT, **marks})


class Service:
    """A scripted service: what it offers, what it knows of the key, and what it answers to each credential."""

    def __init__(self) -> None:
        self.offer: Reply = lambda request: challenge(OFFER)
        self.state: str | None = None
        self.keeps_a_record = True
        self.replies: list[httpx.Response | BaseException | Callable[[], httpx.Response | BaseException]] = []
        self.credentials: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Idempotency-Key"] == KEY
        if request.url.path == "/v1/attempts":
            if self.state is None:
                return problem(404, "ATTEMPT_UNKNOWN" if self.keeps_a_record else "NOT_FOUND")
            return httpx.Response(200, json={"state": self.state})
        if "PAYMENT-SIGNATURE" not in request.headers:
            return self.offer(request)
        self.credentials.append(request.headers["PAYMENT-SIGNATURE"])
        reply = self.replies.pop(0)
        if callable(reply):
            reply = reply()
        if isinstance(reply, BaseException):
            raise reply
        return reply

    @property
    def authorization(self) -> dict[str, Any]:
        """The only authorization that was ever received."""
        (credential,) = set(self.credentials)
        content: dict[str, Any] = decode_payment_signature_header(credential).payload["authorization"]
        return content


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds added to the wall clock that `pay` sees; its pauses take none."""
    offset = [0.0]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return offset


@pytest.fixture
def buy(service: Service, tmp_path: Path, clock: list[float]) -> Callable[..., Answer]:
    def run(
        *,
        body: bytes = b"{}",
        url: str = URL,
        protocol: str = "x402",
        patience: float = PATIENCE_SECONDS,
        sign_again: bool = False,
        **limits: Any,
    ) -> Answer:
        mandate = replace(Mandate(wallet_key=WALLET.key, key=KEY, max_amount=Decimal("0.01")), **limits)
        with httpx.Client(transport=httpx.MockTransport(service)) as client:
            return run_pay(
                Order(url=url, protocol=protocol, body=body, key=KEY),
                mandate,
                state_dir=tmp_path / "state",
                client=client,
                say=lambda text: None,
                patience=patience,
                sign_again=sign_again,
            )

    return run


def test_a_purchase_pays_exactly_the_offer_and_names_its_key(service: Service, buy: Callable[..., Answer]) -> None:
    service.replies = [delivered()]
    answer = buy()
    assert (answer.body, answer.receipt, answer.replayed) == (ANSWER, RECEIPT, False)
    assert service.authorization["from"] == WALLET.address
    assert service.authorization["to"] == OFFER.pay_to
    assert service.authorization["value"] == "10000"
    payload = decode_payment_signature_header(service.credentials[0])
    assert isinstance(payload, PaymentPayload)
    assert payload.extensions is not None
    assert payload.extensions["payment-identifier"]["info"]["id"] == KEY


def test_a_second_run_sends_the_same_credential(service: Service, buy: Callable[..., Answer]) -> None:
    service.replies = [delivered(), delivered(replayed=True)]
    buy()
    service.state = "settled"
    assert buy().replayed
    assert len(service.credentials) == 2
    assert len(set(service.credentials)) == 1


def test_a_lost_connection_sends_the_same_credential_again(service: Service, buy: Callable[..., Answer]) -> None:
    service.replies = [
        httpx.ReadTimeout("lost"),
        httpx.RemoteProtocolError("lost"),
        problem(409, "PAYMENT_IN_PROGRESS", **{"Retry-After": "3"}),
        problem(503, "STATE_UNAVAILABLE", **{"Retry-After": "1"}),
        delivered(replayed=True),
    ]
    assert buy().body == ANSWER
    assert len(service.credentials) == 5
    assert len(set(service.credentials)) == 1


def test_a_connection_that_stays_lost_ends_with_the_advice_to_use_the_same_key(
    service: Service, buy: Callable[..., Answer]
) -> None:
    service.replies = [httpx.ReadTimeout("lost"), delivered()]
    with pytest.raises(PayError, match=f"--key {KEY}") as caught:
        buy(patience=0.0)
    assert caught.value.exit_code == UNCLEAR
    service.state = "settling"
    assert buy().body == ANSWER
    assert len(set(service.credentials)) == 1


@pytest.mark.parametrize("state", ["reserved", "settling", "settled", "uncertain"])
def test_nothing_is_signed_for_a_key_that_may_have_paid_elsewhere(
    service: Service, buy: Callable[..., Answer], state: str, tmp_path: Path
) -> None:
    service.state = state
    with pytest.raises(PayError) as caught:
        buy()
    assert caught.value.exit_code == UNCLEAR
    assert service.credentials == []
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("code", ["PAYMENT_UNCERTAIN", "PAYMENT_IN_PROGRESS", "IDEMPOTENCY_CONFLICT", "other"])
def test_a_key_that_the_service_refuses_as_known_is_not_told_as_unpaid(
    service: Service, buy: Callable[..., Answer], code: str
) -> None:
    """The record may be out of reach, as behind a proxy that publishes the paid routes alone."""
    service.keeps_a_record = False
    service.offer = lambda request: problem(409, code)
    with pytest.raises(PayError, match="Do not pay again for this") as caught:
        buy()
    assert (caught.value.exit_code, service.credentials) == (UNCLEAR, [])
    assert "Nothing was" not in str(caught.value)


def test_an_uncertain_payment_is_left_to_the_operator(
    service: Service, buy: Callable[..., Answer], clock: list[float]
) -> None:
    service.replies = [problem(409, "PAYMENT_UNCERTAIN")]
    with pytest.raises(PayError, match="Do not pay again") as caught:
        buy()
    assert caught.value.exit_code == UNCLEAR
    service.state = "uncertain"
    clock[0] = 3600.0
    with pytest.raises(PayError, match="Do not pay again"):
        buy()
    assert len(service.credentials) == 1


@pytest.mark.parametrize("state", [None, "failed", "released"])
def test_a_refused_credential_is_replaced_only_when_it_is_dead_and_the_buyer_says_so(
    service: Service, buy: Callable[..., Answer], clock: list[float], state: str | None
) -> None:
    service.state = state
    service.replies = [problem(402, "PAYMENT_REJECTED"), problem(402, "PAYMENT_REJECTED"), delivered()]
    for sign_again in (False, True):
        with pytest.raises(PayError, match="Nothing was charged") as caught:
            buy(sign_again=sign_again)
        assert caught.value.exit_code == NOT_CHARGED
    assert len(set(service.credentials)) == 1
    clock[0] = LONG_AFTER
    with pytest.raises(PayError, match="--sign-again") as caught:
        buy()
    assert (caught.value.exit_code, len(service.credentials)) == (NOT_CHARGED, 2)
    assert buy(sign_again=True).body == ANSWER
    assert len(set(service.credentials)) == 2


@pytest.mark.parametrize(
    "replies",
    [
        [httpx.ReadTimeout("lost"), problem(402, "PAYMENT_REQUIRED")],
        [httpx.Response(402)],
        [httpx.Response(402, headers={"PAYMENT-RESPONSE": RECEIPT})],
        [httpx.Response(400)],
        [httpx.Response(302, headers={"Location": "/elsewhere"})],
    ],
)
def test_a_server_without_a_record_is_not_believed_that_nothing_was_charged(
    service: Service, buy: Callable[..., Answer], clock: list[float], replies: list[httpx.Response | Exception]
) -> None:
    service.keeps_a_record = False
    service.replies = list(replies)
    with pytest.raises(PayError, match="Whether it was charged is not known") as caught:
        buy()
    assert caught.value.exit_code == UNCLEAR
    clock[0] = LONG_AFTER
    for sign_again in (False, True):
        service.replies = [httpx.Response(402)]
        with pytest.raises(PayError, match="It can no longer be used: look at the wallet's transfers") as caught:
            buy(sign_again=sign_again)
        assert caught.value.exit_code == UNCLEAR
    assert len(set(service.credentials)) == 1


def test_a_receipt_of_a_payment_is_believed_more_than_a_later_word(
    service: Service, buy: Callable[..., Answer], clock: list[float]
) -> None:
    service.replies = [httpx.Response(402, headers={"PAYMENT-RESPONSE": RECEIPT})]
    with pytest.raises(PayError, match="Whether it was charged is not known") as caught:
        buy()
    assert caught.value.exit_code == UNCLEAR
    clock[0] = LONG_AFTER
    service.replies = [problem(402, "PAYMENT_REJECTED")]
    with pytest.raises(PayError, match="Whether it was charged is not known") as caught:
        buy(sign_again=True)
    assert caught.value.exit_code == UNCLEAR
    assert len(set(service.credentials)) == 1


def test_an_answered_key_is_never_signed_for_again(
    service: Service, buy: Callable[..., Answer], clock: list[float], tmp_path: Path
) -> None:
    service.replies = [delivered()]
    buy()
    clock[0] = LONG_AFTER
    # Whatever the service says by then: that it knows nothing, that it refuses, or that it is gone.
    for reply in (problem(402, "PAYMENT_REJECTED"), problem(409, "PAYMENT_UNCERTAIN"), httpx.ConnectError("gone")):
        service.replies = [reply]
        answer = buy(sign_again=True)
        assert (answer.body, answer.receipt, answer.replayed) == (ANSWER, RECEIPT, True)
    for kept in (tmp_path / "state").glob("*.answer"):
        kept.unlink()
    service.replies = [problem(402, "PAYMENT_REJECTED")]
    with pytest.raises(PayError, match="It was answered, so it was probably charged.*" + "ab" * 32) as caught:
        buy(sign_again=True)
    assert caught.value.exit_code == UNCLEAR
    assert len(set(service.credentials)) == 1


def test_a_credential_that_never_left_was_not_charged_and_is_replaced_when_it_is_dead(
    service: Service, buy: Callable[..., Answer], clock: list[float]
) -> None:
    service.keeps_a_record = False
    service.replies = [httpx.ConnectError("refused"), httpx.ConnectTimeout("silent")]
    for _ in range(2):
        with pytest.raises(PayError, match="did not leave this machine, so nothing was charged") as caught:
            buy(patience=0.0)
        assert caught.value.exit_code == NOT_CHARGED
    clock[0] = LONG_AFTER
    service.replies = [delivered()]
    assert buy().body == ANSWER
    assert len(set(service.credentials)) == 2


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_run_that_could_not_connect_knows_what_another_run_sent_meanwhile(
    service: Service, buy: Callable[..., Answer], is_answered: bool
) -> None:
    service.keeps_a_record = False

    def another_run() -> httpx.ConnectError:
        service.replies = [delivered() if is_answered else httpx.ReadTimeout("lost")]
        with contextlib.nullcontext() if is_answered else pytest.raises(PayError):
            buy(patience=0.0)
        return httpx.ConnectError("refused")

    service.replies = [another_run]
    if is_answered:
        assert buy(patience=0.0).body == ANSWER
    else:
        with pytest.raises(PayError, match=r"is not known: .* sent once, 1 of them without an answer") as caught:
            buy(patience=0.0)
        assert caught.value.exit_code == UNCLEAR
    assert len(set(service.credentials)) == 1


def test_a_run_that_was_killed_while_it_sent_counts_as_sent(
    service: Service, buy: Callable[..., Answer], clock: list[float], tmp_path: Path
) -> None:
    service.keeps_a_record = False
    service.replies = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        buy()
    # The line of an answer that was being written when the power failed.
    (noted,) = (tmp_path / "state").glob("*.sends")
    noted.write_text(noted.read_text() + '\n{"event": "answ')
    clock[0] = LONG_AFTER
    service.replies = [httpx.Response(402)]
    with pytest.raises(PayError, match="sent 2 times, 1 of them without an answer") as caught:
        buy(sign_again=True)
    assert caught.value.exit_code == UNCLEAR
    assert len(set(service.credentials)) == 1


def test_a_credential_of_an_older_release_counts_as_sent(
    service: Service, buy: Callable[..., Answer], clock: list[float], tmp_path: Path
) -> None:
    service.keeps_a_record = False
    service.replies = [httpx.ConnectError("refused")]
    with pytest.raises(PayError):
        buy(patience=0.0)
    for noted in (tmp_path / "state").glob("*.sends"):
        noted.unlink()
    clock[0] = LONG_AFTER
    service.replies = [httpx.Response(402)]
    with pytest.raises(PayError, match="is not known") as caught:
        buy(sign_again=True)
    assert caught.value.exit_code == UNCLEAR
    assert len(set(service.credentials)) == 1


def test_what_was_sent_and_answered_is_kept_for_its_owner_alone(
    service: Service, buy: Callable[..., Answer], tmp_path: Path
) -> None:
    service.replies = [httpx.ReadTimeout("lost"), problem(503, "STATE_UNAVAILABLE"), delivered()]
    buy()
    (noted,) = (tmp_path / "state").glob("*.sends")
    events = [json.loads(line) for line in noted.read_text().splitlines() if line]
    assert [(event["event"], event.get("status"), event.get("receipt")) for event in events] == [
        ("sending", None, None),
        ("sending", None, None),
        ("answered", 503, None),
        ("sending", None, None),
        ("answered", 200, RECEIPT),
    ]
    (answer,) = (tmp_path / "state").glob("*.answer")
    assert answer.read_bytes() == ANSWER
    assert {stat.S_IMODE(path.stat().st_mode) for path in (noted, answer)} == {0o600}


@pytest.mark.parametrize("state", ["settling", "settled"])
def test_a_dead_credential_is_not_replaced_while_the_service_knows_a_payment(
    service: Service, buy: Callable[..., Answer], clock: list[float], state: str
) -> None:
    service.replies = [problem(500, "INTERNAL"), delivered(replayed=True)]
    with pytest.raises(PayError):
        buy(patience=0.0)
    service.state = state
    clock[0] = 3600.0
    assert buy().replayed
    assert len(set(service.credentials)) == 1


def test_a_key_stays_with_its_purchase(service: Service, buy: Callable[..., Answer]) -> None:
    service.replies = [delivered()]
    buy()
    with pytest.raises(PayError, match="another purchase"):
        buy(body=b"[]")
    assert len(service.credentials) == 1


def test_what_was_signed_is_sent_to_the_place_that_the_service_moved_to_and_nothing_is_signed_there(
    service: Service, buy: Callable[..., Answer], clock: list[float]
) -> None:
    """An earlier release delivers what it sold, at an origin of its own."""
    elsewhere = URL.replace("https://", "https://before.")
    service.replies = [problem(409, "IDEMPOTENCY_CONFLICT"), delivered(replayed=True)]
    with pytest.raises(PayError):
        buy()
    assert buy(url=elsewhere).body == ANSWER
    # Not even where that place says that nothing was charged, and the credential is dead: the kept answer is shown.
    clock[0], service.state, service.replies = 3600.0, "failed", [problem(402, "PAYMENT_REJECTED")]
    assert buy(url=elsewhere, sign_again=True).body == ANSWER
    assert (len(service.credentials), len(set(service.credentials))) == (3, 1)


def test_what_never_left_is_sent_to_no_other_place(service: Service, buy: Callable[..., Answer]) -> None:
    service.replies = [httpx.ConnectError("refused")]
    with pytest.raises(PayError):
        buy(patience=0.0)
    for url in (URL.replace("https://", "https://before."), f"{URL}/other"):
        with pytest.raises(PayError, match="another purchase"):
            buy(url=url)
    assert len(service.credentials) == 1


@pytest.mark.parametrize(
    ("offers", "limits", "words"),
    [
        ([OFFER.model_copy(update={"amount": "10001"})], {}, "more than the 0.01 allowed"),
        ([OFFER.model_copy(update={"amount": "1e4"})], {}, "not a whole number"),
        ([OFFER.model_copy(update={"network": "eip155:8453"})], {}, "no dollar of this address"),
        ([OFFER], {"asset": USDC_ON_BASE}, "another asset than --asset"),
        ([OFFER.model_copy(update={"scheme": "upto"})], {}, "only the scheme exact"),
        ([OFFER.model_copy(update={"network": "solana:x"})], {}, "no EVM network"),
        ([OFFER.model_copy(update={"extra": {"assetTransferMethod": "permit2"}})], {}, "not permit2"),
        ([OFFER.model_copy(update={"max_timeout_seconds": 10**6})], {}, "valid for 1000000 s"),
        ([OFFER], {"network": "eip155:8453"}, "another network than --network eip155:8453"),
        ([], {}, "offers nothing"),
        ([OFFER], {"wallet_key": "0x1234"}, "not a private key"),
    ],
)
def test_what_the_mandate_does_not_cover_is_not_signed(
    service: Service,
    buy: Callable[..., Answer],
    tmp_path: Path,
    offers: list[PaymentRequirements],
    limits: dict[str, Any],
    words: str,
) -> None:
    service.offer = lambda request: challenge(*offers)
    with pytest.raises(PayError, match=words) as caught:
        buy(**limits)
    assert caught.value.exit_code == NOT_CHARGED
    assert service.credentials == []
    assert not (tmp_path / "state").exists()


def test_of_several_offers_the_cheapest_covered_one_is_paid(service: Service, buy: Callable[..., Answer]) -> None:
    cheap = OFFER.model_copy(update={"amount": "9000"})
    foreign = OFFER.model_copy(update={"amount": "1", "network": "eip155:8453"})
    service.offer = lambda request: challenge(OFFER, foreign, cheap)
    service.replies = [delivered()]
    buy()
    assert service.authorization["value"] == "9000"


def test_known_dollars_are_paid_without_naming_them(service: Service, buy: Callable[..., Answer]) -> None:
    dollars = OFFER.model_copy(update={"network": "eip155:8453", "asset": USDC_ON_BASE})
    service.offer = lambda request: challenge(dollars)
    service.replies = [delivered()]
    assert buy().body == ANSWER


@pytest.mark.parametrize(
    "answer",
    [
        challenge(OFFER, identifier=False),
        httpx.Response(402, headers={"PAYMENT-REQUIRED": "%%%"}),
        httpx.Response(402),
        httpx.Response(302, headers={"Location": "https://elsewhere.example/"}),
        problem(422, "INVALID_INPUT"),
    ],
)
def test_an_answer_that_is_no_usable_offer_is_not_paid(
    service: Service, buy: Callable[..., Answer], answer: httpx.Response
) -> None:
    service.offer = lambda request: answer
    with pytest.raises(PayError, match="Nothing was paid"):
        buy()
    assert service.credentials == []


# Signing over MPP; that a real chain takes what is signed is shown in tests/judges/test_mpp_clients.py.

NO_DOLLAR = "0x20c0000000000000000000000000000000000bad"
MPP_CONFIG = MppConfig(
    recipient="0x" + "33" * 20,
    chain_id=42431,
    rpc_url="http://127.0.0.1:1",
    currencies=("0x20c0000000000000000000000000000000000000",),
    secret_key="s" * 32,
    realm="ranking.example",
)
MPP_OFFER = Offer(
    operation="ranking-evaluate",
    description="One paid evaluation",
    release="0.29.0",
    url="https://ranking.example/v1/mpp/ranking-evaluate",
    key=KEY,
    amount=10_000,
    body=b"{}",
)


class Node(TempoProxy):
    """Answers what the official client asks before it signs, and knows what it was asked."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.asked: list[str] = []

    def answer(self, call: dict[str, Any]) -> bytes:
        self.asked.append(call["method"])
        # Whoever is asked about has a dollar in every token, so fees in one can be paid whatever the other is.
        balance = f"0x{10**6:064x}"
        results = {"eth_chainId": hex(MPP_CONFIG.chain_id), "eth_gasPrice": hex(2 * 10**10), "eth_call": balance}
        return json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": results.get(call["method"], "0x0")}).encode()


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as running:
        yield running


def mpp_challenge(**changes: Any) -> Challenge:
    """Return the service's own challenge, with changes that only another service would make."""
    made = asyncio.run(MppProtocol(MPP_CONFIG).challenge(MPP_OFFER))
    return replace(Challenge.from_www_authenticate(made.headers["www-authenticate"]), **changes)


def charge(**changes: Any) -> Challenge:
    request = mpp_challenge().request
    return mpp_challenge(request={**request, **changes}, request_b64=None)


def details(**changes: Any) -> Challenge:
    return charge(methodDetails={**mpp_challenge().request["methodDetails"], **changes})


def payment_required(*challenges: Challenge | str) -> httpx.Response:
    values = [one if isinstance(one, str) else one.to_www_authenticate(one.realm) for one in challenges]
    return httpx.Response(402, headers=[("WWW-Authenticate", value) for value in values])


def mpp_mandate(**limits: Any) -> Mandate:
    return replace(Mandate(wallet_key=WALLET.key, key=KEY, max_amount=Decimal("0.01")), **limits)


def test_an_mpp_payment_is_exactly_the_offer_and_ends_soon(node: Node) -> None:
    now = time.time()
    signed = sign_mpp(payment_required("Bearer", mpp_challenge()), mpp_mandate(rpc_url=node.url))
    protocol = MppProtocol(MPP_CONFIG)
    credential = protocol.read_credential({"authorization": signed.value}, MPP_OFFER)
    assert isinstance(credential, Credential)
    assert protocol.check_terms(credential, MPP_OFFER, now) is None
    assert credential.facts.payer == WALLET.address.lower()
    assert credential.facts.valid_before is not None
    assert now + 20 < credential.facts.valid_before <= signed.expires_at <= now + 26
    assert (signed.header, WALLET.address in signed.terms, "0.01 of" in signed.terms) == ("Authorization", True, True)
    assert "eth_sendRawTransactionSync" not in node.asked


def test_of_several_mpp_offers_the_cheapest_is_signed(node: Node) -> None:
    required = payment_required(charge(amount="9000"), charge(amount="8000"), charge(amount="10001"))
    signed = sign_mpp(required, mpp_mandate(rpc_url=node.url))
    assert signed.terms.startswith("0.008 of ")


def test_any_mpp_dollar_that_the_sdk_knows_is_signed(node: Node) -> None:
    signed = sign_mpp(payment_required(charge(currency=OUSD)), mpp_mandate(rpc_url=node.url))
    assert f"0.01 of {OUSD}" in signed.terms
    named = sign_mpp(payment_required(charge(currency=NO_DOLLAR)), mpp_mandate(rpc_url=node.url, asset=NO_DOLLAR))
    assert f"0.01 of {NO_DOLLAR}" in named.terms


@pytest.mark.parametrize(
    ("answer", "limits", "words"),
    [
        (lambda: [charge(amount="10001")], {}, "more than the 0.01 allowed"),
        (lambda: [charge(amount="1e4")], {}, "cannot be read"),
        (lambda: [charge(amount=None)], {}, "cannot be read"),
        (lambda: [charge(recipient=None)], {}, "cannot be read"),
        (lambda: [charge(currency=None)], {}, "cannot be read"),
        (lambda: [charge(methodDetails=None)], {}, "cannot be read"),
        (lambda: [details(feePayer=True)], {}, "somebody else is to pay"),
        (lambda: [details(splits=[{"recipient": "0x" + "44" * 20, "amount": "1"}])], {}, "several recipients"),
        (lambda: [details(supportedModes=["push"])], {}, "pull mode"),
        (lambda: [details(supportedModes=5)], {}, "pull mode"),
        (lambda: [details(chainId="42431")], {}, "cannot be read"),
        (lambda: [mpp_challenge(method="stripe")], {}, "only Tempo charges"),
        (lambda: [mpp_challenge(intent="session")], {}, "only Tempo charges"),
        (
            lambda: [mpp_challenge(opaque={"idempotencyKey": "another_key_0123456789"})],
            {},
            "not tied to this idempotency key",
        ),
        (lambda: [mpp_challenge(opaque=None)], {}, "not tied to this idempotency key"),
        (lambda: [mpp_challenge(expires="2020-01-01T00:00:00Z")], {}, "has expired"),
        (lambda: [mpp_challenge(expires="2999-01-01T00:00:00")], {}, "expiry cannot be read"),
        (lambda: [mpp_challenge(expires="soon")], {}, "expiry cannot be read"),
        (lambda: [mpp_challenge()], {"asset": USDC_ON_BASE}, "another asset than --asset"),
        (
            lambda: [charge(currency=NO_DOLLAR)],
            {},
            "only dollars that the SDK knows",
        ),
        # Closed-loop credit, which the SDK names beside its dollars.
        (lambda: [charge(currency=MACH)], {}, "only dollars that the SDK knows"),
        (lambda: [details(chainId=987654321)], {}, "only dollars that the SDK knows"),
        (lambda: [mpp_challenge()], {"network": "eip155:4217"}, "another network than --network eip155:4217"),
        (lambda: [mpp_challenge()], {"wallet_key": "0x1234"}, "not a private key"),
        (lambda: [mpp_challenge()], {"rpc_url": "http://127.0.0.1:1"}, "--rpc-url"),
        (lambda: ["Bearer", "Payment", "Payment id=x"], {}, "no MPP offer"),
        (list, {}, "no MPP offer"),
    ],
)
def test_an_mpp_offer_that_the_mandate_does_not_cover_is_not_signed(
    node: Node, answer: Callable[[], list[Challenge | str]], limits: dict[str, Any], words: str
) -> None:
    with pytest.raises(PayError, match=words) as caught:
        sign_mpp(payment_required(*answer()), mpp_mandate(**{"rpc_url": node.url, **limits}))
    assert caught.value.exit_code == NOT_CHARGED
    assert "Nothing was paid" in str(caught.value)
    assert node.asked == []


def test_a_payment_for_the_chain_of_another_node_is_not_signed(node: Node) -> None:
    with pytest.raises(PayError, match="eip155:4217"):
        sign_mpp(payment_required(details(chainId=4217)), mpp_mandate(rpc_url=node.url))


def test_the_saved_credential_is_for_its_owner_alone(
    service: Service, buy: Callable[..., Answer], tmp_path: Path
) -> None:
    service.replies = [delivered()]
    buy()
    directory = tmp_path / "state"
    (file,) = directory.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert json.loads(file.read_text())["value"] == service.credentials[0]
    assert WALLET.key[2:] not in file.read_text()


def test_a_damaged_file_stops_everything(service: Service, buy: Callable[..., Answer], tmp_path: Path) -> None:
    service.replies = [delivered()]
    buy()
    (file,) = (tmp_path / "state").glob("*.json")
    file.write_text("{")
    with pytest.raises(PayError, match="cannot be read") as caught:
        buy()
    assert caught.value.exit_code == UNCLEAR
    assert len(service.credentials) == 1


def test_of_two_runs_under_one_key_one_sends(service: Service, buy: Callable[..., Answer]) -> None:
    def other_run_saves_first(request: httpx.Request) -> httpx.Response:
        service.offer = lambda request: challenge(OFFER)
        service.replies = [delivered()]
        buy()
        return challenge(OFFER)

    service.offer = other_run_saves_first
    with pytest.raises(PayError, match="Another run is paying") as caught:
        buy()
    assert caught.value.exit_code == UNCLEAR
    assert len(service.credentials) == 1


@pytest.mark.parametrize("url", ["http://[::1", "https://localhost:x/", "https://a\x1bb/", "https://u:p@a.example/"])
def test_a_url_that_cannot_be_read_or_holds_a_password_is_refused_in_words(url: str) -> None:
    with pytest.raises(PayError, match=r"The URL .* Nothing was paid") as caught:
        http_client(url)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://ranking.example/v1/x402/x", "ftp://127.0.0.1/", "ranking.example"])
def test_a_payment_is_not_sent_in_the_clear(url: str) -> None:
    with pytest.raises(PayError, match="https"):
        http_client(url)


def test_a_receipt_that_cannot_be_read_is_empty() -> None:
    assert read_receipt(RECEIPT)["payer"] == WALLET.address
    assert read_receipt("é") == read_receipt("bm8") == read_receipt("") == {}
