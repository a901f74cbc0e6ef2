"""The MPP protocol at its port: a real Tempo chain, the official clients, and everything that can go wrong between."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mpp import Challenge as IssuedChallenge
from mpp import Receipt
from mpp.client.transport import Mpp as PayingClient
from mpp.client.transport import _payment_challenges as challenges_in
from mpp.errors import (
    CredentialReplayedError,
    InternalPaymentError,
    InvalidChallengeError,
    InvalidPayloadError,
    PaymentExpiredError,
    VerificationError,
)
from mpp.methods.tempo import TempoAccount
from mpp.methods.tempo import client as tempo_client
from mpp.methods.tempo._attribution import encode as memo_of
from pytempo import AccessListItem  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ranking_evaluate.contract.errors import RequestMalformed
from ranking_evaluate.deadline import within
from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.payments.json_rpc import JsonRpc, word
from ranking_evaluate.payments.mpp.evidence import TRANSFER_WITH_MEMO_LOG, evidence_of
from ranking_evaluate.payments.mpp.protocol import MppProtocol
from ranking_evaluate.payments.mpp.rpc import NodeTransport
from ranking_evaluate.payments.mpp.settlement import classify
from ranking_evaluate.payments.protocol import (
    Credential,
    Evidence,
    Landed,
    NeverLanded,
    NotSent,
    Offer,
    PaymentFacts,
    Refused,
    Rejected,
    Settled,
    Settlement,
    Spent,
    Uncertain,
    Unknown,
    Unreachable,
    Unreadable,
    Verified,
)
from ranking_evaluate.payments.provider_client import Answer, Broken, Late, NotConnected, ProviderClient, TooLarge
from ranking_evaluate.release import VERSION
from ranking_evaluate.sandbox.funded import Wallet
from ranking_evaluate.sandbox.processes import Processes, free_port
from ranking_evaluate.sandbox.tempo import CHAIN_ID, PATH_USD, PAYER_TOKENS, mpp_protocol
from ranking_evaluate.sandbox.wallets import new_wallet
from ranking_evaluate.settings import read_settings
from tests.faults.tempo_proxy import RECEIPT_CHANGES, Fault, Tempo
from tests.payments import mpp_buyer as buyer
from tests.payments.malformed_mpp import malformed

pytestmark = pytest.mark.anyio

REALM = "shop.example"
SECRET, OLD_SECRET, STRANGE_SECRET = "s" * 32, "o" * 32, "x" * 32
BODY = b'{"queries":[]}'
PRICE = 10_000
CHECKOUT = Path(__file__).resolve().parents[2]


def config_of(rpc: str, **changes: Any) -> MppConfig:
    given: dict[str, Any] = {
        "recipient": new_wallet().address,
        "chain_id": CHAIN_ID,
        "rpc_url": rpc,
        "currencies": (PATH_USD,),
        "secret_key": SECRET,
        "realm": REALM,
        "settle_timeout": 20.0,
        **changes,
    }
    return MppConfig(**given)


def new_offer(**changes: Any) -> Offer:
    given: dict[str, Any] = {
        "operation": "ranking-evaluate",
        "description": "One paid evaluation",
        "release": "0.29.0",
        "url": f"https://{REALM}/v1/mpp/ranking-evaluate",
        "key": f"key_{random.randbytes(12).hex()}",
        "amount": PRICE,
        "body": BODY,
        **changes,
    }
    return Offer(**given)


@asynccontextmanager
async def protocol_of(config: MppConfig) -> AsyncIterator[MppProtocol]:
    protocol = MppProtocol(config)
    await protocol.start()
    try:
        yield protocol
    finally:
        await protocol.close()


async def challenge_of(protocol: MppProtocol, offer: Offer) -> str:
    return (await protocol.challenge(offer)).headers["www-authenticate"]


def credential_of(protocol: MppProtocol, header: str, offer: Offer) -> Credential:
    credential = protocol.read_credential({"authorization": header}, offer)
    assert isinstance(credential, Credential)
    return credential


async def bought(protocol: MppProtocol, tempo: Tempo, offer: Offer, wallet: Wallet | None = None) -> Credential:
    """Return a good credential of pympp's own client."""
    header = await buyer.sign(await challenge_of(protocol, offer), wallet or tempo.payer, tempo.proxy.url)
    credential = credential_of(protocol, header, offer)
    assert protocol.check_terms(credential, offer, time.time()) is None
    return credential


# The challenge


async def test_the_challenge_binds_body_key_operation_and_release(tempo: Tempo) -> None:
    config, offer = config_of(tempo.proxy.url), new_offer()
    async with protocol_of(config) as protocol:
        assert protocol.ready().ready
        assert protocol.terms() == ((f"eip155:{CHAIN_ID}", PATH_USD, config.recipient, True),)
        made = await protocol.challenge(offer)
    issued = IssuedChallenge.from_www_authenticate(made.headers["www-authenticate"])
    scope = issued.request.pop("_mppx_scope")
    assert scope == {"http_method": "POST", "resource": "/v1/mpp/ranking-evaluate"}
    assert issued.request == {
        "amount": "10000",
        "currency": PATH_USD,
        "recipient": config.recipient,
        "externalId": offer.key,
        "methodDetails": {"chainId": CHAIN_ID, "supportedModes": ["pull"]},
    }
    opaque = dict(issued.opaque or {})
    assert opaque.pop("_mpp_nonce")
    assert opaque == {"idempotencyKey": offer.key, "operation": offer.operation, "release": offer.release}
    assert (issued.realm, issued.method, issued.intent) == (REALM, "tempo", "charge")
    assert issued.digest is not None
    assert issued.description == offer.description
    assert issued.expires is not None
    assert time.time() + 290 < buyer.moment(issued.expires) <= time.time() + 300
    assert made.members == {
        "type": "https://paymentauth.org/problems/payment-required",
        "title": "Payment Required",
        "challengeId": issued.id,
    }


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        ("malformed-credential: it is not base64url", "malformed-credential"),
        ("invalid-challenge: it was issued for another body", "invalid-challenge"),
        ("payment-expired: the challenge has expired", "payment-expired"),
        ("payment-insufficient: the wallet is poor", "payment-insufficient"),
        ("verification-failed: no", "verification-failed"),
        ("a reason of somebody else's", "verification-failed"),
    ],
)
async def test_a_refused_credential_names_its_problem_type_and_gets_a_fresh_challenge(
    tempo: Tempo, reason: str, problem: str
) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        first, second = await protocol.challenge(offer), await protocol.challenge(offer, reason)
    assert second.members["type"] == f"https://paymentauth.org/problems/{problem}"
    assert second.members["challengeId"] != first.members["challengeId"]


