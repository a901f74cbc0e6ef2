"""What the drill breaks: each is a context manager that breaks something, and mends it at its end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import psycopg

from ranking_evaluate.cli.payers import PAYERS
from tests.drill.buyers import ANSWER, BODY, Purchase, Seen
from tests.drill.shop import REQUEST_RATE, Shop
from tests.expensive import LARGE_SALE
from tests.faults.facilitator import Fault
from tests.hostile.service import Service

SETTLING_SECONDS: Final = 20.0
"""Seconds within which some buyer pays over x402."""
CHALLENGE_SECONDS: Final = 30.0
"""Seconds after which no challenge of the old release can be answered: those of the sandbox last for 25."""
FLOOD_PAUSE: Final = 0.015
SCRAPED_SECONDS: Final = 4.0
"""Seconds after which Prometheus has seen a replica that was just started."""
LOCKED, FREE = 1.2, 0.3
"""Seconds for which a table is locked, and then free."""
BUILD: Final = (sys.executable, Path(__file__).with_name("other_build.py"))
PREVIOUS_ORIGIN: Final = "https://previous.rank.example.org"


@contextmanager
def nothing(shop: Shop, seen: Seen) -> Iterator[None]:
    yield


@contextmanager
def rolling_restart(shop: Shop, seen: Seen) -> Iterator[None]:
    for replica in shop.replicas:
        shop.restart(replica)
        time.sleep(1)
    yield


def while_settling(shop: Shop) -> None:
    """Return in the middle of a settlement over x402."""
    shop.facilitator.set(Fault.LATE)
    shop.facilitator.settling.clear()
    assert shop.facilitator.settling.wait(SETTLING_SECONDS), "nobody paid over x402"


@contextmanager
def kill(shop: Shop, seen: Seen) -> Iterator[None]:
    while_settling(shop)
    shop.replicas[0].end(kill=True)
    shop.facilitator.set(Fault.NONE)
    yield
    shop.replicas[0].start()


@contextmanager
def postgres_gone(shop: Shop, seen: Seen) -> Iterator[None]:
    """Take the database away between a payment and its record."""
    while_settling(shop)
    shop.postgres.stop()
    shop.facilitator.set(Fault.NONE)
    yield
    shop.postgres.start()


@contextmanager
def postgres_takes_no_writes(shop: Shop, seen: Seen) -> Iterator[None]:
    """As with a full disk: it can be read, and every write fails."""
    read_only(shop, "on")
    yield
    read_only(shop, "off")


def read_only(shop: Shop, value: str) -> None:
    options = "-c default_transaction_read_only=off"
    with psycopg.connect(shop.postgres.url(), autocommit=True, options=options) as db:
        db.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        db.execute("SELECT pg_reload_conf()")


@contextmanager
def postgres_slow(shop: Shop, seen: Seen) -> Iterator[None]:
    """Somebody else locks the attempts again and again."""
    over = threading.Event()

    def lock() -> None:
        with psycopg.connect(shop.replicas[0].environment["RANKING_EVALUATE_DATABASE_URL"]) as db:
            while not over.wait(FREE):
                db.execute("LOCK TABLE ranking_evaluate.attempts IN ACCESS EXCLUSIVE MODE")
                over.wait(LOCKED)
                db.rollback()

    locking = threading.Thread(target=lock)
    locking.start()
    yield
    over.set()
    locking.join()


@contextmanager
def redis_gone(shop: Shop, seen: Seen) -> Iterator[None]:
    shop.redis.stop()
    yield
    shop.redis.start()


@contextmanager
def facilitator(shop: Shop, fault: Fault) -> Iterator[None]:
    shop.facilitator.set(fault)
    yield
    shop.facilitator.set(Fault.NONE)


@contextmanager
def clock_off(shop: Shop, seen: Seen) -> Iterator[None]:
    """The facilitator's clock is 90 s ahead of ours, by the Date of its answers."""
    shop.facilitator.clock_ahead = 90
    yield
    shop.facilitator.clock_ahead = 0


