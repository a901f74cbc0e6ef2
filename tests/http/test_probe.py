"""A POST that only asks what is sold is answered with the terms, as GET is; every other one without a key stays 400."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.payments.protocol import Readiness
from tests.fakes import VALID_SECONDS, Signed
from tests.http.conftest import BODY, KEY, PATH, Service
from tests.http.test_app import check_problem

pytestmark = pytest.mark.anyio

NO_LINES = (("X-Nothing", "right"),)


@pytest.mark.parametrize("body", [b"", b"{}", b" {\r\n\t}\n", b"{}" + b" " * 14, b" " * 16])
@pytest.mark.parametrize(
    "lines",
    [
        NO_LINES,  # CDP's crawler sends an empty body and no headers of ours.
        (("Content-Type", "application/json"),),
        (("Content-Type", "text/plain"), ("Accept", "text/html")),
        # Of version 1 of x402, which is not spoken here: no credential.
        (("X-PAYMENT", "eyJ4NDAyVmVyc2lvbiI6MX0="),),
        (("Authorization", "Bearer something"), ("Content-Encoding", "identity")),
    ],
)
async def test_a_probe_gets_what_a_get_gets(
    shared_service: Service, body: bytes, lines: tuple[tuple[str, str], ...]
) -> None:
    answer = await shared_service.post(*lines, body=body)
    check_problem(answer, 402, "PAYMENT_REQUIRED")
    assert answer.headers["x-scripted-challenge"] == DISCOVERY_KEY
    assert answer.headers["cache-control"] == "no-store"
    detail = answer.json()["detail"]
    assert "POST" in detail
    assert "Idempotency-Key" in detail
    looked = await shared_service.client.get(PATH)
    assert {**answer.json(), "requestId": ""} == {**looked.json(), "requestId": ""}
    assert (await shared_service.store.read(DISCOVERY_KEY)).standing is None


@pytest.mark.parametrize(
    ("lines", "body", "status", "code"),
    [
        # One byte more than a probe has.
        ((("Content-Type", "application/json"),), b" " * 17, 400, "IDEMPOTENCY_KEY_REQUIRED"),
        ((("Content-Type", "application/json"),), BODY, 400, "IDEMPOTENCY_KEY_REQUIRED"),
        ((("Content-Type", "application/json"),), b"[]", 400, "IDEMPOTENCY_KEY_REQUIRED"),
        ((("Content-Type", "application/json"),), b'{"a":1}', 400, "IDEMPOTENCY_KEY_REQUIRED"),
        # No white space of JSON.
        ((("Content-Type", "application/json"),), b"{\x0b}", 400, "IDEMPOTENCY_KEY_REQUIRED"),
        (NO_LINES, BODY, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ((("Content-Encoding", "gzip"),), b"{}", 415, "UNSUPPORTED_ENCODING"),
        ((("Idempotency-Key", "short"), ("Content-Type", "application/json")), b"{}", 400, "IDEMPOTENCY_KEY_INVALID"),
        ((("Idempotency-Key", KEY),), b"", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ((("Idempotency-Key", KEY), ("Content-Type", "application/json")), b"", 400, "MALFORMED_JSON"),
        ((("Idempotency-Key", KEY), ("Content-Type", "application/json")), b"{}", 422, "INVALID_INPUT"),
    ],
)
async def test_what_is_no_probe_is_refused_as_ever(
    shared_service: Service, lines: tuple[tuple[str, str], ...], body: bytes, status: int, code: str
) -> None:
    check_problem(await shared_service.post(*lines, body=body), status, code)


async def test_a_credential_without_a_key_is_no_probe(service: Service) -> None:
    (credential,) = Signed(KEY, "first", service.clock.now() + VALID_SECONDS).header().items()
    answer = await service.post(credential, ("Content-Type", "application/json"), body=b"{}")
    check_problem(answer, 400, "IDEMPOTENCY_KEY_REQUIRED")
    assert service.protocol.ledger.calls == {}


async def test_of_a_body_without_a_length_no_more_is_read_than_shows_that_it_is_no_probe(service: Service) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"        "

    answer = await service.post(("Content-Type", "application/json"), body=endless())
    check_problem(answer, 400, "IDEMPOTENCY_KEY_REQUIRED")
    assert sent == 3

    async def short() -> AsyncIterator[bytes]:
        yield b"{"
        yield b"}"

    check_problem(await service.post(*NO_LINES, body=short()), 402, "PAYMENT_REQUIRED")


async def test_a_probe_while_the_protocol_is_down_is_503(service: Service) -> None:
    service.protocol.readiness = Readiness(False, "asleep")
    check_problem(await service.post(*NO_LINES, body=b""), 503, "PAYMENT_UNAVAILABLE")


async def test_a_probe_elsewhere_is_answered_as_any_post_there(service: Service) -> None:
    check_problem(await service.post(*NO_LINES, body=b"", path="/preflight"), 415, "UNSUPPORTED_MEDIA_TYPE")
    check_problem(await service.post(*NO_LINES, body=b"", path="/v1/attempts"), 405, "METHOD_NOT_ALLOWED")