# Two currencies

SECOND = "0x20c0000000000000000000000000000000000001"


async def test_each_currency_has_a_challenge_in_the_configured_order_and_each_can_be_paid(tempo: Tempo) -> None:
    config, offer = config_of(tempo.proxy.url, currencies=(SECOND, PATH_USD)), new_offer()
    async with protocol_of(config) as protocol:
        made = await protocol.challenge(offer)
        issued = [
            IssuedChallenge.from_www_authenticate(each) for each in challenges_in(made.headers["www-authenticate"])
        ]
        assert [each.request["currency"] for each in issued] == [SECOND, PATH_USD]
        assert made.members["challengeId"] == issued[0].id
        for each in issued:
            token = str(each.request["currency"])
            payload = {"type": "transaction", "signature": buyer.craft_transaction(each, tempo.payer, token=token)}
            credential = credential_of(protocol, buyer.present(each, payload), offer)
            assert credential.facts.asset == token
            assert protocol.check_terms(credential, offer, time.time()) is None
            # The wallet has money of one of them alone.
            verified = await protocol.verify(credential, offer)
            assert isinstance(verified, Verified if token == PATH_USD else Rejected), verified
        assert isinstance(await protocol.settle(credential, offer), Settled)
        assert tempo.chain.balance(config.recipient) == PRICE
        # The transfer of one token does not answer the challenge for the other.
        crossed = buyer.craft_transaction(issued[0], tempo.payer, token=PATH_USD)
        credential = credential_of(
            protocol, buyer.present(issued[0], {"type": "transaction", "signature": crossed}), offer
        )
        assert "does not make the payment" in (protocol.check_terms(credential, offer, time.time()) or "")


async def test_the_sdk_clients_find_the_currency_that_they_hold(tempo: Tempo) -> None:
    config = config_of(tempo.proxy.url, currencies=(SECOND, PATH_USD), challenge_seconds=25)
    async with protocol_of(config) as protocol, shop_of(protocol) as url:
        python_client = tempo_client.charge(
            account=TempoAccount.from_key(tempo.payer.key),
            chain_id=CHAIN_ID,
            rpc_url=tempo.proxy.url,
            currencies=[PATH_USD],
        )
        async with PayingClient(methods=[python_client]) as client:
            paid = await client.fetch(url, method="POST", content=BODY, headers={"Idempotency-Key": "k" * 20})
    assert paid.status_code == 200, paid.text
    assert tempo.chain.balance(config.recipient) == PRICE


# Paying


async def test_pympp_pays_and_the_hash_was_known_before(tempo: Tempo) -> None:
    config, offer = config_of(tempo.proxy.url), new_offer()
    async with protocol_of(config) as protocol:
        credential = await bought(protocol, tempo, offer)
        assert await protocol.verify(credential, offer) == Verified()
        assert tempo.proxy.sends == 0
        assert await protocol.inspect(credential.facts) == Unknown(
            "there is no receipt so far, and no final block yet past the transaction's last second"
        )
        settled = await protocol.settle(credential, offer)
        assert isinstance(settled, Settled)
        assert settled.transaction == credential.facts.transaction
        assert settled.payer == credential.facts.payer == tempo.payer.address.lower()
        receipt = Receipt.from_payment_receipt(settled.receipt)
        assert (receipt.reference, receipt.external_id) == (settled.transaction, offer.key)
        assert tempo.chain.balance(config.recipient) == PRICE
        assert tempo.proxy.sends == 1
        assert await finally_said(protocol, credential.facts) == Landed(settled.transaction)
        # The chain has it now: whoever asks again is told that the money may have moved.
        assert isinstance(await protocol.verify(credential, offer), Spent)


