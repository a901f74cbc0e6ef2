"""Kill -9 trials: the real service dies in the middle of purchases, again and again, and nobody loses anything by it.

One trial is one kill. Some purchases begin, each a small plot of a caller who resends, signs afresh, relabels, leaves
or asks without paying; the provider settles, refuses, lies or falls silent; the service is killed at a random moment,
at a named point of its walk, or by the provider in the middle of the settle call; it is started again, and every plot
goes on. Then all is quiet: leases run out, an operator (with --keeper: the services themselves, by the chain) settles
or releases what is uncertain by what the ledger says, and every kind of request is asked about every key and held
against the decision table. In every fifth trial a day passes too, and on PostgreSQL it is the database that ends in
every tenth. `invariants.py` judges what was observed.

    python -m tests.faults.trials --trials 1000 --store sqlite --seed 1
    python -m tests.faults.trials --keeper --trials 1000
    python -m tests.faults.trials --power 1000
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.keeper import ROUNDS_APART
from ranking_evaluate.reconcile import DecisionRefused, Reconciler
from ranking_evaluate.settings import read_settings
from tests.fakes import Ledger
from tests.faults import power_cuts, sabotage
from tests.faults import replicas as in_process
from tests.faults.bank import (
    ASSET,
    NETWORK,
    PAYEE,
    PAYER,
    PLANNED,
    Ledgers,
    RandomFacilitator,
    proof_digest,
    transaction_of,
)
from tests.faults.callers import (
    ANSWERS,
    BODIES,
    CANARY,
    FINGERPRINTS,
    PATH,
    VALID_SECONDS,
    Plot,
    Reply,
    Signed,
    exchange,
)
from tests.faults.crashing_service import ALL_POINTS, POINTS, PROVIDER_POINTS, Strings
from tests.faults.facilitator import Fault
from tests.faults.invariants import Answer, History, violations
from tests.faults.ledger_node import FINAL_AFTER, LedgerNode
from tests.faults.lives import STRINGS, Nursery, Replicas
from tests.faults.witness import Witness
from tests.postgres import PostgresServer

PRICE: Final = 10_000
"""Base units that every purchase costs."""

PLOTS: Final = 6
"""Purchases of a trial, unless the command line says otherwise."""
PROVIDER_SECONDS: Final = 0.4
"""The service's deadlines for its provider: what hangs is over soon."""
LEASE_SECONDS: Final = 25.0
"""Longer than any lease under these deadlines; the clock is moved on by so much, nobody waits."""
DAY: Final = 24 * 3600.0
HEALING_STEP: Final = 10.0
"""Seconds by which time goes on between two looks at what is uncertain."""
QUIET_SECONDS: Final = 0.25
"""Seconds without a question to the chain after which all that was due has been asked."""
HEALED_WITHIN: Final = 600 + FINAL_AFTER + 60 + 2 * HEALING_STEP
"""Seconds after a payment's last one within which the chain has decided, give or take two steps."""
POINT_SECONDS: Final = 1.5
"""How long a service is given to come to the point at which it dies."""
TOLD_EVERY: Final = 50


@dataclass
class Report:
    """What was done, and what was found."""

    trials: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    not_reached: Counter[str] = field(default_factory=Counter)
    purchases: int = 0
    requests: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    moves: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def hold(self, trials: int) -> None:
        """Raise AssertionError unless nothing was found, in trials in which enough happened to prove something."""
        assert self.violations == []
        assert self.trials == trials
        assert self.kills["a random moment"] + self.kills["the database"] == trials // 2
        assert sum(self.not_reached.values()) < trials / 4
        assert self.moves > trials
        codes = {"PAYMENT_UNCERTAIN", "DUPLICATE_PROOF", "PAYMENT_IN_PROGRESS", "IDEMPOTENCY_CONFLICT"}
        assert {"200", *(f"409 {code}" for code in codes)} <= self.answers.keys()
        assert {"settled", "uncertain", "released", "failed"} <= self.ended.keys()

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        found = Counter(text.partition(":")[0] for text in self.violations)
        return {
            "trials": self.trials,
            "kills": sum(self.kills.values()),
            "killedAt": dict(self.kills.most_common()),
            "notReachedAndKilledAfterwards": dict(self.not_reached.most_common()),
            "purchases": self.purchases,
            "requests": self.requests,
            "answers": dict(self.answers.most_common()),
            "settleCalls": self.calls,
            "moves": self.moves,
            "attemptsEnded": dict(self.ended.most_common()),
            "doubleSettlements": found["I1"] + found["I2"] + found["I5"],
            "lostReceipts": found["lost receipt"],
            "violations": len(self.violations),
            "firstViolations": self.violations[:20],
            "seconds": round(self.seconds, 1),
        }


