"""Rates, caps and a store that cannot be written: a refused request never costs a payment."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.faults.facilitator import Fault
from tests.hostile.service import BODY, GOOD, HOST, JSON, PATH, Neighbourhood, Service, buyer, request
from tests.judges.x402_buyer import new_key
from tests.redis import RedisServer

GET = {"method": "GET", "body": b""}


@pytest.fixture(autouse=True)
def no_fault(place: Neighbourhood) -> Iterator[None]:
    place.facilitator.reset()
    yield
    place.facilitator.reset()


def test_over_the_request_rate_everything_gets_429_and_nothing_changes(place: Neighbourhood) -> None:
    with place.running("over-rate", REQUEST_RATE="12/minute") as service, buyer(service) as shopper:
        key = new_key()
        payload = shopper.sign(key)
        assert shopper.post(key, payload).status_code == 200
        before = shopper.attempt(key)
        for _ in range(9):
            assert shopper.post(key, payload).status_code == 200
        moves, verifications = dict(place.facilitator.moves), dict(place.facilitator.verifications)
        refused = [shopper.post(key, payload), shopper.post(new_key()), shopper.post(key, body=b"{")]
        refused += [
            shopper.client.get(path, headers={"Idempotency-Key": key})
            for path in ("/", PATH, "/v1/attempts", "/preflight", "/llms.txt", "/openapi.json", "/.well-known/x402")
        ]
        for answer in refused:
            assert (answer.status_code, answer.json()["code"]) == (429, "RATE_LIMITED")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.json()["retryAfter"] == int(answer.headers["retry-after"])
        # Whoever watches over the service is not a caller.
        assert shopper.client.get("/healthz").status_code == shopper.client.get("/readyz").status_code == 200
        assert (place.facilitator.moves, place.facilitator.verifications) == (moves, verifications)
        service.end()
        again = place.service("over-rate")
        again.start()
        with buyer(again) as later:
            assert later.attempt(key) == before
            assert later.post(key, payload).status_code == 200


def test_a_burst_of_payments_gets_429_and_loses_no_identity(place: Neighbourhood) -> None:
    with place.running("burst", PAYMENT_RATE="3/3second") as service, buyer(service) as shopper:
        purchases = [(key, shopper.sign(key)) for key in (new_key() for _ in range(6))]
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda purchase: shopper.post(*purchase), purchases))
        paid = [purchase for purchase, answer in zip(purchases, answers, strict=True) if answer.status_code == 200]
        refused = [(one, answer) for one, answer in zip(purchases, answers, strict=True) if answer.status_code != 200]
        assert len(paid) == 3
        for (key, _), answer in refused:
            assert (answer.status_code, answer.json()["code"]) == (429, "RATE_LIMITED")
            assert 1 <= int(answer.headers["retry-after"]) <= 3
            assert shopper.attempt(key) is None, "a refused attempt leaves nothing behind"
        for purchase in paid * 5:
            replay = shopper.post(*purchase)
            assert (replay.status_code, replay.headers["idempotent-replayed"]) == (200, "true")
        time.sleep(3.1)
        for purchase, _ in refused:
            assert shopper.post(*purchase).status_code == 200
        assert set(place.facilitator.moves.values()) == {1}
        assert len(place.facilitator.moves) == 6


def test_a_payment_that_settles_while_its_client_gets_429_keeps_its_identity(place: Neighbourhood) -> None:
    with place.running("limited", REQUEST_RATE="4/2second") as service, buyer(service) as shopper:
        key = new_key()
        payload = shopper.sign(key)
        place.facilitator.set(Fault.LATE)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(shopper.post, key, payload)
            assert place.facilitator.settling.wait(5)
            codes = [shopper.post(key, payload).status_code for _ in range(4)]
            assert codes[-1] == 429
            assert set(codes) <= {409, 429}
            assert first.result().status_code == 200
        time.sleep(2.1)
        answer = shopper.post(key, payload)
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
        assert list(place.facilitator.moves.values()) == [1]


def test_too_many_in_flight_is_503_and_passes(place: Neighbourhood) -> None:
    with place.running("crowd", MAX_IN_FLIGHT="1") as service:
        with service.connect() as slow:
            slow.sendall(request(*GOOD, "Content-Length: 10", body=b"{"))
            time.sleep(0.2)
            answer = service.send(request(*GOOD))
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "OVERLOADED", "1")
            assert service.send(request(HOST, path="/healthz", **GET)).status == 200  # type: ignore[arg-type]
        time.sleep(0.2)
        assert service.send(request(*GOOD)).status == 402


def told_apart(service: Service, *forwarded: str) -> list[int | None]:
    """Send one request for each of these X-Forwarded-For lines."""
    return [service.send(request(HOST, JSON, f"X-Forwarded-For: {line}")).status for line in forwarded]


def test_nobody_chooses_whom_it_is_counted_as(place: Neighbourhood) -> None:
    with place.running("direct", REQUEST_RATE="2/minute") as service:
        assert told_apart(service, "192.0.2.1", "192.0.2.2", "192.0.2.3") == [400, 400, 429]
    with place.running("behind", REQUEST_RATE="2/minute", TRUSTED_PROXIES="127.0.0.1") as service:
        assert told_apart(service, "192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1") == [400, 400, 400, 429]
        # Only what the proxy itself has seen counts: the last address.
        assert told_apart(service, "198.51.100.1, 192.0.2.1", "192.0.2.1, 192.0.2.3") == [429, 400]


def test_two_replicas_share_their_limits_and_live_on_without_redis(place: Neighbourhood) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        settings = {
            "REQUEST_RATE": "20/minute",
            "PAYMENT_RATE": "2/minute",
            "RATE_STORAGE_URL": redis.url,
            "DATABASE_URL": f"sqlite:///{place.processes.directory}/shared.db",
        }
        replicas = [stack.enter_context(place.running(f"replica-{number}", **settings)) for number in range(2)]
        shoppers = [stack.enter_context(buyer(replica)) for replica in replicas]
        purchases = [(key, shoppers[0].sign(key)) for key in (new_key() for _ in range(3))]
        codes = [shoppers[number % 2].post(*purchase).status_code for number, purchase in enumerate(purchases)]
        assert codes == [200, 200, 429], "the payment rate is shared"
        # Six requests were made; whichever replica is asked, fourteen more pass.
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda number: shoppers[number % 2].post(*purchases[0]), range(24)))
        assert sorted(answer.status_code for answer in answers) == [200] * 14 + [429] * 10
        redis.stop()
        started = time.monotonic()
        assert [shopper.post(*purchases[2]).status_code for shopper in shoppers] == [200, 200]
        assert time.monotonic() - started < 2
        assert place.facilitator.moves[purchases[2][1]["payload"]["authorization"]["nonce"]] == 1
        for replica in replicas:
            lines = [line for line in replica.log_lines() if line["level"] == "error"]
            assert [line["event"] for line in lines] == ["rate storage unavailable, counting alone"]
            assert replica.metrics()["ranking_evaluate_rate_storage_failures_total"] == 1


def test_a_store_that_cannot_be_written_takes_no_payment(place: Neighbourhood) -> None:
    folder = place.processes.directory / "unwritable"
    folder.mkdir()
    with place.running("unwritable", DATABASE_URL=f"sqlite:///{folder}/a.db") as service, buyer(service) as shopper:
        key = new_key()
        payload = shopper.sign(key)
        moved = folder.rename(folder.with_name("unwritable-away"))
        answer = shopper.post(key, payload)
        assert (answer.status_code, answer.json()["code"]) == (503, "STATE_UNAVAILABLE")
        assert answer.headers["retry-after"]
        assert "www-authenticate" not in answer.headers
        assert not place.facilitator.verifications
        assert not place.facilitator.attempts
        moved.rename(folder)
        assert shopper.post(key, payload).status_code == 200


def test_a_service_that_is_told_to_end_answers_the_payment_under_way(place: Neighbourhood) -> None:
    with place.running("ending") as service, buyer(service) as shopper:
        key = new_key()
        payload = shopper.sign(key)
        place.facilitator.set(Fault.LATE)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(shopper.post, key, payload)
            assert place.facilitator.settling.wait(5)
            service.end()
            assert first.result().status_code == 200
        assert "settle outcome" in [line["event"] for line in service.log_lines()]


def test_the_uncertain_are_counted_for_the_operator(place: Neighbourhood) -> None:
    with place.running("uncertain", SETTLE_TIMEOUT="1") as service, buyer(service) as shopper:
        key = new_key()
        place.facilitator.set(Fault.ERROR_AFTER)
        assert shopper.post(key, shopper.sign(key)).json()["code"] == "PAYMENT_UNCERTAIN"
        assert service.metrics()['ranking_evaluate_settlements_total{outcome="Uncertain",protocol="x402"}'] == 1
        # What is uncertain is looked for now and then; at the start it is looked for at once.
        service.end()
        service.start()
        time.sleep(0.3)
        seen = service.metrics()
        assert seen["ranking_evaluate_uncertain_attempts"] == 1
        assert 0 < seen["ranking_evaluate_uncertain_oldest_seconds"] < 60


def test_a_replica_is_asked_by_many_at_once(service: Service) -> None:
    """Thirty callers at once, each with its own connection, all get their answers."""

    async def ask() -> list[int]:
        async with httpx.AsyncClient(base_url=service.origin, trust_env=False) as client:
            headers = {"Idempotency-Key": new_key(), "Content-Type": "application/json"}
            answers = await asyncio.gather(*(client.post(PATH, content=BODY, headers=headers) for _ in range(30)))
        return [answer.status_code for answer in answers]

    assert asyncio.run(ask()) == [402] * 30