async def test_the_sdk_clients_pay_a_shop_on_this_port(tempo: Tempo) -> None:
    config = config_of(tempo.proxy.url, challenge_seconds=25)
    async with protocol_of(config) as protocol, shop_of(protocol) as url:
        environment = {
            "PATH": os.environ["PATH"],
            "RPC": tempo.proxy.url,
            "KEY": tempo.payer.key,
            "URL": url,
            "BODY": BODY.decode(),
            "IDEMPOTENCY_KEY": "typescript_key_0001",
        }
        script = CHECKOUT / "tests" / "judges" / "pay_mpp.mjs"
        node = shutil.which("node") or shutil.which("node", path=str(CHECKOUT / ".venv" / "bin"))
        assert node, "the TypeScript client needs node"
        process = await asyncio.create_subprocess_exec(
            node, script, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, error = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, error.decode()
        answer = json.loads(out)
        assert answer["status"] == 200, answer
        assert answer["receipt"]["externalId"] == "typescript_key_0001"
        assert tempo.chain.balance(config.recipient) == PRICE

        python_client = tempo_client.charge(
            account=TempoAccount.from_key(tempo.payer.key), chain_id=CHAIN_ID, rpc_url=tempo.proxy.url
        )
        async with PayingClient(methods=[python_client]) as client:
            paid = await client.fetch(
                url, method="POST", content=BODY, headers={"Idempotency-Key": "python_key_00000001"}
            )
        assert paid.status_code == 200, paid.text
        receipt = Receipt.from_payment_receipt(paid.headers["payment-receipt"])
        assert receipt.external_id == "python_key_00000001"
        assert tempo.chain.balance(config.recipient) == 2 * PRICE


@asynccontextmanager
async def shop_of(protocol: MppProtocol) -> AsyncIterator[str]:
    """Serve the smallest shop on the port: no store, so for clients that behave."""

    async def sell(request: Request) -> Response:
        offer = new_offer(key=request.headers["idempotency-key"], body=await request.body())
        credential = protocol.read_credential(dict(request.headers), offer)
        if not isinstance(credential, Credential):
            made = await protocol.challenge(offer)
            return JSONResponse(dict(made.members), 402, dict(made.headers))
        reason = protocol.check_terms(credential, offer, time.time())
        verified = await protocol.verify(credential, offer)
        if reason is not None or verified != Verified():
            return JSONResponse({"reason": reason, "verified": str(verified)}, 409)
        settled = await protocol.settle(credential, offer)
        if not isinstance(settled, Settled):
            return JSONResponse({"settled": str(settled)}, 409)
        return JSONResponse({"paid": True}, headers={"Payment-Receipt": settled.receipt})

    port = free_port()
    app = Starlette(routes=[Route("/buy", sell, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=port, lifespan="off", log_level="error", ws="none"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}/buy"
    finally:
        server.should_exit = True
        await serving


# A loop that comes late


def hold_up(tempo: Tempo, seconds: float) -> None:
    """Let the node answer the call that it holds, and block the loop meanwhile."""
    threading.Timer(0.2, tempo.proxy.release).start()
    time.sleep(seconds)


both_loops = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"use_uvloop": use}) for use in (False, True)], ids=["asyncio", "uvloop"]
)


@both_loops
async def test_a_receipt_that_arrived_in_time_counts_though_the_loop_comes_late(tempo: Tempo) -> None:
    """The deadline of the settlement passes, and before it the SDK's own for the send, while the receipt lies there."""
    config, offer = config_of(tempo.proxy.url, settle_timeout=3.0), new_offer()
    async with protocol_of(config) as protocol:
        credential = await bought(protocol, tempo, offer)
        tempo.proxy.fault = Fault.SEND_HELD

        async def settle() -> Settlement:
            async with within(config.settle_timeout):
                return await protocol.settle(credential, offer)

        settling = asyncio.create_task(settle())
        await until(tempo.proxy.held.is_set)
        hold_up(tempo, 4.0)
        assert isinstance(await settling, Settled)
    assert tempo.proxy.sends == 1
    assert tempo.chain.balance(config.recipient) == PRICE


@both_loops
@pytest.mark.parametrize("was_sent", [False, True])
async def test_a_verification_that_was_answered_in_time_counts_though_the_loop_comes_late(
    tempo: Tempo, was_sent: bool
) -> None:
    config, offer = config_of(tempo.proxy.url, verify_timeout=1.0), new_offer()
    async with protocol_of(config) as protocol:
        credential = await bought(protocol, tempo, offer)
        if was_sent:
            assert isinstance(await protocol.settle(credential, offer), Settled)
        tempo.proxy.fault = Fault.VERIFY_HELD
        verifying = asyncio.create_task(protocol.verify(credential, offer))
        await until(tempo.proxy.held.is_set)
        hold_up(tempo, 2.5)
        assert isinstance(await verifying, Spent if was_sent else Verified)


# Terms


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"body": b'{"queries":[ ]}'}, "invalid-challenge: it was issued for another body"),
        ({"operation": "ranking-compare"}, "invalid-challenge: it was issued for another operation"),
        ({"release": "0.28.0"}, f"invalid-challenge: it was issued for another release: 0.28.0, and this is {VERSION}"),
        ({"amount": PRICE + 1}, "invalid-challenge: it was issued for another amount"),
    ],
)
async def test_a_challenge_of_another_offer_is_refused(tempo: Tempo, changes: dict[str, Any], reason: str) -> None:
    offer = new_offer()
    other = replace(offer, **changes)
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        header = await buyer.sign(await challenge_of(protocol, other), tempo.payer, tempo.proxy.url)
        assert protocol.check_terms(credential_of(protocol, header, offer), offer, time.time()) == reason


async def test_a_challenge_of_another_key_is_a_mismatch(tempo: Tempo) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        header = await buyer.sign(await challenge_of(protocol, new_offer()), tempo.payer, tempo.proxy.url)
        with pytest.raises(RequestMalformed) as caught:
            protocol.read_credential({"authorization": header}, offer)
    assert caught.value.code == "PAYMENT_IDENTIFIER_MISMATCH"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"recipient": "0x" + "22" * 20}, "invalid-challenge: it was issued for another recipient"),
        ({"currencies": ("0x20c0000000000000000000000000000000000001",)}, "another currency"),
        ({"chain_id": CHAIN_ID + 1}, "another chain"),
        ({"realm": "other.example"}, "not issued by this service"),
        ({"secret_key": STRANGE_SECRET}, "not issued by this service"),
    ],
)
async def test_a_challenge_of_another_shop_is_refused(tempo: Tempo, changes: dict[str, Any], reason: str) -> None:
    offer, ours = new_offer(), config_of(tempo.proxy.url)
    async with protocol_of(ours) as protocol, protocol_of(replace(ours, **changes)) as other:
        header = buyer.craft(await challenge_of(other, offer), tempo.payer)
        refused = protocol.check_terms(credential_of(protocol, header, offer), offer, time.time())
    assert refused is not None
    assert reason in refused


