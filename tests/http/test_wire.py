"""The tests send what no HTTP client would send, over a bare socket, to the service as `serve` runs it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from ranking_evaluate.sandbox.processes import free_port
from tests.faults.facilitator import FaultyFacilitator, ledger_only
from tests.http.conftest import BODY, KEY

PATH = "/v1/x402/ranking-evaluate"
NETWORK = "eip155:84532"


class Answer(NamedTuple):
    """What came over the wire until the service closed, or said all it had to say."""

    status: int | None
    text: str


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder, port = tmp_path_factory.mktemp("wire"), free_port()
    with FaultyFacilitator(ledger_only(NETWORK)) as facilitator:
        variables = {
            "DATABASE_URL": f"sqlite:///{folder / 'attempts.db'}",
            "REQUEST_RATE": "",
            "X402_PAY_TO": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": facilitator.url,
        }
        process = subprocess.Popen(
            [Path(sysconfig.get_path("scripts")) / "ranking-evaluate", "serve", "--port", str(port)],
            env={f"RANKING_EVALUATE_{name}": value for name, value in variables.items()},
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not is_ready(port):
            assert process.poll() is None, "the service ended"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield port
        # It has survived everything, and it ends when it is told to; uvicorn then raises the signal again.
        assert is_ready(port)
        process.terminate()
        assert process.wait(20) in {0, -signal.SIGTERM}


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def request(*lines: str, head: str = f"POST {PATH} HTTP/1.1", body: bytes = BODY, end: str = "\r\n") -> bytes:
    return (end.join([head, *lines]) + end * 2).encode("latin-1") + body


GOOD = ("Host: a", "Content-Type: application/json", f"Idempotency-Key: {KEY}")
LENGTH = f"Content-Length: {len(BODY)}"


def speak(port: int, *segments: bytes, patience: float = 3.0) -> Answer:
    """Send the segments and return the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
        received = b""
        try:
            for segment in segments:
                connection.sendall(segment)
            while b"\r\n\r\n" not in received or not is_whole(received):
                chunk = connection.recv(65536)
                if not chunk:
                    break
                received += chunk
        except (TimeoutError, ConnectionError):
            pass
    status = int(received.split()[1]) if received.startswith(b"HTTP/1.1 ") else None
    return Answer(status, received.decode("latin-1"))


def is_whole(received: bytes) -> bool:
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(lengths) and len(body) >= lengths[0]


def test_the_plain_request_gets_its_challenge(port: int) -> None:
    answer = speak(port, request(*GOOD, LENGTH))
    assert answer.status == 402
    assert "server:" not in answer.text.lower()


def test_a_size_that_is_only_announced_is_refused_at_once(port: int) -> None:
    started = time.monotonic()
    answer = speak(port, request(*GOOD, "Content-Length: 1000000000", body=b""))
    assert (answer.status, '"INPUT_LIMIT"' in answer.text) == (413, True)
    assert time.monotonic() - started < 1


def test_a_body_of_single_bytes_is_cut_at_the_limit(port: int) -> None:
    chunks = b"1\r\nx\r\n" * 131_073 + b"0\r\n\r\n"
    answer = speak(port, request(*GOOD, "Transfer-Encoding: chunked", body=b""), chunks, patience=10)
    assert (answer.status, '"INPUT_LIMIT"' in answer.text) == (413, True)


def test_a_chunked_body_within_the_limit_is_read(port: int) -> None:
    chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in BODY) + b"0\r\n\r\n"
    assert speak(port, request(*GOOD, "Transfer-Encoding: chunked", body=chunks)).status == 402


@pytest.mark.parametrize(
    ("case", "sent"),
    [
        ("length and chunks", request(*GOOD, "Content-Length: 2", "Transfer-Encoding: chunked", body=b"0\r\n\r\n")),
        ("two lengths", request(*GOOD, LENGTH, "Content-Length: 3")),
        ("chunked within another coding", request(*GOOD, "Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n")),
        ("bare LF", request(*GOOD, LENGTH, end="\n")),
        ("folded header", request(*GOOD, LENGTH, "X-Folded: a", "  b")),
        ("bare CR", request(*GOOD, LENGTH, "X-Split: a\rX-Injected: b")),
        ("chunk size beyond 64 bits", request(*GOOD, "Transfer-Encoding: chunked", body=b"FFFFFFFFFFFFFFFFF\r\n")),
        ("length not a number", request(*GOOD, "Content-Length: \xb2")),
        ("length of many digits", request(*GOOD, "Content-Length: " + "9" * 5000)),
        ("negative length", request(*GOOD, "Content-Length: -1")),
    ],
)
def test_smuggling_shapes_are_refused_by_the_parser(port: int, case: str, sent: bytes) -> None:
    answer = speak(port, sent)
    assert answer.status == 400
    assert '"PAYMENT' not in answer.text


def test_a_credential_of_a_megabyte_is_refused(port: int) -> None:
    answer = speak(port, request(*GOOD, LENGTH, "PAYMENT-SIGNATURE: " + "A" * 1_000_000), patience=10)
    assert (answer.status, '"HEADER_INVALID"' in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("case", "sent"),
    [
        ("absolute target", request(*GOOD, LENGTH, head=f"POST http://evil.example{PATH} HTTP/1.1")),
        ("other host", request("Host: evil.example", *GOOD[1:], LENGTH, "X-Forwarded-Host: evil.example")),
        ("no host", request(*GOOD[1:], LENGTH, head=f"POST {PATH} HTTP/1.0")),
    ],
)
def test_the_challenge_is_the_configured_origins_whatever_host_is_named(port: int, case: str, sent: bytes) -> None:
    answer = speak(port, sent)
    assert answer.status == 402
    assert f'"url":"http://127.0.0.1:{port}{PATH}"' in answer.text
    assert "evil" not in answer.text


def test_a_key_that_is_not_ascii_is_invalid(port: int) -> None:
    answer = speak(port, request(*GOOD[:2], "Idempotency-Key: " + "\xe9" * 16, LENGTH))
    assert (answer.status, '"IDEMPOTENCY_KEY_INVALID"' in answer.text) == (400, True)


def test_two_requests_on_one_connection_are_two_requests(port: int) -> None:
    answer = speak(port, request(*GOOD, LENGTH) + request(*GOOD, LENGTH, "Connection: close"))
    assert answer.status == 402
