"""Power cuts: the real walk on the real store, on a disk that loses its power at a random write, again and again.

One trial is one machine. Callers buy under a few keys; the provider settles, refuses, lies or cannot be reached; an
operator decides by what the ledger says; the power goes, and with it what was written and not synced, or a part of it.
Then the machine comes back with what the disk holds, everybody sends everything again, and in the end all leases are
over, the operator decides what is uncertain, and what was said before the cut is held against what is said now.

    python -m tests.faults.trials --power 1000
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw
import pytest
import structlog

from ranking_evaluate.attempts import sqlite, writer
from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.events import (
    DURABLE,
    Event,
    OperatorRelease,
    OperatorSettle,
    RecordNotSent,
    RecordRefused,
    RecordSettled,
    RecordSpent,
    Submit,
)
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.errors import ServiceError
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.operations.registry import find
from ranking_evaluate.order import Order
from ranking_evaluate.payments.protocol import (
    NotSent,
    Offer,
    Refused,
    Rejected,
    Settled,
    Settlement,
    Spent,
    Uncertain,
    Unreachable,
    Verification,
    Verified,
)
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates
from tests.fakes import FixedClock, ScriptedProtocol, Signed
from tests.faults.power import Disk

OPERATION: Final = find("ranking-evaluate")
BODY: Final = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'
PRICE: Final = OPERATION.price_base_units
KEYS: Final = 4
"""Purchases of a trial."""

STEPS: Final = 260
"""Writes and syncs within which the power goes; a trial makes some more."""

LEASES: Final = 1_000.0
VALID: Final = 100_000.0
"""Seconds for which what callers sign is good: longer than all leases of a trial."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What somebody was told while there was power."""

    signed: Signed | None
    key: str
    code: str
    content: bytes = b""


@dataclass
class Ledger:
    """What really happened to the money, whoever believes what.

    Attributes:
        moved: The key under which each proof moved.
        calls: How often each proof was sent to be settled.
        said: What the provider said of a proof, at verify or settle.
    """

    moved: dict[str, list[str]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    said: dict[str, str] = field(default_factory=dict)

    def move(self, proof: str, key: str) -> None:
        """Move the money of a proof; this chain does it as often as it is told to."""
        self.moved.setdefault(proof, []).append(key)


@dataclass
class Report:
    """What was done, and what was found."""

    trials: int = 0
    cuts: int = 0
    heard: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    sold: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "trials": self.trials,
            "cuts": self.cuts,
            "answers": dict(self.heard.most_common()),
            "moves": self.moves,
            "baseUnitsSold": self.sold,
            "violations": len(self.violations),
            "firstViolations": self.violations[:20],
            "seconds": round(self.seconds, 1),
        }


OUTCOMES: Final = ("settled", "settled", "settled", "refused", "not sent", "lost", "lost, moved")
"""What settle calls come to."""