@pytest.mark.parametrize(
    ("seconds", "fields", "reason"),
    [
        (0, {"valid_before": None}, "no valid_before"),
        (0, {"valid_before_in": 400}, "valid for longer than its challenge"),
        (0, {"valid_before_in": 3}, "payment-expired: the transaction has expired or is about to"),
        (301, {"valid_before_in": 300}, "payment-expired: the challenge has expired"),
        (0, {"valid_after_in": 20}, "not valid yet"),
        (0, {"memo": memo_of("another-challenge", REALM)}, "memo of this challenge"),
        (0, {"chain_id": 4217}, "another chain"),
        (0, {"nonce_key": 0}, "expiring nonce"),
        (0, {"access_list": (AccessListItem.create(address=PATH_USD),)}, "an access list"),
        (0, {"recipient": "0x" + "22" * 20}, "does not make the payment that is asked"),
        (0, {"amount": PRICE - 1}, "does not make the payment that is asked"),
        (0, {"amount": PRICE + 1}, "does not make the payment that is asked"),
        (0, {"token": "0x20c0000000000000000000000000000000000001"}, "does not make the payment that is asked"),
    ],
)
async def test_a_transaction_outside_our_terms_is_refused(
    tempo: Tempo, seconds: int, fields: dict[str, Any], reason: str
) -> None:
    now, offer = time.time(), new_offer()
    given = {
        name.removesuffix("_in"): int(now) + value if name.endswith("_in") else value for name, value in fields.items()
    }
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        header = buyer.craft(await challenge_of(protocol, offer), tempo.payer, **given)
        refused = protocol.check_terms(credential_of(protocol, header, offer), offer, now + seconds)
    assert refused is not None
    assert reason in refused


@pytest.mark.parametrize(
    "fields",
    [{"recipient": "0x" + "22" * 20}, {"amount": PRICE - 1}, {"token": "0x20c0000000000000000000000000000000000001"}],
)
async def test_a_transaction_that_pays_something_else_is_rejected(tempo: Tempo, fields: dict[str, Any]) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        credential = credential_of(
            protocol, buyer.craft(await challenge_of(protocol, offer), tempo.payer, **fields), offer
        )
        assert isinstance(await protocol.verify(credential, offer), Rejected)
        # And should it be settled all the same, it is not sent.
        assert isinstance(await protocol.settle(credential, offer), Refused)
    assert tempo.proxy.sends == 0


async def test_hash_mode_is_read_and_refused(tempo: Tempo) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        issued = IssuedChallenge.from_www_authenticate(await challenge_of(protocol, offer))
        header = buyer.present(issued, {"type": "hash", "hash": "0x" + "aB" * 32})
        credential = credential_of(protocol, header, offer)
        assert credential.facts.transaction == "0x" + "ab" * 32
        refused = protocol.check_terms(credential, offer, time.time())
        assert refused is not None
        assert refused.startswith("invalid-payload")
        assert isinstance(await protocol.verify(credential, offer), Rejected)
        assert isinstance(await protocol.settle(credential, offer), Refused)
    assert tempo.proxy.sends == 0


# Proofs


async def test_one_signed_transaction_has_one_proof_however_it_is_written(tempo: Tempo) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        first = IssuedChallenge.from_www_authenticate(await challenge_of(protocol, offer))
        second = IssuedChallenge.from_www_authenticate(await challenge_of(protocol, offer))
        raw = buyer.craft_transaction(first, tempo.payer)
        recovery = {27: 0, 28: 1}[int(raw[-2:], 16)]
        spellings = {raw, "0x" + raw[2:].upper(), f"{raw[:-2]}{recovery:02x}"}
        read = [
            credential_of(protocol, buyer.present(challenge, {"type": "transaction", "signature": spelling}), offer)
            for challenge in (first, second)
            for spelling in sorted(spellings)
        ]
        assert len({credential.proofs[1] for credential in read}) == 1
        assert len({credential.proofs[0] for credential in read}) == 2
        assert len({credential.digest for credential in read}) == 6
        assert all(len(proof) == 32 for credential in read for proof in credential.proofs)
        mirrored = buyer.mirror_signature(raw)
        unread = protocol.read_credential(
            {"authorization": buyer.present(first, {"type": "transaction", "signature": mirrored})}, offer
        )
        assert isinstance(unread, Unreadable)
        # The odd spelling is the same payment on the chain too, and the receipt bears the hash of the proof.
        odd = buyer.present(first, {"type": "transaction", "signature": f"0x{raw[2:-2].upper()}{recovery:02x}"})
        settled = await protocol.settle(credential_of(protocol, odd, offer), offer)
        assert isinstance(settled, Settled)
        assert settled.transaction == read[0].facts.transaction


async def test_base64_and_member_order_do_not_change_the_digest(tempo: Tempo) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        header = buyer.craft(await challenge_of(protocol, offer), tempo.payer)
        document = json.loads(base64.urlsafe_b64decode(header.split()[1] + "=="))
        turned = json.dumps(dict(reversed(document.items())), indent=1).encode()
        other = "pAYMENT   " + base64.urlsafe_b64encode(turned).decode()
        assert credential_of(protocol, header, offer).digest == credential_of(protocol, other, offer).digest


# Faults


