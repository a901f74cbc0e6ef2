"""Buyers over both protocols who go on buying, and send the identical request again until it is answered."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import httpx

from ranking_evaluate import evaluate
from ranking_evaluate.cli.exchange import ExchangeError, Reply, exchange, read_receipt
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import Mandate, PayError
from ranking_evaluate.release import VERSION
from ranking_evaluate.sandbox.funded import FundedProtocol

OPERATION: Final = "ranking-evaluate"
PRICE: Final = 10_000
BODY: Final = b'{"queries":[{"id":"q","retrieved":["b","a"],"judgments":[{"id":"a","grade":3},{"id":"b","grade":1}]}]}'
ANSWER: Final = evaluate(OPERATION, BODY)
NEXT_VERSION: Final = "99.0.0"
NEXT_ANSWER: Final = ANSWER.replace(VERSION.encode(), NEXT_VERSION.encode())
"""What the release after this one sells."""

OF_EACH: Final = 3
"""Buyers over each protocol."""
PAUSE: Final = 0.6
"""Seconds between two purchases of one buyer: together they stay below what the proxy lets through from one address."""
PATIENCE: Final = 120.0
"""Seconds for which one purchase is asked for again."""

LOST: Final = "lost"
"""What is counted where no answer came."""
SENT_AGAIN: Final = {LOST, "409 PAYMENT_IN_PROGRESS", "409 PAYMENT_UNCERTAIN", "429 RATE_LIMITED"}


@dataclass(slots=True)
class Purchase:
    """One key: how it ended, `200` or the last answer, the transaction of its receipt, and what was signed for it."""

    protocol: str
    key: str
    ended: str = ""
    sends: int = 0
    transaction: str = ""
    credential: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What each of its requests has, once it was signed."""
        return {"Content-Type": "application/json", "Idempotency-Key": self.key, **self.credential}

    @property
    def path(self) -> str:
        """Where it is bought."""
        return f"/v1/{self.protocol}/{OPERATION}"


@dataclass
class Seen:
    """What callers saw during one step."""

    answers: Counter[str] = field(default_factory=Counter)
    purchases: list[Purchase] = field(default_factory=list)


class Crowd:
    """A context manager: within it buyers live, and buy between `begin` and `end`."""

    def __init__(self, protocols: Sequence[FundedProtocol], origin: str) -> None:
        self._origin = origin
        self._over = threading.Event()
        self._change = threading.Condition()
        self._is_open = False
        self._in_hand = 0
        self._seen = Seen()
        self._threads = [
            threading.Thread(target=self._live, args=(funded,), daemon=True)
            for funded in protocols
            for _ in range(OF_EACH)
        ]

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def begin(self) -> Seen:
        """Let them buy, and return what they will have seen by `end`."""
        with self._change:
            self._seen, self._is_open = Seen(), True
            self._change.notify_all()
        return self._seen

    def end(self) -> None:
        """Begin no more purchases, and wait until those that began have ended."""
        with self._change:
            self._is_open = False
            assert self._change.wait_for(lambda: self._in_hand == 0, PATIENCE + 30), "a buyer does not end"

    def _live(self, funded: FundedProtocol) -> None:
        with httpx.Client(trust_env=False, timeout=httpx.Timeout(60, connect=5)) as client:
            while not self._over.is_set():
                with self._change:
                    if not self._change.wait_for(lambda: self._is_open, 0.2):
                        continue
                    self._in_hand += 1
                    purchase = Purchase(funded.protocol, f"drill_{secrets.token_hex(12)}")
                    self._seen.purchases.append(purchase)
                try:
                    self._buy(client, funded, purchase)
                except Exception as error:  # noqa: BLE001 -- Whatever it is, the purchase ended with it, and the table says so.
                    purchase.ended = f"{type(error).__name__}: {error}"
                finally:
                    with self._change:
                        self._in_hand -= 1
                        self._change.notify_all()
                self._over.wait(PAUSE)

    def _buy(self, client: httpx.Client, funded: FundedProtocol, purchase: Purchase) -> None:
        payer = PAYERS[funded.protocol]
        price = Decimal(PRICE).scaleb(-funded.decimals)
        mandate = Mandate(
            wallet_key=funded.payer.key, key=purchase.key, max_amount=price, asset=funded.asset, rpc_url=funded.rpc
        )
        challenge = self._ask(client, purchase)
        if challenge is None:
            return
        if challenge.status != 402:
            purchase.ended = f"no terms: {named(challenge)}"
            return
        try:
            signed = payer.sign(challenge.whole, mandate)
        except PayError as error:
            purchase.ended = f"not signed: {error}"
            return
        purchase.credential = {signed.header: signed.value}
        reply = self._ask(client, purchase)
        if reply is None:
            return
        purchase.ended = named(reply)
        if reply.status == 200:
            receipt = payer.facts(read_receipt(reply.response.headers.get(payer.wire.receipt_header, "")))
            purchase.transaction = receipt.transaction
            if reply.body not in {ANSWER, NEXT_ANSWER}:
                purchase.ended = "200 with other bytes"

    def _ask(self, client: httpx.Client, purchase: Purchase) -> Reply | None:
        """Send one request, identically, until it is answered; None, and its end, where that took too long."""
        until = time.monotonic() + PATIENCE
        while True:
            purchase.sends += 1
            try:
                reply = exchange(client, "POST", self._origin + purchase.path, purchase.headers, BODY)
                answer, pause = named(reply), reply.pause
            except ExchangeError:
                answer, pause = LOST, 1.0
            with self._change:
                self._seen.answers[answer] += 1
            if answer not in SENT_AGAIN and not answer.startswith("503"):
                return reply
            if time.monotonic() + pause > until:
                purchase.ended = f"given up after {answer}"
                return None
            time.sleep(pause)


def named(reply: Reply) -> str:
    """Return the status and the code of an answer; one whose body broke off is lost."""
    if reply.body is None:
        return LOST
    code = reply.problem.get("code", "") if reply.status != 200 else ""
    return f"{reply.status} {code}".strip()