class Machine:
    """One machine through its cuts: its disk, its service, its callers, its operator, its provider."""

    def __init__(self, seed: int, folder: Path, outcomes: Sequence[str]) -> None:
        self.outcomes = outcomes
        self.random = random.Random(seed)
        self.seed = seed
        self.folder = folder
        self.lives = 0
        self.clock = FixedClock()
        self.ledger = Ledger()
        self.heard: list[Heard] = []
        self.decided: dict[str, State] = {}
        self.released: set[str] = set()
        self.signed: dict[str, list[Signed]] = {}
        self.found: list[str] = []
        self.is_calm = False
        self.disk = Disk()
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    # The service.

    def start(self) -> None:
        """Give the machine a disk with what the last one kept."""
        place = self.folder / f"life-{self.lives}"
        place.mkdir()
        if self.lives:
            self.disk.survivors(self.random, place)
        self.lives += 1
        self.disk = Disk()
        self.store = SqliteStore(place / "attempts.db", self.clock, vfs=self.disk.name)
        self.protocol = ScriptedProtocol()
        self.protocol.verifier = self.verify
        self.protocol.settler = self.settle
        self.walk = Purchases(
            self.store,
            Rates("memory://", None, None),
            Evaluations(1, None),
            (self.protocol.wire,),
            chains=Chains(()),
            verify_timeout=10.0,
            settle_timeout=10.0,
            clock=self.clock,
        )

    async def stop(self) -> None:
        """End the service as a loss of power does: nobody is waited for, and nothing more is written."""
        self.disk.is_dead = True
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        await self.store.close()

    def verify(self, signed: Signed) -> Verification:
        """Say what the provider says of a credential."""
        said = self.ledger.said.get(signed.proof)
        if said == "spent" or (not self.is_calm and self.random.random() < 0.08):
            # Somebody else has submitted it: the money is ours, or is not.
            if said != "spent" and signed.proof not in self.ledger.moved and self.random.random() < 0.7:
                self.ledger.move(signed.proof, signed.key)
            self.ledger.said[signed.proof] = "spent"
            return Spent("used already")
        chance = 1.0 if self.is_calm else self.random.random()
        return Rejected("a bad signature") if chance < 0.05 else Unreachable("down") if chance < 0.1 else Verified()

    def settle(self, signed: Signed, offer: Offer) -> asyncio.Future[Settlement]:
        """Make the settle call, if there is power to make it."""

        async def settle() -> Settlement:
            await asyncio.sleep(self.random.choice((0, 0, 0.001, 0.004)))
            if self.disk.is_dead:
                await asyncio.sleep(60)
            outcome = self.random.choice(self.outcomes)
            outcome = "settled" if self.is_calm else outcome
            self.ledger.said[signed.proof] = outcome
            if outcome == "not sent":
                return NotSent("no connection")
            self.ledger.calls[signed.proof] += 1
            if outcome in {"settled", "lost, moved"}:
                self.ledger.move(signed.proof, offer.key)
            await asyncio.sleep(self.random.choice((0, 0, 0.002)))
            match outcome:
                case "settled":
                    return Settled(f"receipt of {signed.proof}", transaction_of(signed.proof), "payer")
                case "refused":
                    return Refused("refused")
                case _:
                    return Uncertain("no answer")

        return asyncio.ensure_future(settle())

    # Callers and the operator.

    async def ask(self, key: str, signed: Signed | None) -> Heard | None:
        """Send a request, and remember the answer if it came."""
        order = Order(
            operation=OPERATION,
            wire=self.protocol.wire,
            protocol=self.protocol,
            key=key,
            url="http://service.test/v1/scripted/ranking-evaluate",
            body=BODY,
            headers=signed.header() if signed else {},
            client="caller",
        )
        self.asked[key] += 1
        try:
            delivery = await self.walk.buy(order)
            heard = Heard(signed, key, "200", hashlib.sha256(delivery.body).digest() + delivery.receipt.encode())
        except ServiceError as error:
            heard = Heard(signed, key, error.code)
        if self.disk.is_dead:
            return None
        self.answered[key] += 1
        self.check(heard)
        self.heard.append(heard)
        return heard

    def sign(self, key: str) -> Signed:
        """Sign a payment for a key."""
        signed = Signed(key, f"proof {self.seed} {key} {len(self.signed.get(key, ()))}", self.clock.now() + VALID)
        self.signed.setdefault(key, []).append(signed)
        return signed

    async def shop(self, key: str) -> None:
        """Buy under a key, the way one kind of caller does."""
        await asyncio.sleep(self.random.choice((0, 0.001, 0.003)))
        match self.random.choice(("patient", "patient", "copies", "rivals", "asks first")):
            case "patient":
                await self.insist(key, self.sign(key))
            case "copies":
                signed = self.sign(key)
                await asyncio.gather(*(self.ask(key, signed) for _ in range(3)))
                await self.insist(key, signed)
            case "rivals":
                await asyncio.gather(self.insist(key, self.sign(key)), self.insist(key, self.sign(key)))
            case _:
                heard = await self.ask(key, None)
                if heard is not None and heard.code == "PAYMENT_REQUIRED":
                    await self.insist(key, self.sign(key))
                await self.ask(key, None)

    async def insist(self, key: str, signed: Signed) -> None:
        """Send it until there is an answer that is one."""
        for _ in range(4):
            heard = await self.ask(key, signed)
            if heard is None or heard.code not in {"PAYMENT_IN_PROGRESS", "PAYMENT_UNAVAILABLE", "STATE_UNAVAILABLE"}:
                return
            await asyncio.sleep(0.002)

    async def operate(self) -> None:
        """Decide what is uncertain by the ledger; what the operator was told must stay."""
        for row in await self.store.recent(State.UNCERTAIN):
            landed = row.key in self.ledger.moved.get(row.payment_id, ())
            decision: OperatorSettle | OperatorRelease
            if landed:
                decision = OperatorSettle(f"receipt of {row.payment_id}", transaction_of(row.payment_id), "ada", "seen")
            else:
                decision = OperatorRelease("ada", "not seen")
            # From here on a caller may be told so, heard or not.
            if not landed:
                self.released.add(row.payment_id)
            step = await self.store.move(row.claim, decision)
            if not self.disk.is_dead and step.owned and step.attempt is not None:
                self.decided[row.claim] = step.attempt.state

    async def operate_meanwhile(self) -> None:
        """Let the operator look now and then."""
        with suppress(StoreUnavailable):
            while True:
                await asyncio.sleep(self.random.uniform(0, 0.02))
                await self.operate()

    # What must hold.

    def check(self, heard: Heard) -> None:
        """Hold one answer against what was said before, and against the ledger."""
        key, signed = heard.key, heard.signed
        for before in self.heard:
            if before.key == key and before.signed == signed and before.code == "200" and signed is not None:
                if (heard.code, heard.content) != ("200", before.content):
                    self.violation(f"I3: {key} was sold, and its identical resend is answered {heard.code}")
                return
        proofs = {each.proof for each in self.signed.get(key, ())}
        moved = {proof for proof in proofs if key in self.ledger.moved.get(proof, ())}
        ours = {proof for proof in moved if self.ledger.calls[proof]}
        challenged = heard.code in {"PAYMENT_REQUIRED", "PAYMENT_REJECTED"}
        if challenged and ours:
            self.violation(f"I8: {key} is asked to pay after its money moved ({heard.code})")
        doubted = [before for before in self.heard if before.key == key and before.code == "PAYMENT_UNCERTAIN"]
        if challenged and doubted and not proofs & self.released:
            self.violation(f"I8: {key} was uncertain, nobody decided, and it is asked to pay ({heard.code})")
        if heard.code == "PAYMENT_UNCERTAIN" and len(proofs) == 1 and self.asked[key] == self.answered[key]:
            # One credential, and nothing was on its way when the power went: what was heard last is all there is.
            [proof] = proofs
            told = {before.code for before in self.heard if before.key == key and before.signed is not None}
            if self.ledger.said.get(proof) == "refused" and "PAYMENT_REJECTED" in told:
                self.violation(f"told: {key} was refused for certain, and now it is uncertain")
            if self.ledger.said.get(proof) == "not sent" and told <= {"PAYMENT_UNAVAILABLE", "PAYMENT_IN_PROGRESS"}:
                self.violation(f"told: {key} was not sent for certain, and now it is uncertain")

    def violation(self, text: str) -> None:
        """Write down what must not be."""
        self.found.append(f"{text} (seed {self.seed})")

    # One trial.

    async def run(self) -> None:
        """Live through one or two cuts, and come to an end in peace."""
        keys = [f"purchase-{self.seed % 10**6:06d}-{n}-abc" for n in range(KEYS)]
        for _ in range(self.random.choice((1, 1, 2))):
            await self.live(keys)
        self.start()
        await self.store.open()
        self.look_at_the_file()
        await self.look_at_the_decisions()
        await self.resend(keys)
        self.clock.advance(LEASES)
        self.is_calm = True
        await self.resend(keys)
        await self.operate()
        await self.resend(keys)
        await self.operate()
        await self.judge(keys)
        self.disk.is_dead = True
        await self.stop()

    async def live(self, keys: list[str]) -> None:
        """Sell until the power goes."""
        self.start()
        if self.random.random() < 0.1:
            self.disk.cut_at = self.random.randint(1, 60)  # While the file is made, or taken up again.
        try:
            await self.store.open()
            if self.disk.cut_at is None:
                self.disk.cut_at = self.disk.steps + self.random.randint(1, STEPS)
            tasks = [asyncio.ensure_future(self.shop(key)) for key in keys]
            operator = asyncio.ensure_future(self.operate_meanwhile())
            while not (self.disk.is_dead or all(task.done() for task in tasks)):  # noqa: ASYNC110 - A disk has no event.
                await asyncio.sleep(0.0005)
            await self.stop()
            for task in (*tasks, operator):
                if not task.cancelled():
                    task.result()
        except StoreUnavailable:
            if not self.disk.is_dead:
                raise
            await self.stop()

    def look_at_the_file(self) -> None:
        """The file that came through is in order."""
        with closing(apsw.Connection(str(self.folder / f"life-{self.lives - 1}" / "attempts.db"))) as db:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            if db.pragma("integrity_check") != "ok":
                self.violation("file: it is damaged")

    async def look_at_the_decisions(self) -> None:
        """What the operator was told is still so."""
        for claim, state in self.decided.items():
            row = await self.store.find(claim)
            if row is None or row.state not in {state, State.SETTLED}:
                self.violation(f"told: the operator decided {state}, and now it is {row and row.state}")

    async def resend(self, keys: list[str]) -> None:
        """Send everything again, and ask without a credential too."""
        for key in keys:
            await self.ask(key, None)
            for signed in self.signed.get(key, ()):
                await self.ask(key, signed)
                await asyncio.sleep(0.005)

    async def judge(self, keys: list[str]) -> None:
        """Hold the end of the trial against the ledger."""
        for proof, times in self.ledger.calls.items():
            if times > 1:
                self.violation(f"I5: {proof} was sent to be settled {times} times")
        moves = [(proof, key) for proof, under in self.ledger.moved.items() for key in under]
        for proof, count in Counter(proof for proof, _ in moves).items():
            if count > 1:
                self.violation(f"I1: {proof} moved {count} times")
        rows = {row.payment_id: row for row in await self.store.recent(limit=1000)}
        for proof, key in moves:
            row = rows.get(proof)
            if row is None and not self.ledger.calls[proof]:
                # A third party's move, at a moment that no record of ours outlived (docs/lifecycle.md, section 10).
                continue
            if row is None or row.state is not State.SETTLED:
                self.violation(f"lost receipt: {key} paid with {proof}, and its attempt is {row and row.state}")
        for key in keys:
            paid = [proof for proof, under in moves if under == key and self.ledger.calls[proof]]
            if len(paid) > 1 and not set(paid) & self.released:
                self.violation(f"I2: {key} was paid {len(paid)} times")
        sold = {sale.transaction: sale.amount for sale in await self.store.sales()}
        expected = {transaction_of(proof): PRICE for proof, _ in moves if proof in rows}
        if sold != expected:
            self.violation(f"sales: the books say {sum(sold.values())}, the ledger {sum(expected.values())}")
        self.sold = sum(sold.values())