@pytest.mark.parametrize(
    ("fault", "outcome", "moved"),
    [
        (Fault.REPLY_LOST, Settled, True),
        (Fault.REPLY_LATE, Settled, True),
        (Fault.ERROR_AFTER, Settled, True),
        (Fault.ALREADY_KNOWN, Settled, True),
        (Fault.REPLY_LOST_RECEIPT_HIDDEN, Uncertain, True),
        (Fault.ERROR_AFTER_RECEIPT_HIDDEN, Uncertain, True),
        (Fault.NOT_JSON, Uncertain, True),
        (Fault.OTHER_RECEIPT, Uncertain, True),
        (Fault.REFUSED_BY_NODE, Uncertain, False),
        (Fault.DROPPED, Uncertain, False),
        (Fault.DOWN, Uncertain, False),
    ],
)
async def test_a_fault_while_settling_moves_money_at_most_once_and_is_never_called_unpaid(
    tempo: Tempo, fault: Fault, outcome: type, moved: bool
) -> None:
    config = config_of(tempo.proxy.url, settle_timeout=6.0)
    offer = new_offer()
    async with protocol_of(config) as protocol:
        credential = await bought(protocol, tempo, offer)
        tempo.proxy.reset()
        tempo.proxy.fault = fault
        settled = await protocol.settle(credential, offer)
        tempo.proxy.fault = Fault.NONE
        assert isinstance(settled, outcome), settled
        assert tempo.proxy.sends == 1
        assert tempo.chain.balance(config.recipient) == (PRICE if moved else 0)
        evidence = await (finally_said if moved else MppProtocol.inspect)(protocol, credential.facts)
        assert isinstance(evidence, Landed if moved else Unknown)


async def test_nothing_is_sent_where_nobody_listens(tempo: Tempo) -> None:
    config, offer = config_of(tempo.proxy.url), new_offer()
    async with (
        protocol_of(config) as protocol,
        protocol_of(replace(config, rpc_url=f"http://127.0.0.1:{free_port()}")) as deaf,
    ):
        credential = await bought(protocol, tempo, offer)
        assert not deaf.ready().ready
        assert isinstance(await deaf.verify(credential, offer), Unreachable)
        settled = await deaf.settle(credential, offer)
        assert isinstance(settled, NotSent)
        assert "ConnectError" in settled.reason
        assert isinstance(await deaf.inspect(credential.facts), Unknown)


async def test_what_expires_before_it_is_sent_is_refused_unsent(tempo: Tempo) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        header = buyer.craft(await challenge_of(protocol, offer), tempo.payer, valid_before=int(time.time()) + 1)
        settled = await protocol.settle(credential_of(protocol, header, offer), offer)
    assert settled == Refused("payment-expired: the transaction has expired or is about to")
    assert tempo.proxy.sends == 0


async def test_a_cancelled_settlement_is_not_sent_again(tempo: Tempo) -> None:
    config, offer = config_of(tempo.proxy.url), new_offer()
    async with protocol_of(config) as protocol:
        credential = await bought(protocol, tempo, offer)
        tempo.proxy.reset()
        tempo.proxy.fault = Fault.REPLY_LATE
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await protocol.settle(credential, offer)
        assert tempo.proxy.sends == 1
        assert await finally_said(protocol, credential.facts) == Landed(credential.facts.transaction or "")


@pytest.mark.parametrize("held", [0, PRICE - 1, PRICE])
async def test_a_poor_wallet_is_rejected_before_anything_is_sent(tempo: Tempo, held: int) -> None:
    offer = new_offer()
    wallet = tempo.chain.new_payer(held) if held else new_wallet()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        credential = await bought(protocol, tempo, offer, wallet)
        assert isinstance(await protocol.verify(credential, offer), Rejected)
    assert tempo.proxy.sends == 0


@pytest.mark.parametrize(
    "fields",
    [{"valid_before_in": 200}, {"nonce": 7}, {"gas_limit": 22_000}, {"gas_limit": 10**9}, {"gas_price": 10**3}],
)
async def test_what_the_node_would_not_take_is_rejected_before_anything_is_sent(
    tempo: Tempo, fields: dict[str, Any]
) -> None:
    offer = new_offer()
    given = {
        name.removesuffix("_in"): int(time.time()) + value if name.endswith("_in") else value
        for name, value in fields.items()
    }
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        credential = credential_of(
            protocol, buyer.craft(await challenge_of(protocol, offer), tempo.payer, **given), offer
        )
        assert isinstance(await protocol.verify(credential, offer), Rejected)


