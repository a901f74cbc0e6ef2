"""A caller that leaves, and a service that is asked to end, in the middle of a settle call: the payment goes its way.

Over x402; `test_matrix_mpp.py` has the caller that leaves over MPP, `tests/judges/test_x402_processes.py` a real chain.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from signal import SIGINT, SIGTERM, Signals

import httpx
import pytest

from tests.faults.facilitator import Fault
from tests.hostile.service import BODY, HOST, JSON, Neighbourhood, Service, buyer, neighbourhood, request
from tests.judges.x402_buyer import Buyer, Payload, encoded, new_key


@pytest.fixture(scope="module")
def place() -> Iterator[Neighbourhood]:
    with neighbourhood() as found:
        yield found


@pytest.fixture(scope="module")
def service(place: Neighbourhood) -> Iterator[Service]:
    with place.running("endings", SETTLE_TIMEOUT="1") as running:
        yield running


@pytest.fixture
def shop(place: Neighbourhood, service: Service) -> Iterator[Buyer]:
    place.facilitator.reset()
    with buyer(service) as shop:
        yield shop
    place.facilitator.reset()


def leave(service: Service, place: Neighbourhood, key: str, payload: Payload, *, rudely: bool) -> None:
    """Send a purchase on a socket of its own, and close that once the settle call is under way."""
    lines = (HOST, JSON, f"Idempotency-Key: {key}", f"PAYMENT-SIGNATURE: {encoded(payload)}")
    place.facilitator.settling.clear()
    with service.connect() as connection:
        connection.sendall(request(*lines, body=BODY))
        assert place.facilitator.settling.wait(10)
        if rudely:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def insist(shop: Buyer, key: str, payload: Payload) -> httpx.Response:
    """Resend until the payment is no longer in progress."""
    give_up = time.monotonic() + 10
    while (answer := shop.post(key, payload)).status_code == 409 and answer.json()["code"] == "PAYMENT_IN_PROGRESS":
        assert time.monotonic() < give_up
        time.sleep(0.02)
    return answer


@pytest.mark.parametrize("rudely", [False, True], ids=["closes", "resets"])
def test_a_caller_that_leaves_mid_settle_gets_its_answer_on_resend(
    place: Neighbourhood, service: Service, shop: Buyer, rudely: bool
) -> None:
    key = new_key()
    payload = shop.sign(key)
    place.facilitator.set(Fault.LATE)
    leave(service, place, key, payload, rudely=rudely)
    answer = insist(shop, key, payload)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
    assert (place.facilitator.attempts.total(), place.facilitator.moves.total()) == (1, 1)
    assert not [line for line in service.log_lines() if line["level"] in {"error", "critical"}]


def test_a_service_that_ends_while_nobody_waits_any_more_leaves_a_row_that_replays(
    place: Neighbourhood, service: Service, shop: Buyer
) -> None:
    key = new_key()
    payload = shop.sign(key)
    place.facilitator.set(Fault.LATE)
    leave(service, place, key, payload, rudely=True)
    service.end()
    place.facilitator.set(Fault.NONE)
    service.start()
    answer = shop.post(key, payload)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
    assert (place.facilitator.attempts.total(), place.facilitator.moves.total()) == (1, 1)


@pytest.mark.parametrize(
    "signals",
    [(SIGINT,), (SIGINT, SIGINT), (SIGTERM, SIGINT), (SIGINT, SIGTERM, SIGINT, SIGINT)],
    ids=lambda signals: "-".join(one.name for one in signals),
)
def test_however_often_it_is_interrupted_a_service_answers_the_payment_under_way(
    place: Neighbourhood, shop: Buyer, service: Service, signals: tuple[Signals, ...]
) -> None:
    key = new_key()
    payload = shop.sign(key)
    place.facilitator.set(Fault.LATE)
    with service.connect() as idle, ThreadPoolExecutor(1) as thread:
        sent = thread.submit(shop.post, key, payload)
        assert place.facilitator.settling.wait(10)
        for one in signals:
            os.kill(service.pid, one)
            time.sleep(0.05)
        answer = sent.result()
        assert idle.recv(1) == b""
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    code = place.processes._running["endings"].wait(10)
    place.facilitator.reset()
    service.end()
    service.start()
    again = shop.post(key, payload)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert code == (-SIGTERM if signals[0] is SIGTERM else 130)
    assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize("fault", [Fault.LATE, Fault.HANG_AFTER, Fault.HANG_BEFORE])
def test_a_service_that_ends_mid_settle_answers_first_and_says_the_same_afterwards(
    place: Neighbourhood, service: Service, shop: Buyer, fault: Fault
) -> None:
    key = new_key()
    payload, other = shop.sign(key), shop.sign(key)
    place.facilitator.set(fault)
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(shop.post, key, payload)
        assert place.facilitator.settling.wait(10)
        service.end()
        first = sent.result()
    place.facilitator.reset()
    service.start()
    again = shop.post(key, payload)
    assert again.status_code == first.status_code == (200 if fault is Fault.LATE else 409)
    if first.status_code == 200:
        assert (again.content, again.headers["payment-response"]) == (first.content, first.headers["payment-response"])
    else:
        assert first.json()["code"] == again.json()["code"] == shop.post(key, other).json()["code"]
        assert again.json()["code"] == "PAYMENT_UNCERTAIN"
    # The facilitator, well again, was not asked once more.
    assert place.facilitator.attempts.total() == 0