def transaction_of(proof: str) -> str:
    """Return the hash of the transaction that moves a proof's money."""
    return "0x" + hashlib.sha256(proof.encode()).hexdigest()


def _lazy(*events: type[Event]) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a mistake: these events do not wait for the disk."""
    durable = tuple(event for event in DURABLE if event not in events)
    return lambda patch: patch.setattr(sqlite, "DURABLE", durable)


def _never_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "SYNCHRONOUS", dict.fromkeys((True, False), "PRAGMA synchronous = OFF"))


SABOTAGES: Final[dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...]]]] = {
    "SUBMIT is lazy": (_lazy(Submit), ("I1", "I5", "I8", "lost receipt")),
    "SETTLED is lazy": (_lazy(RecordSettled), ("I3",)),
    "REFUSED is lazy": (_lazy(RecordRefused), ("told",)),
    "NOT SENT is lazy": (_lazy(RecordNotSent), ("told",)),
    "UNCERTAIN after verify is lazy": (_lazy(RecordSpent), ("I8",)),
    "an operator's decision is lazy": (_lazy(OperatorSettle, OperatorRelease), ("told", "I3")),
    "nothing is synced": (_never_sync, ("I1", "I3", "I5", "I8", "told", "file", "lost receipt")),
}
"""Broken builds: what each does, and how the violations begin that it may show itself by."""


def run(trials: int, seed: int, *, until_found: bool = False, outcomes: Sequence[str] = OUTCOMES) -> Report:
    """Run trials; with `until_found` only until one of them finds something.

    Args:
        trials: How many.
        seed: That of the first one; the next ones count on.
        until_found: Whether the first violation ends them.
        outcomes: What settle calls come to, each as often as it stands here.
    """
    began, report = time.monotonic(), Report()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        for number in range(trials):
            with tempfile.TemporaryDirectory(prefix="power-") as folder:
                machine = Machine(seed + number, Path(folder), outcomes)
                asyncio.run(machine.run())
            report.trials += 1
            report.cuts += machine.lives - 1
            report.heard.update(heard.code for heard in machine.heard)
            report.moves += sum(len(keys) for keys in machine.ledger.moved.values())
            report.sold += machine.sold
            report.violations += machine.found
            if until_found and report.violations:
                break
    finally:
        structlog.reset_defaults()
    report.seconds = time.monotonic() - began
    return report
