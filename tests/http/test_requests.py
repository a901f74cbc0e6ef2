"""The service checks headers, encoding, media type, key, size and body in this order; the first failure answers."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http.conftest import BODY, JSON, KEY, PATH, Service

pytestmark = pytest.mark.anyio

CONTENT_TYPE = ("Content-Type", "application/json")
GOOD_KEY = ("Idempotency-Key", KEY)


@pytest.mark.parametrize(
    ("case", "key", "code"),
    [
        ("in quotes", f'"{KEY}"', "IDEMPOTENCY_KEY_INVALID"),
        ("not ASCII", "é" * 16, "IDEMPOTENCY_KEY_INVALID"),
        ("a list", "aaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbb", "IDEMPOTENCY_KEY_INVALID"),
        ("too short", "a" * 15, "IDEMPOTENCY_KEY_INVALID"),
        ("too long", "a" * 129, "IDEMPOTENCY_KEY_INVALID"),
        ("empty", "", "IDEMPOTENCY_KEY_INVALID"),
        ("a dot", "a" * 16 + ".", "IDEMPOTENCY_KEY_INVALID"),
        ("a space inside", "a" * 16 + " b", "IDEMPOTENCY_KEY_INVALID"),
    ],
)
async def test_a_key_has_one_form(shared_service: Service, case: str, key: str, code: str) -> None:
    answer = await shared_service.client.post(
        PATH, content=BODY, headers={b"content-type": b"application/json", b"idempotency-key": key.encode()}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, code)


@pytest.mark.parametrize("key", ["a" * 16, "Z_-9" * 32, "A-1_" * 4])
async def test_every_key_of_that_form_is_taken(service: Service, key: str) -> None:
    answer = await service.post(CONTENT_TYPE, ("Idempotency-Key", key))
    assert (answer.status_code, answer.headers["x-scripted-challenge"]) == (402, key)


async def test_a_key_is_needed(service: Service) -> None:
    answer = await service.post(CONTENT_TYPE)
    assert (answer.status_code, answer.json()["code"]) == (400, "IDEMPOTENCY_KEY_REQUIRED")


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        ("two keys", [("Idempotency-Key", KEY), ("idempotency-key", KEY + "x")]),
        ("one key twice", [("Idempotency-Key", KEY), ("Idempotency-Key", KEY)]),
        ("two encodings", [GOOD_KEY, ("Content-Encoding", "identity"), ("Content-Encoding", "gzip")]),
        ("content type", [GOOD_KEY, CONTENT_TYPE, ("content-type", "text/plain")]),
        ("credential", [GOOD_KEY, ("X-Scripted-Payment", "a"), ("x-scripted-payment", "a")]),
    ],
)
async def test_a_header_that_decides_stands_on_one_line(
    shared_service: Service, case: str, lines: list[tuple[str, str]]
) -> None:
    if case != "content type":
        lines = [*lines, CONTENT_TYPE]
    answer = await shared_service.post(*lines)
    assert (answer.status_code, answer.json()["code"]) == (400, "HEADER_INVALID")


async def test_other_headers_may_repeat(service: Service) -> None:
    answer = await service.post(GOOD_KEY, CONTENT_TYPE, ("Accept", "text/html"), ("Accept", "*/*"))
    assert answer.status_code == 402


async def raw_headers(service: Service) -> int:
    """Return how many lines the client adds by itself."""
    request = service.client.build_request("POST", PATH, content=BODY)
    return len(request.headers.raw)


async def test_64_header_lines_are_taken_and_65_refused(service: Service) -> None:
    own = await raw_headers(service)
    for lines, status in ((64, 402), (65, 400)):
        padding = [(f"x-{number}", "") for number in range(lines - own - 2)]
        answer = await service.post(GOOD_KEY, CONTENT_TYPE, *padding)
        assert answer.status_code == status
    assert answer.json()["code"] == "HEADER_INVALID"


async def test_32_kib_of_headers_are_taken_and_a_byte_more_refused(service: Service) -> None:
    request = service.client.build_request(
        "POST", PATH, content=BODY, headers=[GOOD_KEY, CONTENT_TYPE, ("x-padding", "")]
    )
    left = 32_768 - sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
    for more, status in ((0, 402), (1, 400)):
        answer = await service.post(GOOD_KEY, CONTENT_TYPE, ("x-padding", "x" * (left + more)))
        assert answer.status_code == status
    assert answer.json()["code"] == "HEADER_INVALID"


@pytest.mark.parametrize(
    ("case", "media"),
    [
        ("text", "text/plain"),
        ("another charset", "application/json; charset=utf-16"),
        ("a longer name", "application/jsonp"),
        ("a suffix", "application/problem+json"),
        ("empty", ""),
        ("two parameters", "application/json; charset=utf-8; charset=utf-16"),
        ("another parameter", "application/json; profile=x"),
        ("a list", "application/json, text/plain"),
        ("within", "text/application/json"),
    ],
)
async def test_only_json_in_utf8_is_taken(shared_service: Service, case: str, media: str) -> None:
    answer = await shared_service.post(GOOD_KEY, ("Content-Type", media))
    assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_media_type_is_needed(service: Service) -> None:
    answer = await service.post(GOOD_KEY)
    assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "media",
    [
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "APPLICATION/JSON",
        "application/json ; charset=utf-8",
    ],
)
async def test_json_in_utf8_is_taken_in_every_spelling(shared_service: Service, media: str) -> None:
    assert (await shared_service.post(GOOD_KEY, ("Content-Type", media))).status_code == 402


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "", "x"])
async def test_a_compressed_body_is_refused(shared_service: Service, encoding: str) -> None:
    answer = await shared_service.post(GOOD_KEY, CONTENT_TYPE, ("Content-Encoding", encoding), body=gzip.compress(BODY))
    assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_ENCODING")


async def test_a_compressed_bomb_is_never_unpacked(service: Service) -> None:
    bomb = gzip.compress(b"0" * 10 * 2**20)
    started = time.monotonic()
    answer = await service.post(GOOD_KEY, CONTENT_TYPE, ("Content-Encoding", "gzip"), body=bomb)
    assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_ENCODING")
    assert time.monotonic() - started < 1


async def test_the_identity_encoding_is_taken(service: Service) -> None:
    assert (await service.post(GOOD_KEY, CONTENT_TYPE, ("Content-Encoding", "Identity"))).status_code == 402


async def test_the_first_check_that_fails_answers(service: Service) -> None:
    """Headers, then encoding, media type, key, size, input: each request breaks one check fewer."""
    big = b"[" + b"0," * 70_000 + b"0]"
    twice = ("Idempotency-Key", "x")
    expected = [
        ([twice, twice, ("Content-Encoding", "gzip")], 400, "HEADER_INVALID"),
        ([twice, ("Content-Encoding", "gzip"), ("Content-Type", "text/plain")], 415, "UNSUPPORTED_ENCODING"),
        ([twice, ("Content-Type", "text/plain")], 415, "UNSUPPORTED_MEDIA_TYPE"),
        ([twice, CONTENT_TYPE], 400, "IDEMPOTENCY_KEY_INVALID"),
        ([CONTENT_TYPE], 400, "IDEMPOTENCY_KEY_REQUIRED"),
        ([GOOD_KEY, CONTENT_TYPE], 413, "INPUT_LIMIT"),
    ]
    for lines, status, code in expected:
        answer = await service.post(*lines, body=big)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    answer = await service.post(GOOD_KEY, CONTENT_TYPE, body=b"{")
    assert (answer.status_code, answer.json()["code"]) == (400, "MALFORMED_JSON")


class Source:
    """A body in chunks, which counts what of it was taken."""

    def __init__(self, chunks: int, chunk: bytes, *, then_hang: bool = False) -> None:
        self.chunks, self.chunk, self.then_hang = chunks, chunk, then_hang
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            self.taken += 1
            yield self.chunk
        if self.then_hang:
            await asyncio.sleep(60)


async def test_a_declared_size_over_the_limit_is_refused_unread(service: Service) -> None:
    source = Source(1000, b"x" * 1000)
    answer = await service.post(GOOD_KEY, CONTENT_TYPE, ("Content-Length", "131073"), body=source)
    assert (answer.status_code, answer.json()["code"]) == (413, "INPUT_LIMIT")
    assert answer.headers["connection"] == "close"
    assert source.taken == 0


async def test_a_body_that_grows_over_the_limit_is_read_no_further(service: Service) -> None:
    source = Source(1000, b"x" * 1024)
    answer = await service.post(GOOD_KEY, CONTENT_TYPE, body=source)
    assert (answer.status_code, answer.json()["code"]) == (413, "INPUT_LIMIT")
    assert answer.headers["connection"] == "close"
    assert source.taken == 129


async def test_a_body_of_exactly_the_limit_is_read(service: Service) -> None:
    answer = await service.post(body=BODY + b" " * (131_072 - len(BODY)))
    assert answer.status_code == 402


async def test_a_declared_size_that_lies_does_not_widen_the_limit(service: Service) -> None:
    answer = await service.post(GOOD_KEY, CONTENT_TYPE, ("Content-Length", "2"), body=Source(200, b"x" * 1024))
    assert (answer.status_code, answer.json()["code"]) == (413, "INPUT_LIMIT")


async def test_a_client_that_goes_away_in_its_body_gets_nothing_and_stores_nothing(service: Service) -> None:
    answer = await call_with_receive(
        service, [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )
    assert answer == {}
    assert (await service.store.read(KEY)).rows == ()


async def call_with_receive(service: Service, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Call the application with exactly these messages; then nothing more comes."""
    left, answer = list(messages), dict[str, Any]()

    async def receive() -> dict[str, Any]:
        if left:
            return left.pop(0)
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.update(status=message["status"], headers=dict(message["headers"]))
        else:
            answer["body"] = answer.get("body", b"") + message["body"]

    headers = [(name.lower().encode(), value.encode()) for name, value in {"Idempotency-Key": KEY, **JSON}.items()]
    scope: Any = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("192.0.2.7", 50_000),
        "server": ("rank.example", 443),
    }
    await service.app(scope, receive, send)
    return answer
