"""What the operator reads: every request by its id, and nothing of what callers sent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.faults.facilitator import Fault
from tests.hostile.service import (
    BODY,
    HOST,
    JSON,
    MPP_KEY,
    MPP_PATH,
    PATH,
    PAYER,
    Answer,
    Neighbourhood,
    Service,
    buyer,
    read_answer,
    request,
)
from tests.judges.x402_buyer import encoded, new_key

CANARY = "CaNaRy"
SECRETS = (MPP_KEY, "canary-authorization", "42" * 32)


@dataclass
class Run:
    """A varied run of a service: what was answered, what was sent, and what the operator saw of it."""

    answers: list[Answer]
    paid: httpx.Response
    keys: list[str]
    credentials: list[str]
    text: str
    lines: list[dict[str, Any]]
    metrics: str


def spoilt(service: Service) -> list[Answer]:
    """Send requests with a canary in every place that a caller can write to."""
    key = f"Idempotency-Key: {CANARY}-key-0123456789"
    body = BODY.replace(b"q1", CANARY.encode())
    credential = encoded({"x402Version": 2, CANARY: CANARY})
    sent = [
        request(HOST, JSON, key, f"User-Agent: {CANARY}", f"X-Forwarded-For: {CANARY}", body=body),
        request(HOST, JSON, f"Idempotency-Key: {CANARY} {CANARY}", body=body),
        request(HOST, JSON, key, f"PAYMENT-SIGNATURE: {CANARY}", body=body),
        request(HOST, JSON, key, f"PAYMENT-SIGNATURE: {credential}", body=body),
        request(HOST, JSON, key, f"Authorization: Payment {CANARY}", path=MPP_PATH, body=body),
        request(HOST, JSON, key, f"Authorization: Bearer {CANARY}", path=MPP_PATH, body=body),
        request(HOST, f"Content-Type: {CANARY}", key, body=body),
        request(HOST, JSON, key, f"Content-Encoding: {CANARY}", body=body),
        request(HOST, JSON, key, body=f'{{"{CANARY}":"{CANARY}'.encode()),
        request(HOST, JSON, key, body=f'{{"queries":"{CANARY}","{CANARY}":1}}'.encode()),
        request(HOST, JSON, key, path=f"/{CANARY}?{CANARY}={CANARY}"),
        request(HOST, JSON, key, path=f"{PATH}?{CANARY}={CANARY}"),
        request(HOST, JSON, key, path=f"/preflight?validate={CANARY}"),
        request(HOST, f"Idempotency-Key: {CANARY}-key-0123456789", method="GET", path="/v1/attempts", body=b""),
        request(f"Host: {CANARY}", f"Origin: https://{CANARY}", method="OPTIONS", body=b""),
        request(HOST, method="PURGE", path=f"/{CANARY}", body=b""),
        request(HOST, JSON, key, f"Upgrade: {CANARY}", "Connection: upgrade", body=body),
        f"{CANARY} is not HTTP\r\n\r\n".encode(),
        request(HOST, f"X-Long: {CANARY * 20_000}"),
    ]
    return [service.send(one) for one in sent]


@pytest.fixture(scope="module")
def run(place: Neighbourhood) -> Iterator[Run]:
    place.facilitator.reset()
    settings = {"X402_FACILITATOR_AUTHORIZATION": "Bearer canary-authorization", "LOG_LEVEL": "debug"}
    with place.running("logs", **settings) as service, buyer(service) as shopper:
        answers = spoilt(service)
        keys, credentials = [], []
        for fault in (
            Fault.NONE,
            Fault.REFUSED,
            Fault.ERROR_AFTER,
            Fault.VERIFY_REFUSED,
            Fault.VERIFY_ERROR,
            Fault.GONE,
        ):
            key = f"{CANARY}{new_key()}"
            payload = shopper.sign(key)
            place.facilitator.set(fault)
            answer = shopper.post(key, payload)
            place.facilitator.set(Fault.NONE)
            if fault is Fault.NONE:
                paid = answer
            keys.append(key)
            credentials.append(payload["payload"]["signature"].removeprefix("0x"))
            credentials.append(payload["payload"]["authorization"]["nonce"].removeprefix("0x"))
            shopper.post(key, payload)
        with httpx.Client(trust_env=False) as client:
            metrics = client.get(f"http://127.0.0.1:{service.metrics_port}/metrics").text
        service.end()
        yield Run(answers, paid, keys, credentials, service.log.read_text(), service.log_lines(), metrics)
    place.facilitator.reset()


def test_no_line_and_no_counter_holds_what_a_caller_sent(run: Run) -> None:
    for text in (run.text, run.metrics):
        found = re.findall(rf".*{CANARY}.*", text, re.IGNORECASE)
        assert found == []
        for secret in (*SECRETS, *run.credentials, *run.keys, PAYER.address, "q1", "judgments"):
            assert secret.lower() not in text.lower()
        assert "127.0.0.1:" not in re.sub(r'"(address|origin)":"[^"]*"', "", text)


def test_every_line_is_json_with_its_time_and_level(run: Run) -> None:
    for line in run.lines:
        assert {"event", "level", "timestamp"} <= line.keys()


def test_a_request_is_followed_by_its_id_from_answer_to_log(run: Run) -> None:
    request_id = run.paid.headers["x-request-id"]
    lines = [line for line in run.lines if line.get("request_id") == request_id]
    assert [line["event"] for line in lines] == ["settle outcome", "request"]
    assert lines[0]["outcome"] == "Settled"
    last = lines[1]
    assert isinstance(last.pop("duration_ms"), float)
    assert isinstance(last.pop("timestamp"), str)
    assert last == {
        "event": "request",
        "level": "info",
        "request_id": request_id,
        "method": "POST",
        "route": PATH,
        "status": 200,
        "operation": "ranking-evaluate",
        "protocol": "x402",
        "key_digest": sha256(run.keys[0].encode()).hexdigest()[:16],
    }


def test_every_answer_with_an_id_has_exactly_one_line(run: Run) -> None:
    told = [line for line in run.lines if line["event"] == "request"]
    ids = [line["request_id"] for line in told]
    assert len(set(ids)) == len(ids)
    for answer in run.answers:
        if "x-request-id" in answer.headers:
            (line,) = [line for line in told if line["request_id"] == answer.headers["x-request-id"]]
            assert (line["status"], line.get("code")) == (answer.status, answer.code)


def test_the_counters_have_operation_protocol_status_and_code(run: Run) -> None:
    paid = 'operation="ranking-evaluate",protocol="x402",status="200"'
    assert f'ranking_evaluate_requests_total{{code="",{paid}}} ' in run.metrics
    for outcome in ("Verified", "Rejected", "Unreachable"):
        assert f'ranking_evaluate_verifications_total{{outcome="{outcome}",protocol="x402"}}' in run.metrics
    for outcome in ("Settled", "Refused", "Uncertain", "NotSent"):
        assert f'ranking_evaluate_settlements_total{{outcome="{outcome}",protocol="x402"}}' in run.metrics
    assert 'ranking_evaluate_settle_seconds_count{protocol="x402"}' in run.metrics
    for call in ("read", "reserve", "move"):
        assert f'ranking_evaluate_store_seconds_count{{call="{call}"}}' in run.metrics


def test_a_flood_of_one_address_writes_a_few_lines(place: Neighbourhood) -> None:
    """Everything that no rate bounds, 300 times each over one connection: 429, 404, 405, a preflight, the probes."""
    preflight = ("Origin: https://a.example", "Access-Control-Request-Method: POST")
    shapes = [
        request(HOST, JSON),
        request(HOST, method="GET", path="/no-such-route", body=b""),
        request(HOST, method="DELETE", path=PATH, body=b""),
        request(HOST, *preflight, method="OPTIONS", body=b""),
        request(HOST, method="GET", path="/healthz", body=b""),
        request(HOST, method="GET", path="/readyz", body=b""),
        request(HOST, method="GET", path="/llms.txt", body=b""),
    ]
    with place.running("log-flood", REQUEST_RATE="2/hour") as service:
        with service.connect() as connection:
            reader = connection.makefile("rb")
            for shape in shapes:
                for _ in range(300):
                    connection.sendall(shape)
                    assert read_answer(reader).status
        written = len(service.log.read_bytes())
        service.end()
        told = [line for line in service.log_lines() if line["event"] in {"request", "more requests like this"}]
    # The two that the rate allows have lines of their own.
    by_event = Counter(line["event"] for line in told)
    assert by_event["request"] <= 2 + 2 * len(shapes)
    assert by_event["more requests like this"] <= 2 * len(shapes)
    assert by_event["request"] + sum(line.get("more", 0) for line in told) >= 300 * len(shapes)
    assert written < 20_000
    assert {"POST", "GET", "DELETE", "OPTIONS"} == {line["method"] for line in told}
    assert not [line for line in told if "127.0.0.1" in str(line)]