@contextmanager
def flood(shop: Shop, seen: Seen) -> Iterator[None]:
    """One client, with an address of its own, asks for far more than its rate."""
    over = threading.Event()

    def ask(replica: Service) -> None:
        with httpx.Client(trust_env=False, headers={"X-Forwarded-For": "203.0.113.9"}) as client:
            for number in range(10**6):
                with contextlib.suppress(httpx.TransportError):
                    client.get(f"{replica.origin}/v1/attempts")
                if over.wait(0 if number < REQUEST_RATE // 2 else FLOOD_PAUSE):
                    return

    threads = [threading.Thread(target=ask, args=(replica,)) for replica in shop.replicas]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()


@contextmanager
def worker_killed(shop: Shop, seen: Seen) -> Iterator[None]:
    """A worker process dies while it evaluates."""
    replica = shop.replicas[0]
    url = f"{replica.origin}/preflight?validate=lexical-retrieval"
    headers = {"Content-Type": "application/json"}

    def ask() -> httpx.Response:
        return httpx.post(url, content=LARGE_SALE, headers=headers, trust_env=False, timeout=60)

    assert ask().status_code == 200
    worker = int(Path(f"/proc/{replica.pid}/task/{replica.pid}/children").read_text().split()[0])
    os.kill(worker, signal.SIGSTOP)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(ask)
        time.sleep(1)
        os.kill(worker, signal.SIGKILL)
        lost = asked.result()
    assert (lost.status_code, lost.json()["code"]) == (503, "OVERLOADED"), lost.text
    assert ask().status_code == 200
    yield


@contextmanager
def other_bytes(shop: Shop, seen: Seen) -> Iterator[None]:
    """A replica is of another build, under the same version; nobody is sent to it but who bought before."""
    replica, other = shop.replicas
    bought = sold_so_far(seen)
    shop.send_callers_to(other)
    shop.stop(replica)
    ours, replica.program = replica.program, (*BUILD, "other-bytes")
    replica.start()
    time.sleep(SCRAPED_SECONDS)
    for purchase in bought:
        refused = resend(purchase, replica.origin)
        assert refused.status_code == 503, f"a replay has other bytes: {refused.status_code}"
    yield
    for purchase in bought:
        replayed = resend(purchase, shop.origin)
        assert (replayed.status_code, replayed.content) == (200, ANSWER), replayed.text
    shop.stop(replica)
    replica.program = ours
    replica.start()
    shop.send_callers_to(replica, other)


@contextmanager
def next_release(shop: Shop, seen: Seen) -> Iterator[None]:
    """As docs/operate.md says under "Upgrade"; its step 1 is the sandbox's setting already."""
    old, other = shop.replicas
    bought = sold_so_far(seen)
    environment = {**old.environment, "RANKING_EVALUATE_PREVIOUS_ORIGIN": PREVIOUS_ORIGIN}
    new = [Service(shop.processes, f"next-{n}", environment, program=(*BUILD, "next-release")) for n in (1, 2)]
    for replica in new:
        replica.start()
    shop.send_callers_to(old, other, terms=False)
    time.sleep(CHALLENGE_SECONDS)
    shop.send_callers_to(*new)
    shop.stop(other)
    shop.stop(old)
    ends = {"RANKING_EVALUATE_PAYMENT_RATE": "0/day", "RANKING_EVALUATE_PUBLIC_ORIGIN": PREVIOUS_ORIGIN}
    previous = Service(shop.processes, "previous", {**old.environment, **ends})
    previous.start(path="/healthz")
    yield
    shop.replicas = new
    for purchase in bought:
        replayed = resend(purchase, previous.origin)
        assert (replayed.status_code, replayed.content) == (200, ANSWER), replayed.text
        told = resend(purchase, shop.origin)
        assert (told.status_code, told.json()["cause"]) == (409, "release"), told.text
        assert PREVIOUS_ORIGIN in told.text
    refused = httpx.post(previous.origin + bought[0].path, content=BODY, headers=UNPAID, trust_env=False)
    assert refused.status_code == 503, "the old release goes on selling"
    previous.end()


UNPAID: Final = {"Content-Type": "application/json", "Idempotency-Key": "drill_never_paid_for"}


def sold_so_far(seen: Seen) -> list[Purchase]:
    """Return one purchase over each protocol that ended with its answer, once there is one."""
    until = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < until:
        found = {each.protocol: each for each in list(seen.purchases) if each.ended == "200"}
        if len(found) == len(PAYERS):
            return list(found.values())
        time.sleep(0.1)
    raise AssertionError("nobody bought")


def resend(purchase: Purchase, origin: str) -> httpx.Response:
    return httpx.post(origin + purchase.path, content=BODY, headers=purchase.headers, trust_env=False)
