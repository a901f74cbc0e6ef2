"""The served process answers every `http` row of `hostile-http.jsonl` as the row says, over raw sockets.

Each row says in `source` who sends such a request, or which standard describes it.
"""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from mpp import Challenge

from tests.faults.facilitator import Fault
from tests.hostile.service import (
    BODY,
    CHAIN_ID,
    CURRENCY,
    GOOD,
    HOST,
    JSON,
    KEY,
    KEY_LINE,
    MPP_PATH,
    PATH,
    PAYEE,
    PAYER,
    Answer,
    Neighbourhood,
    Service,
    buyer,
    read_answer,
    request,
)
from tests.hostile.wallet import WALLET
from tests.judges.x402_buyer import Payload, changed, decoded, encoded, new_key
from tests.payments import mpp_buyer
from tests.payments.mpp_shopper import Shopper

CASES: Final = Path(__file__).parent / "hostile-http.jsonl"
ROWS: Final = {row["id"]: row for row in map(json.loads, CASES.read_text().splitlines()) if row["kind"] == "http"}


def chunked(*chunks: bytes, trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailer + b"\r\n"


def other_key(value: str | bytes) -> bytes:
    return b"Idempotency-Key: " + (value.encode() if isinstance(value, str) else value)


CHUNKED: Final = "Transfer-Encoding: chunked"
BOMB: Final = gzip.compress(b"\0" * 10 * 2**20)


def media(value: str) -> bytes:
    return request(HOST, KEY_LINE, f"Content-Type: {value}")


def coded(*values: str, body: bytes = BODY) -> bytes:
    return request(*GOOD, *(f"Content-Encoding: {value}" for value in values), body=body)


def signature(text: str) -> bytes:
    return request(*GOOD, f"PAYMENT-SIGNATURE: {base64.b64encode(text.encode()).decode()}")


RAW: Final[dict[str, bytes]] = {
    "H01": request(HOST, JSON),
    "H04": request(HOST, JSON, other_key(f'"{KEY}"')),
    "H05": request(HOST, JSON, other_key("é" * 8)),
    "H05b": request(HOST, JSON, other_key(b"\xe9" * 16)),
    "H06": request(*GOOD, other_key("another-key-of-mine-0001")),
    "H07": request(*GOOD, KEY_LINE),
    "H08": request(HOST, JSON, other_key("aaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbb")),
    "H09": request(HOST, JSON, CHUNKED, body=chunked(BODY, trailer=KEY_LINE.encode() + b"\r\n")),
    "H11": media("text/plain"),
    "H12": request(HOST, KEY_LINE),
    "H13": media("application/json; charset=utf-16"),
    "H14": media("application/json;charset=UTF-8"),
    "H15": media("application/jsonp"),
    "H17": media("application/problem+json"),
    "H18": coded("gzip", body=gzip.compress(BODY)),
    "H19": coded("gzip", body=BOMB),
    "H20": coded("identity"),
    "H22": coded("identity", "gzip"),
    "H23": request(*GOOD, "Content-Length: 1000000000", body=b""),
    "H24": request(*GOOD, CHUNKED, body=chunked(*[b"x"] * 131_073)),
    "H24b": request(*GOOD, CHUNKED, body=chunked(*(BODY[at : at + 1] for at in range(len(BODY))))),
    "H25": request(*GOOD, "Content-Length: 2", body=b"{"),
    "H27": request(*GOOD, "Content-Length: 2", CHUNKED, body=b"{}"),
    "H28": request(*GOOD, "Content-Length: 2", "Content-Length: 3", body=b"{}"),
    "H29": request(*GOOD, "Transfer-Encoding: chunked, identity", body=chunked(BODY)),
    "H31": request(*GOOD).replace(b"\r\n", b"\n"),
    "H32": request(*GOOD, "X-Folded: a\r\n b"),
    "H34": request(*GOOD, "X-Split: a\rInjected: b"),
    "H35": request(*GOOD, CHUNKED, body=b"FFFFFFFFFFFFFFFFF\r\n{}\r\n"),
    "H35b": request(*GOOD, b"Content-Length: \xb2"),
    "H35c": request(*GOOD, "Content-Length: " + "9" * 5_000),
    "H35d": request(*GOOD, "Content-Length: -1"),
    "H36": request(*GOOD, "PAYMENT-SIGNATURE: " + "A" * 1_000_000),
    "H38": request(HOST, method="GET", body=b""),
    "H39": request(*GOOD, path=PATH + "/"),
    "H42": request(*GOOD, path=f"http://evil{PATH}"),
    "H43": request("Host: evil.example", "X-Forwarded-Host: evil.example", JSON, KEY_LINE),
    "H44": request(JSON, KEY_LINE, version="1.0"),
    "H48": request(
        HOST,
        "Origin: https://shop.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: idempotency-key, payment-signature",
        method="OPTIONS",
        body=b"",
    ),
    "H50": signature("[]"),
    "H51": signature('{"x402Version":2,"x402Version":2}'),
    "H53": request(*GOOD, f"X-PAYMENT: {base64.b64encode(b'{}').decode()}"),
    "H53b": signature('{"x402Version":1,"scheme":"exact","network":"base","payload":{}}'),
    "H58": request(*GOOD, "PAYMENT-SIGNATURE: e30=", path=MPP_PATH),
    "H59": request(*GOOD, "PAYMENT-SIGNATURE: e30=", "Authorization: Payment e30"),
    "H60": request(*GOOD, "Authorization: Bearer x", path=MPP_PATH),
}
"""The rows that one request of fixed bytes makes."""

SLOW: Final = {"H25", "H46"}
"""The rows whose answer is a deadline: `test_slow_callers.py` tests both."""

SIGNED: Final = {"H55", "H62", "H63", "H65", "H66", "H67", "H68", "H69", "H70", "H71", "H72"}
"""The rows that need a credential, below."""


def named(row: str) -> str:
    """Return the name of a row's test: its id, and its request in words."""
    return f"{row}: {ROWS[row]['request']}"


def check(row: str, answer: Answer) -> None:
    """Hold an answer against its row, and against what holds for every answer."""
    expected = ROWS[row]
    assert (answer.status, answer.code) == (expected["status"], expected["code"] or answer.code)
    if expected["code"] is None and answer.status == 400:
        assert answer.closed, "what is not HTTP ends the connection"
        assert b"PAYMENT" not in answer.body
        return
    assert "x-request-id" in answer.headers
    assert "location" not in answer.headers
    assert "server" not in answer.headers
    assert b"evil" not in answer.body
    if answer.status == 402 and "payment-required" in answer.headers:
        assert "evil" not in json.dumps(decoded(answer.headers["payment-required"]))


def test_every_row_is_tried() -> None:
    assert set(RAW) | SIGNED | SLOW == set(ROWS)


@pytest.mark.parametrize("row", sorted(set(RAW) - SLOW), ids=named)
def test_a_row_of_fixed_bytes(service: Service, row: str) -> None:
    started = time.monotonic()
    check(row, service.send(RAW[row]))
    assert time.monotonic() - started < 5


def test_a_connection_of_http_1_0_is_closed(service: Service) -> None:
    assert service.send(RAW["H44"]).closed


def test_the_resource_is_the_configured_one_whatever_host_is_named(service: Service) -> None:
    for row in ("H42", "H43", "H44"):
        challenge = decoded(service.send(RAW[row]).headers["payment-required"])
        assert challenge["resource"]["url"] == service.origin + PATH


def test_the_preflight_names_the_payment_headers(service: Service) -> None:
    answer = service.send(RAW["H48"])
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert answer.headers["access-control-allow-origin"] == "*"
    assert {"idempotency-key", "payment-signature", "authorization"} <= {name.strip() for name in allowed.split(",")}


def test_a_long_head_is_refused_while_it_arrives(service: Service) -> None:
    """The answer comes before the whole head: it is never kept."""
    with service.connect() as connection:
        connection.sendall(RAW["H36"][:300_000])
        answer = read_answer(connection)
    check("H36", answer)
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("row", ["H24", "H36"], ids=named)
def test_what_is_too_long_is_refused_in_pieces_too(service: Service, row: str) -> None:
    with service.connect() as connection:
        for start in range(0, len(RAW[row]), 7_000):
            try:
                connection.sendall(RAW[row][start : start + 7_000])
            except ConnectionError:
                break
        assert read_answer(connection).status == ROWS[row]["status"]


@pytest.fixture
def paid_for(place: Neighbourhood, service: Service) -> Iterator[Callable[[], tuple[str, Payload]]]:
    """Sign purchases that no row of these may send anywhere."""
    place.facilitator.reset(Fault.NONE)
    with buyer(service) as shopper:

        def sign() -> tuple[str, Payload]:
            key = new_key()
            return key, shopper.sign(key)

        yield sign


def pay(service: Service, key: str, payload: object) -> Answer:
    return service.send(request(HOST, JSON, f"Idempotency-Key: {key}", f"PAYMENT-SIGNATURE: {encoded(payload)}"))


def authorization(payload: Payload) -> dict[str, Any]:
    found: dict[str, Any] = payload["payload"]["authorization"]
    return found


CHANGES: Final[list[tuple[str, str, Callable[[Payload], object]]]] = [
    ("H55", "no identifier", lambda payload: payload.pop("extensions")),
    ("H62", "amount", lambda payload: payload["accepted"].update(amount="9999")),
    ("H62", "payee", lambda payload: payload["accepted"].update(payTo="0x" + "11" * 20)),
    ("H62", "network", lambda payload: payload["accepted"].update(network="eip155:8453")),
    ("H62", "asset", lambda payload: payload["accepted"].update(asset="0x" + "22" * 20)),
    ("H63", "over-pay", lambda payload: authorization(payload).update(value="10001")),
    ("H65", "past", lambda payload: authorization(payload).update(validBefore="1000000000")),
    ("H66", "for ever", lambda payload: authorization(payload).update(validBefore=str(2**256 - 1))),
    ("H67", "hexadecimal", lambda payload: authorization(payload).update(value="0x2710")),
    ("H67", "exponent", lambda payload: authorization(payload).update(value="1e4")),
    ("H67", "space", lambda payload: authorization(payload).update(value=" 10000")),
    ("H67", "number", lambda payload: authorization(payload).update(value=10000)),
]


@pytest.mark.parametrize(("row", "what", "change"), CHANGES, ids=[f"{row}: {what}" for row, what, _ in CHANGES])
def test_a_changed_x402_credential(
    place: Neighbourhood,
    service: Service,
    paid_for: Callable[[], tuple[str, Payload]],
    row: str,
    what: str,
    change: Callable[[Payload], object],
) -> None:
    key, payload = paid_for()
    check(row, pay(service, key, changed(payload, change)))
    assert not place.facilitator.verifications
    assert not place.facilitator.attempts


def test_one_authorization_buys_one_answer(
    place: Neighbourhood, service: Service, paid_for: Callable[[], tuple[str, Payload]]
) -> None:
    key, payload = paid_for()
    assert pay(service, key, payload).status == 200
    sign = payload["payload"]["signature"]
    r, s, v = sign[2:66], sign[66:130], int(sign[130:], 16)
    compact = int(s, 16) | ((v - 27) << 255)
    again: list[tuple[str, Callable[[Payload], object]]] = [
        ("H68", lambda copy: authorization(copy).update({"from": PAYER.address.lower()})),
        ("H68", lambda copy: authorization(copy).update({"from": "0x" + PAYER.address[2:].upper()})),
        ("H69", lambda copy: copy["payload"].update(signature=f"0x{r}{s}{v - 27:02x}")),
        ("H69", lambda copy: copy["payload"].update(signature=f"0x{r}{compact:064x}")),
    ]
    for row, change in again:
        fresh = new_key()
        copy = changed(payload, change)
        copy["extensions"]["payment-identifier"]["info"]["id"] = fresh
        check(row, pay(service, fresh, copy))
    nonce = authorization(payload)["nonce"]
    assert place.facilitator.moves == {nonce: 1}


@pytest.fixture
def shopper(service: Service) -> Iterator[Shopper]:
    with httpx.Client(base_url=service.origin, trust_env=False, timeout=30) as client:
        yield Shopper(client, WALLET, body=BODY)


def pay_mpp(service: Service, shopper: Shopper, challenge: str, key: str | None = None, body: bytes = BODY) -> Answer:
    credential = mpp_buyer.craft(challenge, WALLET, chain_id=CHAIN_ID, token=CURRENCY, recipient=PAYEE)
    lines = (HOST, JSON, f"Idempotency-Key: {key or shopper.key}", f"Authorization: {credential}")
    return service.send(request(*lines, path=MPP_PATH, body=body))


def test_a_challenge_with_another_realm_amount_expiry_or_digest_is_refused(service: Service, shopper: Shopper) -> None:
    ours = shopper.challenge()
    challenge = Challenge.from_www_authenticate(ours)
    dear = {**challenge.request, "amount": "1"}
    for changes in (
        {"realm": "evil.example"},
        {"request": dear},
        {"expires": "2020-01-01T00:00:00Z"},
        {"digest": "sha-256=:" + base64.b64encode(b"0" * 32).decode() + ":"},
    ):
        forged = replace(challenge, **changes).to_www_authenticate(changes.get("realm", challenge.realm))  # type: ignore[arg-type]
        check("H70", pay_mpp(service, shopper, forged))
    other_body = BODY.replace(b'"q1"', b'"q2"')
    check("H70", pay_mpp(service, shopper, ours, body=other_body))


def test_a_challenge_of_another_key_is_a_mismatch(service: Service, shopper: Shopper) -> None:
    check("H71", pay_mpp(service, shopper, shopper.challenge(), key=new_key()))


def test_a_transaction_hash_is_no_payment(service: Service, shopper: Shopper) -> None:
    challenge = Challenge.from_www_authenticate(shopper.challenge())
    credential = mpp_buyer.present(challenge, {"type": "hash", "hash": "0x" + "11" * 32})
    lines = (HOST, JSON, f"Idempotency-Key: {shopper.key}", f"Authorization: {credential}")
    check("H72", service.send(request(*lines, path=MPP_PATH)))