class Shop:
    """The replicas of one service, their provider, their callers and their operator."""

    def __init__(
        self,
        nursery: Nursery,
        directory: Path,
        url: str,
        *,
        seed: int,
        replicas: int = 1,
        plots: int = PLOTS,
        database: PostgresServer | None = None,
        broken: str | None = None,
        day_every: int = 5,
        with_keeper: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.name = f"{seed % 10**6:06d}"
        self.directory = directory
        self.url = url
        self.plots = plots
        self.database = database
        self.day_every = day_every
        self.witness = Witness(url)
        self.facilitator = RandomFacilitator(self.witness)
        self.history = History()
        self.whole = History()
        self.report = Report()
        self.read = (0, 0)
        self.numbers = iter(range(1, 10**7))
        self.environment = {
            f"RANKING_EVALUATE_{name}": value
            for name, value in {
                "DATABASE_URL": url,
                "X402_PAY_TO": PAYEE,
                "X402_NETWORK": NETWORK,
                "X402_ASSET": ASSET,
                "X402_ASSET_NAME": "Sandbox Dollar",
                "X402_ASSET_VERSION": "1",
                "X402_FACILITATOR_URL": self.facilitator.url,
                "VERIFY_TIMEOUT": str(PROVIDER_SECONDS),
                "SETTLE_TIMEOUT": str(PROVIDER_SECONDS),
                "REQUEST_RATE": "",
                "PAYMENT_RATE": "",
            }.items()
        }
        self.strings = Strings(directory / STRINGS)
        self.facilitator.clock = self.strings.clock
        self.node: LedgerNode | None = None
        if with_keeper:
            self.node = LedgerNode(
                chain_id=int(NETWORK.removeprefix("eip155:")),
                clock=self.strings.clock,
                landed=self.facilitator.landed,
                names=transaction_of,
                terms=(ASSET, PAYER, PAYEE, PRICE),
                seed=seed,
            )
            self.environment["RANKING_EVALUATE_X402_RPC_URL"] = self.node.url
        self.replicas = Replicas(nursery, directory, self.environment, count=replicas, broken=broken)

    @property
    def now(self) -> float:
        """The time, as the service has it."""
        return self.strings.clock()

    @property
    def moved(self) -> set[tuple[str, str]]:
        """The key and proof of all money that moved in this trial."""
        return {(move.key, move.proof) for move in self.facilitator.moves_made}

    def some_fault(self, chance: random.Random) -> Fault:
        """Return what becomes of a payment: often nothing bad, now and then anything."""
        return chance.choice((Fault.NONE, Fault.NONE, Fault.LATE, Fault.REFUSED, *chance.choices(PLANNED, k=3)))

    async def open(self) -> None:
        """Start everything, on an empty database."""
        await self.replicas.open()
        self.witness.keep_journal()

    def close(self) -> None:
        """End everything."""
        self.replicas.close()
        self.facilitator.let_go()
        self.facilitator.__exit__()
        if self.node is not None:
            self.node.__exit__()

    # One request.

    async def ask(
        self,
        key: str,
        signed: Signed | None,
        *,
        body: int,
        garbage: str | None = None,
        leave_after: float | None = None,
        quiet: bool = False,
    ) -> Answer | None:
        """Send one request to some replica, and write down what came; None when nothing did.

        Args:
            key: The Idempotency-Key.
            signed: The credential, if any.
            body: Which body.
            garbage: A header that is sent instead of a credential.
            leave_after: Seconds after which the caller is gone.
            quiet: Nothing else happens to this key or these proofs, so that the table says exactly what must come.
        """
        header = garbage if signed is None else signed.header
        lines = [f"POST {PATH} HTTP/1.1", "Host: a", "Content-Type: application/json", f"Idempotency-Key: {key}"]
        lines += [f"Content-Length: {len(BODIES[body])}", "Connection: close"]
        lines += [] if header is None else [f"PAYMENT-SIGNATURE: {header}"]
        request = "\r\n".join([*lines, "", ""]).encode() + BODIES[body]
        allowed = (self.expected(key, signed, body, garbage),) if quiet else None
        sent_at = time.monotonic()
        self.report.requests += 1
        reply = await exchange(self.random.choice(self.replicas.ports), request, leave_after)
        if reply is None:
            assert not quiet, f"no answer from a service that lives: {self.replicas.logs()}"
            return None
        # In a thread, since the database may be stopped, and is started again by this one.
        rows = await asyncio.to_thread(self.witness.settled, key) if reply.status == 200 else ()
        code = None if reply.status == 200 else str(json.loads(reply.body)["code"])
        receipt = reply.headers.get("payment-response") if reply.status == 200 else None
        content = b"" if reply.status != 200 else hashlib.sha256(reply.body).digest()
        answer = Answer(
            key=key,
            proof=signed.proof if signed else None,
            digest=signed.digest if signed else None,
            sent_at=sent_at,
            status=reply.status,
            code=code,
            content=content,
            receipt=receipt,
            rows=rows,
            allowed=allowed,
            what=f"with {'garbage' if garbage else 'nothing' if signed is None else 'a credential'}"
            f", body {body}{', quietly' if quiet else ''}",
        )
        self.history.answers.append(answer)
        self.report.answers[f"{reply.status} {code or ''}".strip()] += 1
        if reply.status == 200:
            self.check_delivery(signed, body, reply)
            self.history.last.setdefault((key, answer.proof or ""), answer)
        if (reply.status == 402) is not ("payment-required" in reply.headers):
            self.report.violations.append(f"I8: {reply.status} with or without a challenge on {key}")
        return answer

    def check_delivery(self, signed: Signed | None, body: int, reply: Reply) -> None:
        """Hold a 200 against what was bought and what was paid."""
        if reply.body != ANSWERS[body]:
            self.report.violations.append("I6: a 200 with another answer than the one that was bought")
        receipt = json.loads(base64.b64decode(reply.headers["payment-response"] + "=="))
        if signed is None or receipt["transaction"] != transaction_of(signed.proof):
            self.report.violations.append("I3: a 200 with the receipt of another payment")

    def expected(self, key: str, signed: Signed | None, body: int, garbage: str | None) -> tuple[int, str | None]:
        """Return what the decision table says, by what another connection reads in the database."""
        if garbage is not None:
            return 400, "PAYMENT_MALFORMED"
        return self.witness.cell(
            key,
            now=self.now,
            fingerprint=FINGERPRINTS[body],
            digest=signed.digest if signed else None,
            proof=proof_digest(signed.proof) if signed else None,
            valid_before=signed.valid_before if signed else None,
        )

    # One trial.

    async def trial(self, number: int) -> None:
        """Run one trial, and judge it."""
        self.history = History()
        self.facilitator.plan.clear()
        self.facilitator.calls_made.clear()
        self.facilitator.moves_made.clear()
        plots = [Plot(self, next(self.numbers)) for _ in range(self.plots)]
        acting = asyncio.gather(*(plot.act() for plot in plots))
        await self.replicas.revive(await self.die(number, acting))
        await acting
        await self.calm_down()
        await asyncio.gather(*(plot.come_back() for plot in plots))
        # While every answer is held against the table, nobody else decides.
        self.let_node_answer(False)
        self.strings.shift += LEASE_SECONDS
        await asyncio.gather(*(plot.ask_everything() for plot in plots))
        self.strings.shift += VALID_SECONDS + 600
        self.let_node_answer(True)
        await (self.operate() if self.node is None else self.heal())
        self.let_node_answer(False)
        await asyncio.gather(*(plot.end() for plot in plots))
        self.let_node_answer(True)
        if number % self.day_every == self.day_every - 1:
            self.strings.shift += DAY
            await asyncio.gather(*(plot.next_day() for plot in plots))
        self.report.trials += 1
        self.report.purchases += len(plots)
        self.judge()

    async def die(self, number: int, acting: asyncio.Future[Any]) -> list[int]:
        """Kill a replica in its own way, and return all that are dead."""
        if self.database is not None and number % 10 == 9:
            await self.stop_the_database(self.database)
            return []
        lives = self.replicas
        chosen = self.random.randrange(len(lives.ports))
        points = (*POINTS, *PROVIDER_POINTS) if self.url.startswith("postgresql") else (*ALL_POINTS, *PROVIDER_POINTS)
        # Every other kill comes at a random moment.
        where = "a random moment" if number % 2 else points[(number // 2) % len(points)]
        if number % 2:
            await asyncio.sleep(self.random.uniform(0, 0.25))
        else:
            if where in PROVIDER_POINTS:
                self.facilitator.kill_at = (where, lambda: lives.kill(chosen))
            else:
                self.strings.doom(chosen, where, self.random.choice((1, 1, 2)))
            await self.until_dead(chosen, acting)
            self.facilitator.kill_at = None
            if not lives.is_dead(chosen):
                self.report.not_reached[where] += 1
                where = "the end, since its point was not reached"
        lives.up.clear()
        lives.kill(chosen)
        self.report.kills[where] += 1
        others = [replica for replica in range(len(lives.ports)) if replica != chosen and self.random.random() < 0.5]
        for other in others:
            lives.kill(other)
            self.report.kills["together with another one"] += 1
        return [chosen, *others]

    async def until_dead(self, replica: int, acting: asyncio.Future[Any]) -> None:
        """Wait until a replica has died at its point, or will not come there any more."""
        give_up = time.monotonic() + POINT_SECONDS
        while not (self.replicas.is_dead(replica) or acting.done() or time.monotonic() > give_up):  # noqa: ASYNC110 - A process has no event.
            await asyncio.sleep(0.002)

    async def stop_the_database(self, database: PostgresServer) -> None:
        """Let the database lose its power for a moment; the services live on, and must come to terms with it."""
        await asyncio.sleep(self.random.uniform(0, 0.15))
        await asyncio.to_thread(database.stop)
        await asyncio.sleep(self.random.uniform(0, 0.5))
        await asyncio.to_thread(database.start)
        self.report.kills["the database"] += 1
        # What moved meanwhile is recorded by the service's next try, within half a second.
        await asyncio.sleep(1.5)

    async def calm_down(self) -> None:
        """Let everything come to its end: from now on nothing goes wrong, and one thing happens at a time."""
        self.facilitator.let_go()
        for proof in self.facilitator.plan:
            self.facilitator.plan[proof] = Fault.NONE
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + 0.08:
            if not self.facilitator.is_idle:
                quiet_since = time.monotonic()
                self.facilitator.let_go()
            await asyncio.sleep(0.01)

    async def operate(self) -> None:
        """Decide about what is uncertain, as an operator does who looks at the chain."""
        query = "SELECT key FROM attempts WHERE state IN ('uncertain', 'settling') AND updated_at > ?"
        keys = [key for (key,) in self.witness.ask(query, self.now - DAY)]
        if not keys:
            return
        store: SqliteStore | PostgresStore
        if self.url.startswith("postgresql"):
            store = PostgresStore(self.url, self.strings.clock, create=False)
        else:
            store = SqliteStore(self.url.removeprefix("sqlite:///"), self.strings.clock, create=False)
        config = read_settings(self.environment).x402
        assert config is not None
        protocol = Ledgers(config)
        moved = {move.proof for move in self.facilitator.moves_made}
        protocol.moved = moved.__contains__
        await store.open()
        try:
            operator = Reconciler(store, Chains((protocol,)), "the trials")
            for key in keys:
                case = await operator.look_up(key)
                try:
                    if case is not None and case.attempt.payment_id in moved:
                        await operator.settle(key, transaction_of(case.attempt.payment_id))
                    else:
                        await operator.release(key)
                except DecisionRefused as error:
                    self.report.violations.append(f"operator: {key} cannot be decided: {error}")
        finally:
            await store.close()
            await protocol.close()

    def let_node_answer(self, answers: bool) -> None:
        """Let the chain's node answer, or say that it is busy."""
        if self.node is not None:
            self.node.is_silent = not answers

    async def heal(self) -> None:
        """Wait until the services have decided by the chain what is uncertain; now and then one is killed meanwhile."""
        doomed = self.random.random() < 0.3
        assert self.node is not None
        self.node.is_busy = self.random.random() < 0.1
        # Whoever is killed between two rounds has found nothing, and begins anew; a round that fails is made again.
        within = HEALED_WITHIN + (ROUNDS_APART if doomed else 0) + (10 * ROUNDS_APART if self.node.is_busy else 0)
        query = "SELECT key, valid_before FROM attempts WHERE state IN ('uncertain', 'settling') AND updated_at > ?"
        while found := self.witness.ask(query, self.now - DAY):
            if all(self.now > last + within for _, last in found):
                self.report.violations += [f"keeper: {key} is not decided in time" for key, _ in found]
                return
            self.strings.shift += HEALING_STEP
            await self.all_asked()
            if doomed:
                doomed = False
                chosen = self.random.randrange(len(self.replicas.ports))
                self.replicas.up.clear()
                self.replicas.kill(chosen)
                self.report.kills["while the chain is asked"] += 1
                await self.replicas.revive([chosen])

    async def all_asked(self) -> None:
        """Return when the services have asked the chain about all that was due."""
        assert self.node is not None
        began = time.monotonic()
        while time.monotonic() < max(began, self.node.asked_at) + QUIET_SECONDS:  # noqa: ASYNC110 - A node has no event.
            await asyncio.sleep(0.02)

    def judge(self) -> None:
        """Hold what was observed against the invariants."""
        history = self.history
        history.calls = list(self.facilitator.calls_made)
        history.moves = list(self.facilitator.moves_made)
        history.strays = list(self.facilitator.strays)
        history.now = self.now
        never = [move.key for move in history.moves if (move.key, move.proof) not in history.last]
        self.report.violations += [f"lost receipt: {key} paid, and was never answered 200" for key in never]
        changes, freed = self.witness.changes(self.read[0]), self.witness.freed(self.read[1])
        self.read = (changes[-1][0] if changes else self.read[0], freed[-1][0] if freed else self.read[1])
        keys = {answer.key for answer in history.answers}
        history.changes = [change for _, change in changes if change.key in keys]
        history.freed = [claim for _, claim in freed]
        history.decisions = [decision for decision in self.witness.decisions() if decision.key in keys]
        self.report.calls += len(history.calls)
        self.report.moves += len(history.moves)
        for change in history.changes:
            if change.new in {"settled", "failed", "released", "uncertain"}:
                self.report.ended[change.new] += 1
        # What belongs to keys of earlier trials, such as the purge of their rows, is judged with their beginnings.
        self.whole.changes += [change for _, change in changes]
        self.whole.freed += history.freed
        history.freed = [claim for claim in history.freed if claim in {change.claim for change in history.changes}]
        self.whole.calls += history.calls
        self.whole.moves += history.moves
        sold, moved = self.witness.sold(), PRICE * len(self.whole.moves)
        if sold != moved:
            self.report.violations.append(f"sales: the books say {sold}, and {moved} base units moved")
        found = violations(history)
        self.report.violations += [text for text in found if text not in self.report.violations]

    def judge_all(self) -> list[str]:
        """Hold all trials together against the invariants, and search every file for what callers sent."""
        whole = self.whole
        whole.now = self.now
        whole.decisions = self.witness.decisions()
        whole.canaries = [path.name for path in self.files() if CANARY.encode() in path.read_bytes()]
        whole.canaries += [path.name for path in self.files() if CANARY.encode().hex().encode() in path.read_bytes()]
        found = violations(whole)
        self.report.violations += [text for text in found if text not in self.report.violations]
        return self.report.violations

    def files(self) -> Iterator[Path]:
        """Yield every file that the service writes."""
        yield from self.witness.files
        yield from self.directory.glob("service-*.log")


async def run(
    nursery: Nursery,
    url: str,
    directory: Path,
    *,
    trials: int,
    seed: int,
    replicas: int = 1,
    plots: int = PLOTS,
    database: PostgresServer | None = None,
    broken: str | None = None,
    day_every: int = 5,
    with_keeper: bool = False,
) -> Report:
    """Run trials; with a sabotage, until it is caught. Of a given database server, every tenth trial makes an end."""
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        if broken is not None:
            # The operator's command is of the same build.
            sabotage.SABOTAGES[broken].apply(patch)
        shop = Shop(
            nursery,
            directory,
            url,
            seed=seed,
            replicas=replicas,
            plots=plots,
            database=database,
            broken=broken,
            day_every=day_every,
            with_keeper=with_keeper,
        )
        try:
            await shop.open()
            for number in range(trials):
                await shop.trial(number)
                if number % TOLD_EVERY == TOLD_EVERY - 1:
                    done = f"{number + 1} of {trials} trials, {len(shop.report.violations)} violations"
                    sys.stderr.write(f"{done}, {time.monotonic() - began:.0f} s\n")
                if broken is not None and shop.judge_all():
                    break
            shop.judge_all()
        finally:
            shop.close()
    shop.report.seconds = time.monotonic() - began
    return shop.report


async def run_rounds(url: str, rounds: int) -> None:
    """Let fifty identical requests meet at two replicas, so many times."""
    ledger = Ledger()
    async with in_process.replicas(url, ledger) as running:
        for number in range(rounds):
            await in_process.identical_requests_settle_once(running, ledger, number)


def main() -> None:
    """Run what the command line says, print the figures, and fail when an invariant is broken."""
    parser = argparse.ArgumentParser(description="Kill -9 trials of the service; prints the figures as JSON.")
    parser.add_argument("--trials", type=int, default=100, help="how many kills (100)")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices; timing stays random")
    parser.add_argument("--replicas", type=int, default=None, help="services at once (1, on PostgreSQL 2)")
    parser.add_argument("--purchases", type=int, default=PLOTS, help=f"how many in a trial ({PLOTS})")
    parser.add_argument("--rounds", type=int, default=0, help="on PostgreSQL: rounds of 50 identical requests too")
    parser.add_argument("--keeper", action="store_true", help="let the services decide by the chain, not an operator")
    parser.add_argument("--power", type=int, default=None, help="cut the power so many times instead, on SQLite")
    parser.add_argument("--sabotage", choices=sorted(sabotage.SABOTAGES), help="break the service, and be caught")
    given = parser.parse_args()
    telemetry.configure_logs("error")
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    if given.power is not None:
        cut = power_cuts.run(given.power, seed)
        sys.stdout.write(json.dumps({"seed": seed, **cut.document()}, indent=2) + "\n")
        sys.exit(1 if cut.violations else 0)
    with contextlib.ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="trials-")))
        url, server = f"sqlite:///{directory / 'attempts.db'}", None
        if given.store == "postgres":
            server = opened.enter_context(PostgresServer())
            url = server.new_database()
            if given.rounds:
                asyncio.run(run_rounds(server.new_database(), given.rounds))
        count = given.replicas or (2 if given.store == "postgres" else 1)
        nursery = opened.enter_context(Nursery())
        report = asyncio.run(
            run(
                nursery,
                url,
                directory,
                trials=given.trials,
                seed=seed,
                replicas=count,
                plots=given.purchases,
                database=server,
                broken=given.sabotage,
                with_keeper=given.keeper,
            )
        )
    said = {"store": given.store, "replicas": count, "seed": seed, "rounds": given.rounds, **report.document()}
    sys.stdout.write(json.dumps(said, indent=2) + "\n")
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