async def test_a_provider_that_is_down_is_asked_again_until_it_answers(
    tempo: Tempo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ranking_evaluate.payments.connecting.RETRY_SECONDS", 0.05)
    tempo.proxy.fault = Fault.DOWN
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        assert protocol.ready() == (False, "the node gives no usable answer")
        tempo.proxy.fault = Fault.OTHER_CHAIN
        await until(lambda: "chain 1," in (protocol.ready().reason or ""))
        tempo.proxy.fault = Fault.NONE
        await until(lambda: protocol.ready().ready)
        credential = await bought(protocol, tempo, offer)
        for fault in (Fault.DOWN, Fault.BUSY, Fault.STRANGE):
            tempo.proxy.fault = fault
            assert isinstance(await protocol.verify(credential, offer), Unreachable)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event.
            await asyncio.sleep(0.02)


# The outcome table

SENT = f"0x{'ab' * 32}"
RECEIPT = Receipt.success(SENT, method="tempo")


@pytest.mark.parametrize(
    ("outcome", "send_made", "expected"),
    [
        (RECEIPT, True, Settled),
        (replace(RECEIPT, reference=SENT.upper().replace("0X", "0x")), True, Settled),
        (replace(RECEIPT, reference=f"0x{'cd' * 32}"), True, Uncertain),
        (replace(RECEIPT, status="failed"), True, Uncertain),  # type: ignore[arg-type]
        (VerificationError("Transaction contains no calls"), False, Refused),
        (CredentialReplayedError(), False, Refused),
        (PaymentExpiredError("2026-11-30T00:00:00Z"), False, Refused),
        (InternalPaymentError(), False, NotSent),
        (InvalidChallengeError("id"), False, NotSent),
        (InvalidPayloadError("signature 0x76"), False, NotSent),
        (httpx.ConnectError("refused"), False, NotSent),
        (TimeoutError(), False, NotSent),
        (RuntimeError("a bug"), False, NotSent),
        (VerificationError("Transaction reverted"), True, Uncertain),
        (CredentialReplayedError(), True, Uncertain),
        (PaymentExpiredError(), True, Uncertain),
        (InternalPaymentError(), True, Uncertain),
        (httpx.ReadError("lost"), True, Uncertain),
        (httpx.ReadTimeout("late"), True, Uncertain),
        (TimeoutError(), True, Uncertain),
        (RuntimeError("a bug"), True, Uncertain),
    ],
)
async def test_each_row_of_the_outcome_table(outcome: Receipt | Exception, send_made: bool, expected: type) -> None:
    found = classify(outcome, send_made=send_made, transaction=SENT, key="key_0123456789abcdef")
    assert isinstance(found, expected)
    if isinstance(found, Settled):
        assert found.transaction == SENT
        assert Receipt.from_payment_receipt(found.receipt).external_id == "key_0123456789abcdef"
    else:
        assert "0x" not in found.reason


class StandIn(ProviderClient):
    """A client whose calls end as the test says."""

    def __init__(self, *ends: BaseException | None) -> None:
        super().__init__("the node", max_bytes=1, seconds=1)
        self._ends = iter(ends)

    async def call(self, *given: Any) -> Answer:
        end = next(self._ends)
        if end is not None:
            raise end
        return Answer(200, b"{}")


async def send_through(transport: NodeTransport, method: str) -> None:
    async with httpx.AsyncClient(transport=transport) as client:
        with suppress(httpx.HTTPError, asyncio.CancelledError):
            await client.post("http://node.example", json={"method": method})


@pytest.mark.parametrize(
    ("error", "made"),
    [
        (None, True),
        (NotConnected("refused"), False),
        (Late("slow"), True),
        (Broken("lost"), True),
        (TooLarge("huge"), True),
        (asyncio.CancelledError(), True),
    ],
)
@pytest.mark.parametrize(
    "method", ["eth_sendRawTransaction", "eth_sendRawTransactionSync", "eth_getTransactionReceipt"]
)
async def test_a_send_counts_as_made_unless_no_connection_came_about(
    error: BaseException | None, made: bool, method: str
) -> None:
    transport = NodeTransport(StandIn(error), "http://node.example", 60)
    await send_through(transport, method)
    assert transport.send_made is (made and "send" in method)


async def test_a_send_that_was_made_stays_made() -> None:
    transport = NodeTransport(StandIn(Broken("lost"), NotConnected("refused")), "http://node.example", 60)
    for _ in range(2):
        await send_through(transport, "eth_sendRawTransactionSync")
    assert transport.send_made


async def test_no_transaction_is_sent_once_the_time_to_settle_is_over() -> None:
    """By then the lease of the attempt may be over too, and an operator may be deciding about it."""
    called: list[bytes | None] = []

    class Node(StandIn):
        async def call(self, method: str, url: str, body: bytes | None = None, *_: Any) -> Answer:
            called.append(body)
            return Answer(200, b'{"jsonrpc":"2.0","id":1,"result":null}')

    transport = NodeTransport(Node(), "http://node.example", 0)
    await asyncio.sleep(0.01)
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient(transport=transport) as client:
            await client.post("http://node.example", json={"method": "eth_sendRawTransactionSync"})
    assert not transport.send_made
    assert not called


async def test_a_question_that_found_no_connection_leaves_a_send_made() -> None:
    asked, sent = asyncio.Event(), asyncio.Event()

    class Node(StandIn):
        async def call(self, method: str, url: str, body: bytes | None = None, *_: Any) -> Answer:
            if b"send" in (body or b""):
                sent.set()
                raise Late("slow")
            asked.set()
            await sent.wait()
            raise NotConnected("refused")

    transport = NodeTransport(Node(), "http://node.example", 60)
    question = asyncio.create_task(send_through(transport, "eth_getTransactionReceipt"))
    await asked.wait()
    await send_through(transport, "eth_sendRawTransactionSync")
    await question
    assert transport.send_made


# Rotation


async def test_credentials_of_the_previous_secret_are_taken_and_new_challenges_use_the_current_one(
    tempo: Tempo,
) -> None:
    offer, before = new_offer(), config_of(tempo.proxy.url, secret_key=OLD_SECRET)
    after = replace(before, secret_key=SECRET, previous_secret_key=OLD_SECRET)
    async with (
        protocol_of(before) as old,
        protocol_of(after) as protocol,
        protocol_of(replace(after, previous_secret_key=None)) as late,
    ):
        credential = await bought(old, tempo, offer)
        assert late.check_terms(credential, offer, time.time()) == (
            "invalid-challenge: it was not issued by this service"
        )
        assert isinstance(await late.verify(credential, offer), Rejected)
        assert protocol.check_terms(credential, offer, time.time()) is None
        assert await protocol.verify(credential, offer) == Verified()
        assert isinstance(await protocol.settle(credential, offer), Settled)
        fresh = IssuedChallenge.from_www_authenticate(await challenge_of(protocol, offer))
        assert fresh.verify(SECRET, REALM)


@pytest.mark.parametrize("name", ["secret_key", "previous_secret_key"])
async def test_a_short_secret_stops_the_start(name: str) -> None:
    with pytest.raises(ValueError, match="fewer than 32 bytes"):
        MppProtocol(config_of("http://127.0.0.1:1", **{name: "s" * 31}))


# Malformed credentials


def test_another_scheme_is_no_credential_and_several_are_not_chosen_from() -> None:
    protocol, offer = MppProtocol(config_of("http://127.0.0.1:1")), new_offer()
    for header in ["", "Bearer abc", "Basic Payment", 'Digest a="b, Payment e30", c=d', "Payments e30", "Bearer x, y"]:
        assert protocol.read_credential({"authorization": header}, offer) is None, header
    assert protocol.read_credential({}, offer) is None
    for header in ["Payment", "payment ", "Payment e30", "Payment e30, Payment e30", "Basic a, Payment e30, PAYMENT x"]:
        assert isinstance(protocol.read_credential({"authorization": header}, offer), Unreadable), header


async def test_500_malformed_credentials_raise_nothing_but_a_mismatch(tempo: Tempo) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        good = buyer.craft(await challenge_of(protocol, offer), tempo.payer)
        assert isinstance(protocol.read_credential({"authorization": good}, offer), Credential)
        for header in (
            f"Bearer abc, {good}",
            f'Digest a="b, c", {good}',
            f"{good}, Basic abc",
            good.upper()[:7] + good[7:],
        ):
            assert isinstance(protocol.read_credential({"authorization": header}, offer), Credential), header
        assert protocol.read_credential({"authorization": f"{good}, {good}"}, offer) == Unreadable(
            "malformed-credential: the header holds several Payment credentials"
        )
        tally: Counter[str] = Counter()
        for header in malformed(good):
            began = time.perf_counter()
            kind, found = read_or_refuse(protocol, header, offer)
            tally[kind] += 1
            if isinstance(found, Credential):
                # What can be read after the damage is judged by the terms, which raise nothing either.
                protocol.check_terms(found, offer, time.time())
            assert time.perf_counter() - began < 0.5
            if isinstance(found, Unreadable):
                made = await protocol.challenge(offer, found.reason)
                assert str(made.members["type"]).endswith("/malformed-credential")
        assert tally.total() >= 500
        assert tally["Unreadable"] > 300
        assert {"NoneType", "PAYMENT_IDENTIFIER_MISMATCH", "Credential"} <= set(tally)


def read_or_refuse(protocol: MppProtocol, header: str, offer: Offer) -> tuple[str, Credential | Unreadable | None]:
    try:
        found = protocol.read_credential({"authorization": header}, offer)
    except RequestMalformed as error:
        return error.code, None
    return type(found).__name__, found


# What the chain says


async def finally_said(protocol: MppProtocol, facts: PaymentFacts) -> Evidence:
    """Return what the chain says once the block that it speaks of is final."""
    async with asyncio.timeout(15):
        said = await protocol.inspect(facts)
        while isinstance(said, Unknown) and "not final yet" in said.reason:
            await asyncio.sleep(0.2)
            said = await protocol.inspect(facts)
    return said


async def test_the_chain_tells_each_fate_of_a_payment(tempo: Tempo) -> None:
    config, offer = config_of(tempo.proxy.url), new_offer()
    async with protocol_of(config) as protocol:
        credential = await bought(protocol, tempo, offer)
        facts = credential.facts
        assert isinstance(
            await protocol.inspect(replace(facts, valid_before=int(time.time()) - 60)), NeverLanded | Unknown
        )
        settled = await protocol.settle(credential, offer)
        assert isinstance(settled, Settled)
        assert await finally_said(protocol, facts) == Landed(settled.transaction)
        assert await protocol.inspect(
            replace(facts, transaction=(facts.transaction or "").upper().replace("0X", "0x"))
        ) == (Landed(settled.transaction))
        # The receipt must be one of this very payment; a final one of another is the end of this.
        for other in (
            replace(facts, payment_id="another-challenge"),
            replace(facts, pay_to="0x" + "22" * 20),
            replace(facts, amount=PRICE + 1),
            replace(facts, asset="0x20c0000000000000000000000000000000000001"),
        ):
            assert isinstance(await protocol.inspect(other), NeverLanded), other
        # Where the receipt is not found, or is one of a transaction that was reverted, the transfer's topics tell.
        for fault in (Fault.RECEIPT_HIDDEN, Fault.REVERTED):
            tempo.proxy.fault = fault
            assert await protocol.inspect(facts) == Landed(settled.transaction), fault
            assert isinstance(
                await protocol.inspect(replace(facts, payment_id="another-challenge")), Unknown | NeverLanded
            )
        tempo.proxy.fault = Fault.REVERTED
        assert isinstance(await protocol.inspect(replace(facts, payer=new_wallet().address)), NeverLanded)
        # Another chain knows no receipt, which is no sign that the payment did not land.
        tempo.proxy.fault = Fault.OTHER_CHAIN
        assert isinstance(await protocol.inspect(replace(facts, valid_before=1)), Unknown)
        for fault in (Fault.DOWN, Fault.BUSY, Fault.STRANGE, Fault.OTHER_RECEIPT):
            tempo.proxy.fault = fault
            assert isinstance(await protocol.inspect(replace(facts, valid_before=1)), Unknown), fault
        tempo.proxy.fault = Fault.NONE
        for other in (
            replace(facts, transaction=None),
            replace(facts, transaction="0x12"),
            replace(facts, network="eip155:4217"),
        ):
            assert isinstance(await protocol.inspect(other), Unknown), other


@pytest.mark.parametrize("said", [{"logs": None}, {"logs": 7}, {"status": []}])
async def test_a_receipt_of_another_form_does_not_say_that_nothing_was_paid(
    tempo: Tempo, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    monkeypatch.setitem(RECEIPT_CHANGES, Fault.REVERTED, said)
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        credential = await bought(protocol, tempo, offer)
        assert isinstance(await protocol.settle(credential, offer), Settled)
        # By its own topics the transfer would be found.
        facts = replace(credential.facts, payment_id="another-challenge")
        assert isinstance(await finally_said(protocol, facts), NeverLanded)
        tempo.proxy.fault = Fault.REVERTED
        assert isinstance(await protocol.inspect(facts), Unknown)


class Told(JsonRpc):
    """A node that answers each method as the test says."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__("http://node.example", 1)
        self._answers = answers

    async def ask(self, method: str, *params: object) -> Any:
        return self._answers[method]


async def test_what_a_log_holds_is_the_same_in_capital_letters() -> None:
    """Of ten cents the amount has letters in it."""
    facts = PaymentFacts(
        network=f"eip155:{CHAIN_ID}",
        asset=PATH_USD,
        amount=100_000,
        pay_to="0x" + "ab" * 20,
        payer="0x" + "cd" * 20,
        payment_id="a-challenge",
        valid_before=int(time.time()),
        transaction="0x" + "33" * 32,
    )
    topics = [TRANSFER_WITH_MEMO_LOG, "0x" + word(facts.payer or ""), "0x" + word(facts.pay_to)]
    log = {
        "address": PATH_USD,
        "topics": [*topics, memo_of(facts.payment_id, REALM)],
        "data": f"0x{facts.amount:064x}",
    }
    receipt = {"transactionHash": facts.transaction, "status": "0x1", "blockNumber": "0x1"}
    for data in (log["data"], f"0x{facts.amount:064X}"):
        answers = {
            "eth_chainId": hex(CHAIN_ID),
            "eth_getBlockByNumber": {"number": "0x2", "timestamp": hex(facts.valid_before or 0)},
            "eth_getTransactionReceipt": {**receipt, "logs": [{**log, "data": data}]},
            "eth_getLogs": [],
        }
        assert await evidence_of(Told(answers), facts, REALM) == Landed(facts.transaction or "")


async def test_never_landed_needs_a_final_block_past_the_last_second(tempo: Tempo) -> None:
    facts = PaymentFacts(
        network=f"eip155:{CHAIN_ID}",
        asset=PATH_USD,
        amount=PRICE,
        pay_to="0x" + "22" * 20,
        payer=None,
        payment_id="a-challenge",
        valid_before=int(time.time()) + 1,
        transaction="0x" + "33" * 32,
    )
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        assert isinstance(await protocol.inspect(facts), Unknown)
        assert isinstance(await protocol.inspect(replace(facts, valid_before=None)), Unknown)
        tempo.proxy.calls.clear()
        async with asyncio.timeout(15):
            while not isinstance(await protocol.inspect(facts), NeverLanded):
                # The final block is read before whatever could show the payment.
                assert tempo.proxy.calls[:3] == ["eth_chainId", "eth_getBlockByNumber", "eth_getTransactionReceipt"]
                tempo.proxy.calls.clear()
                await asyncio.sleep(0.3)


async def test_a_payer_who_signs_one_content_twice_cannot_make_us_miss_the_payment(tempo: Tempo) -> None:
    """The chain keeps the first of the two, under its hash, and refuses the one that we send."""
    config, offer = config_of(tempo.proxy.url, settle_timeout=4.0), new_offer()
    async with protocol_of(config) as protocol:
        issued = IssuedChallenge.from_www_authenticate(await challenge_of(protocol, offer))
        raw = buyer.craft_transaction(issued, tempo.payer)
        twin = buyer.sign_again(raw, tempo.payer)
        credential = credential_of(protocol, buyer.present(issued, {"type": "transaction", "signature": raw}), offer)
        assert protocol.check_terms(credential, offer, time.time()) is None
        sent = await buyer.send_oneself(twin, tempo.proxy.url)
        assert sent["status"] == "0x1"
        assert sent["transactionHash"] != credential.facts.transaction
        settled = await protocol.settle(credential, offer)
        assert isinstance(settled, Uncertain), settled
        assert await finally_said(protocol, credential.facts) == Landed(sent["transactionHash"])
    assert tempo.chain.balance(config.recipient) == PRICE


async def test_a_reconciled_receipt_says_that_it_is_one(tempo: Tempo) -> None:
    offer = new_offer()
    async with protocol_of(config_of(tempo.proxy.url)) as protocol:
        credential = await bought(protocol, tempo, offer)
        transaction = credential.facts.transaction or ""
        header = await protocol.reconciled_receipt(credential.facts, transaction.upper(), offer.key)
    receipt = Receipt.from_payment_receipt(header)
    assert receipt.external_id == offer.key
    assert (receipt.status, receipt.method, receipt.reference) == ("success", "tempo", transaction)
    assert receipt.extra == {"reconciled": True, "challengeId": credential.facts.payment_id}


# The sandbox


async def test_the_sandbox_protocol_brings_all_that_the_service_needs_and_can_be_paid() -> None:
    processes = Processes()
    try:
        with mpp_protocol(processes, new_wallet()) as sandbox:
            config = read_settings(sandbox.environment).mpp
            assert config is not None
            before = sandbox.balance(sandbox.payer.address)
            assert before == PAYER_TOKENS
            offer = new_offer()
            async with protocol_of(config) as protocol:
                assert protocol.ready().ready
                header = await buyer.sign(await challenge_of(protocol, offer), sandbox.payer, sandbox.rpc)
                credential = credential_of(protocol, header, offer)
                assert not sandbox.is_confirmed(credential.facts.transaction or "")
                settled = await protocol.settle(credential, offer)
            assert isinstance(settled, Settled)
            assert sandbox.is_confirmed(settled.transaction)
            assert sandbox.balance(sandbox.payee) == PRICE
            # The payer pays the gas in the same token.
            assert sandbox.balance(sandbox.payer.address) < before - PRICE
    finally:
        processes.stop()
