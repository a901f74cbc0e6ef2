"""Money moves once and nobody pays again, with two processes on one database and after a process is killed."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.faults.facilitator import Fault, FaultyFacilitator
from tests.judges.conftest import Books, Buy, Serve
from tests.judges.x402_buyer import PRICE, Buyer, new_key

# The service is killed and started twice within the lease, which a busy machine needs time for.
SETTLE_TIMEOUT = "20"
LEASE_SECONDS = 20 + 10
"""How long a settling row is in progress: the settle call's deadline and a margin (docs/lifecycle.md, section 3)."""


def code(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json().get("code")


def test_killed_mid_settle_it_is_in_progress_until_the_lease_is_over_and_then_uncertain(
    serve: Serve, faulty: FaultyFacilitator, buyer_at: Buy, books: Books
) -> None:
    faulty.reset()
    server = serve("killed", X402_FACILITATOR_URL=faulty.url, SETTLE_TIMEOUT=SETTLE_TIMEOUT)
    shop = buyer_at(server.origin)
    # Two purchases: of one the money moves before the kill, of the other it never does.
    keys = [new_key(), new_key()]
    payloads = [shop.sign(key) for key in keys]
    settled_key, settled_payload = new_key(), shop.sign(keys[0])
    settled_payload["extensions"]["payment-identifier"]["info"]["id"] = settled_key
    bought = shop.post(settled_key, settled_payload)
    assert bought.status_code == 200
    faulty.reset()
    submitted: list[float] = []
    # The first hangs after it settled; its deadline would end it, so the kill comes at once.
    for key, payload, fault in zip(keys, payloads, (Fault.HANG_AFTER, Fault.HANG_BEFORE), strict=True):
        faulty.set(fault)
        faulty.settling.clear()
        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(send_and_lose, shop, key, payload)
            assert faulty.settling.wait(60)
            submitted.append(time.time())
            if fault is Fault.HANG_AFTER:
                wait_for_move(faulty)
            server.kill()
            assert sent.result() is None
        server.start()
    faulty.set(Fault.NONE)
    assert books.moved == 2 * PRICE
    assert faulty.attempts.total() == 2

    for key, payload, at in zip(keys, payloads, submitted, strict=True):
        for given in (payload, None):
            answer = shop.post(key, given)
            assert code(answer) == (409, "PAYMENT_IN_PROGRESS")
            assert int(answer.headers["retry-after"]) >= 1
        assert time.time() < at + LEASE_SECONDS - 1, "the lease was over before it was looked at"
    # What was recorded before the kill is there.
    replay = shop.post(settled_key, settled_payload)
    assert (replay.status_code, replay.content, replay.headers["idempotent-replayed"]) == (200, bought.content, "true")

    time.sleep(max(0.0, submitted[-1] + LEASE_SECONDS + 0.1 - time.time()))
    for key, payload in zip(keys, payloads, strict=True):
        fresh = shop.sign(key)
        for given in (payload, fresh, None, payload):
            answer = shop.post(key, given)
            assert code(answer) == (409, "PAYMENT_UNCERTAIN")
            assert "payment-required" not in answer.headers
        found = shop.attempt(key)
        assert found is not None
        assert found["state"] == "uncertain"
    assert faulty.attempts.total() == 2
    assert books.moved == 2 * PRICE


def test_a_service_that_is_told_to_end_mid_settle_delivers_first(
    serve: Serve, faulty: FaultyFacilitator, buyer_at: Buy, books: Books
) -> None:
    faulty.reset()
    server = serve("drained", X402_FACILITATOR_URL=faulty.url)
    shop = buyer_at(server.origin)
    key = new_key()
    payload = shop.sign(key)
    faulty.set(Fault.LATE)
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(shop.post, key, payload)
        assert faulty.settling.wait(60)
        server.end()
        assert sent.result().status_code == 200
    faulty.set(Fault.DOWN)
    server.start()
    replay = shop.post(key, payload)
    assert (replay.status_code, replay.content) == (200, sent.result().content)
    assert replay.headers["payment-response"] == sent.result().headers["payment-response"]
    faulty.reset()
    assert books.moved == PRICE


def send_and_lose(shop: Buyer, key: str, payload: object) -> httpx.Response | None:
    try:
        return shop.post(key, payload)
    except httpx.TransportError:
        return None


def wait_for_move(faulty: FaultyFacilitator) -> None:
    deadline = time.monotonic() + 10
    while not faulty.moves:
        assert time.monotonic() < deadline, "the money does not move"
        time.sleep(0.005)


def test_fifty_identical_requests_in_two_processes_settle_once(serve: Serve, buyer_at: Buy, books: Books) -> None:
    one = serve("one-of-two")
    two = serve("two-of-two", DATABASE_URL=one.environment["RANKING_EVALUATE_DATABASE_URL"])
    shops = [buyer_at(server.origin) for server in (one, two)]
    key = new_key()
    payload = shops[0].sign(key)
    # The signature is for the challenge of either process: their terms are the same.
    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(lambda number: shops[number % 2].post(key, payload), range(50)))
    said = Counter(code(answer) for answer in answers)
    assert set(said) <= {(200, None), (409, "PAYMENT_IN_PROGRESS")}
    assert said[200, None] >= 1
    bought = next(answer for answer in answers if answer.status_code == 200)
    with ThreadPoolExecutor(10) as threads:
        resent = list(threads.map(lambda number: shops[number % 2].post(key, payload), range(50)))
    for answer in resent:
        assert (answer.status_code, answer.content) == (200, bought.content)
        assert answer.headers["payment-response"] == bought.headers["payment-response"]
        assert answer.headers["idempotent-replayed"] == "true"
    first_answers = [answer for answer in answers if answer.status_code == 200]
    assert sum("idempotent-replayed" not in answer.headers for answer in first_answers) == 1
    assert books.moved == PRICE
