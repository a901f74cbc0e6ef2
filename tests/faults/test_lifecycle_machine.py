"""The invariants of the lifecycle, held by a state machine over the real walk and the real stores.

Two processes share one store; clients sign, resend, relabel and change bodies; providers land, refuse, lie and
fall silent; processes are killed; time passes, also whole days; operators settle and release what they looked up, and
so does the keeper of each process by a chain of which blocks become final, and whose node lags, is taken back, or lies.
tests/test_purchase.py has the single cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import apsw
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ranking_evaluate.attempts.attempt import State
from ranking_evaluate.attempts.events import OperatorRelease, OperatorSettle
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.errors import ServiceError
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.keeper import Keeper
from ranking_evaluate.operations.registry import find
from ranking_evaluate.order import Delivery, Order
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import (
    Evidence,
    Landed,
    NeverLanded,
    NotSent,
    Offer,
    PaymentFacts,
    Refused,
    Rejected,
    Settled,
    Settlement,
    Spent,
    Uncertain,
    Unknown,
    Unreachable,
    Verification,
    Verified,
)
from ranking_evaluate.purchase import RESERVE_MARGIN, Purchases
from ranking_evaluate.rates import Rates
from tests.fakes import VALID_SECONDS, FixedClock, Ledger, ScriptedProtocol, Signed, digest_of
from tests.postgres import PostgresServer

KEYS: Final = ("key-a-0123456789abcdef", "key-b-0123456789abcdef")
BODIES: Final = (
    b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}',
    b'{"queries":[{"id":"q","retrieved":["b"],"judgments":[{"id":"b","grade":1}]}]}',
)
OFTEN_ONE_KEY: Final = st.sampled_from((KEYS[0], KEYS[0], KEYS[0], KEYS[1]))
OPERATION: Final = find("ranking-evaluate")
VERIFY_TIMEOUT: Final = 10.0
RESERVATION_SECONDS: Final = VERIFY_TIMEOUT + RESERVE_MARGIN
STATES_THAT_HOLD: Final = "SELECT state FROM attempts JOIN proofs USING (claim) WHERE proof ="

FINAL_AFTER: Final = 30.0
"""Seconds after which a block of the chain is final."""

T = TypeVar("T")


class Answered(NamedTuple):
    """What a caller got: a status, a code, and for a 200 the bytes and the receipt."""

    status: int
    code: str
    body: bytes = b""
    receipt: str = ""


class Held(NamedTuple):
    """A call to the provider that has not answered yet."""

    process: int
    signed: Signed
    offer: Offer | None
    future: asyncio.Future[Any]
    since: float


class Asked(ScriptedProtocol):
    """The protocol as a keeper asks it: a chain over the ledger, final a while later, behind a node that may lie."""

    def __init__(self, clock: FixedClock, ledger: Ledger, moved_at: Mapping[str, float]) -> None:
        super().__init__(ledger)
        self._clock, self._moved_at = clock, moved_at
        self.lies = False
        self._lied: set[str] = set()

    def has_node(self, network: str) -> bool:
        return True

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        proof, final = facts.payment_id, self._clock.now() - FINAL_AFTER
        if self.lies and proof not in self._lied:
            # A node that says the same of what is not so in two rounds a minute apart is believed: nobody could tell.
            self._lied.add(proof)
            return NeverLanded("a node that is behind says so", for_good=True)
        self._lied.discard(proof)
        if proof in self.ledger.moved:
            # A block that is not final may be taken back.
            landed = self._moved_at[proof] <= final
            return Landed(f"tx of {proof}") if landed else Unknown("it is in a block that is not final yet")
        if facts.valid_before is not None and final > facts.valid_before:
            return NeverLanded("a final block is past its last second")
        return Unknown("it may still land")


class Process:
    """One server process: its own store connection, its own walk, its own keeper."""

    def __init__(self, store: AttemptStore, clock: FixedClock, ledger: Ledger, moved_at: Mapping[str, float]) -> None:
        self.store = store
        self.protocol = Asked(clock, ledger, moved_at)
        self.keeper = Keeper(store, Chains((self.protocol,)))
        self.purchases = Purchases(
            self.store,
            Rates("memory://", None, None),
            Evaluations(1, None),
            (self.protocol.wire,),
            chains=Chains(()),
            verify_timeout=VERIFY_TIMEOUT,
            settle_timeout=90.0,
            clock=clock,
        )
        self.requests: list[tuple[Signed | None, str, asyncio.Task[Answered]]] = []


class Lifecycle(RuleBasedStateMachine):
    """Histories of purchases; each rule is something that may happen at any time."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FixedClock()
        self.ledger = Ledger()
        self.moved_at: dict[str, float] = {}
        self.open_place()
        self.processes = [self.new_process(), self.new_process()]
        self.held_verifications: list[Held] = []
        self.held_settlements: list[Held] = []
        self.received: list[tuple[Signed, str]] = []
        self.signed: list[Signed] = []
        self.numbers = itertools.count(1)
        self.states_at_the_call: list[list[tuple[str]]] = []
        self.replies: dict[str, set[tuple[bytes, str]]] = {}
        self.released: set[str] = set()
        self.moved_by_others: set[str] = set()
        self.known_as_spent: set[str] = set()
        for key in KEYS:
            self.sign(key)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for number in range(2):
                self.kill(number)
                self.run(self.processes[number].store.close())
            self.loop.close()
            self.leave_place()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    # Where the store is; a subclass has another place.

    def open_place(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "attempts.db"

    def leave_place(self) -> None:
        self.folder.cleanup()

    def new_store(self) -> AttemptStore:
        return SqliteStore(self.path, self.clock)

    def states_that_hold(self, proof: bytes) -> list[Any]:
        with contextlib.closing(apsw.Connection(str(self.path))) as reader:
            return reader.execute(f"{STATES_THAT_HOLD} ?", (proof,)).fetchall()

    def new_process(self) -> Process:
        process = Process(self.new_store(), self.clock, self.ledger, self.moved_at)
        self.run(process.store.open())
        return process

    def sign(self, key: str) -> None:
        self.signed.append(Signed(key, f"proof-{next(self.numbers)}", self.clock.now() + VALID_SECONDS))

    # What callers do.

    def ask(self, number: int, key: str, body: int, signed: Signed | None) -> asyncio.Task[Answered]:
        """Start a request; it may stay under way while the provider is silent."""
        process = self.processes[number]
        order = Order(
            operation=OPERATION,
            wire=process.protocol.wire,
            protocol=process.protocol,
            key=key,
            url="http://service.test/v1/scripted/ranking-evaluate",
            body=BODIES[body],
            headers=signed.header() if signed else {},
            client="caller",
        )

        async def answered() -> Answered:
            try:
                delivery = await process.purchases.buy(order)
            except ServiceError as error:
                return Answered(error.status, error.code)
            await self.check_paid(key, signed, delivery)
            return Answered(200, "", delivery.body, delivery.receipt)

        task = self.loop.create_task(answered())
        process.requests.append((signed, key, task))
        return task

    async def check_paid(self, key: str, signed: Signed | None, delivery: Delivery) -> None:
        """I3: at the moment of a 200 another connection reads the settled row, this credential's, with this receipt."""
        reader = self.new_store()
        await reader.open()
        rows = (await reader.read(key)).rows
        await reader.close()
        [row] = [row for row in rows if row.state is State.SETTLED and row.receipt == delivery.receipt]
        assert signed is not None, "a 200 without a credential"
        assert row.credential_digest == digest_of(signed), "a 200 for another credential than the one that paid"

    def go_on(self) -> None:
        """Let every task go as far as it can, then look at the answers that came."""
        self.run(self.until_only_the_script_holds())
        for process in self.processes:
            for entry in [entry for entry in process.requests if entry[2].done()]:
                process.requests.remove(entry)
                signed, key, task = entry
                self.look_at(signed, key, task.result())

    async def until_only_the_script_holds(self) -> None:
        """Wait until each request under way waits for a provider that the script keeps silent."""
        give_up = self.loop.time() + 30
        while True:
            under_way = [task for process in self.processes for _, _, task in process.requests if not task.done()]
            silent = [held for held in (*self.held_verifications, *self.held_settlements) if not held.future.done()]
            if len(under_way) == len(silent):
                return
            assert self.loop.time() < give_up, "a request hangs"
            await asyncio.sleep(0.0005)

    def look_at(self, signed: Signed | None, key: str, got: Answered) -> None:
        assert got.status in {200, 400, 402, 409, 503}, got
        if got.status == 200:
            self.replies.setdefault(key, set()).add((got.body, got.receipt))
        if got.status == 402:
            if signed is not None and signed.proof in self.moved_by_us():
                assert key in self.released, "I8: a 402 for a proof that a settle call of ours moved"
            assert signed is None or signed.proof not in self.known_as_spent, "a 402 for a proof known as spent"
            if signed is None and key not in self.released:
                assert not self.moved_under(key), "a challenge on a key whose money moved"
            if not any(own.key == key and self.clock.now() + 10 < own.valid_before for own in self.signed):
                self.sign(key)

    def moved_by_us(self) -> dict[str, str]:
        """The key under which each proof moved by a settle call of ours."""
        return {proof: key for proof, key in self.ledger.moved.items() if proof not in self.moved_by_others}

    def moved_under(self, key: str) -> int:
        return list(self.moved_by_us().values()).count(key)

    @rule(
        number=st.integers(0, 1),
        key=OFTEN_ONE_KEY,
        body=st.sampled_from((0, 0, 0, 0, 0, 1)),
        which=st.sampled_from((0, 0, 0, 0, 1, 1, 2, None)),
        dressing=st.sampled_from((0, 0, 0, 0, 0, 1)),
        relabel=st.sampled_from((False, False, True)),
        verification=st.sampled_from(("held", "held", "verified", "verified", "verified", "rejected", "unreachable")),
        settlement=st.sampled_from(("held", "held", "settled", "lost", "refused", "not sent", "never received")),
    )
    def request(
        self,
        number: int,
        key: str,
        body: int,
        which: int | None,
        dressing: int,
        relabel: bool,
        verification: str,
        settlement: str,
    ) -> None:
        """A caller sends a request with a credential it signed, re-encoded or relabelled at times, or with none."""
        own = [signed for signed in self.signed if relabel or signed.key == key]
        signed = None if which is None else own[max(-1 - which, -len(own))]
        if signed is not None:
            signed = Signed(key, signed.proof, signed.valid_before, dressing)
        process = self.processes[number]
        process.protocol.verifier = lambda credential: self.verify(number, credential, verification)
        process.protocol.settler = lambda credential, offer: self.settle(number, credential, offer, settlement)
        process.protocol.before_settle = self.check_submitted
        self.ask(number, key, body, signed)
        self.go_on()

    # What providers do.

    def verify(
        self, number: int, signed: Signed, how: str, since: float | None = None
    ) -> Verification | asyncio.Future[Verification]:
        if signed.proof in self.ledger.moved:
            # An owner that hears it after its reservation lapsed decides nothing (docs/lifecycle.md, section 3).
            if since is None or self.clock.now() < since + RESERVATION_SECONDS:
                self.known_as_spent.add(signed.proof)
            return Spent("the chain says so")
        match how:
            case "held":
                future: asyncio.Future[Verification] = self.loop.create_future()
                self.held_verifications.append(Held(number, signed, None, future, self.clock.now()))
                return future
            case "rejected":
                return Rejected("script")
            case "unreachable":
                return Unreachable("script")
            case _:
                return Verified()

    def settle(self, number: int, signed: Signed, offer: Offer, how: str) -> Settlement | asyncio.Future[Settlement]:
        match how:
            case "settled":
                return self.land(signed, offer.key)
            case "lost":
                self.land(signed, offer.key)
                return Uncertain("the answer was lost")
            case "refused":
                return Refused("script")
            case "not sent":
                self.ledger.calls[signed.proof] -= 1
                return NotSent("script")
            case "never received":
                return Uncertain("no answer")
            case _:
                future: asyncio.Future[Settlement] = self.loop.create_future()
                self.held_settlements.append(Held(number, signed, offer, future, self.clock.now()))
                self.received.append((signed, offer.key))
                return future

    def land(self, signed: Signed, key: str) -> Settlement:
        """The chain moves the money, once, and not after the authorization's last second."""
        if self.clock.now() < signed.valid_before and self.ledger.move(signed.proof, key):
            self.moved_at[signed.proof] = self.clock.now()
            return Settled(f"receipt of {signed.proof}", f"tx of {signed.proof}", "payer")
        return Uncertain("the chain did not take it")

    def check_submitted(self, signed: Signed) -> None:
        """I5: before a settle call leaves, another connection reads a settling row that holds its proof."""
        # An assertion here would be taken for a broken settle call; the invariant below looks at it.
        self.states_at_the_call.append(self.states_that_hold(signed.digest_of_proof))

    @precondition(lambda self: self.held_verifications)
    @rule(which=st.integers(0, 5), how=st.sampled_from(("verified", "rejected", "unreachable")))
    def verification_answers(self, which: int, how: str) -> None:
        held = self.held_verifications.pop(which % len(self.held_verifications))
        if not held.future.done():
            said = self.verify(held.process, held.signed, how, held.since)
            assert not isinstance(said, asyncio.Future)
            held.future.set_result(said)
        self.go_on()

    @precondition(lambda self: self.held_settlements)
    @rule(which=st.integers(0, 5), how=st.sampled_from(("settled", "lost", "refused", "silent")))
    def settlement_answers(self, which: int, how: str) -> None:
        held = self.held_settlements.pop(which % len(self.held_settlements))
        assert held.offer is not None
        if (held.signed, held.offer.key) in self.received:
            self.received.remove((held.signed, held.offer.key))
        landed = held.signed.proof in self.ledger.moved
        if not held.future.done():
            match how:
                case "refused" if not landed:
                    held.future.set_result(Refused("script"))
                case "settled" if landed:
                    held.future.set_result(Settled(f"receipt of {held.signed.proof}", f"tx of {held.signed.proof}"))
                case "settled":
                    held.future.set_result(self.land(held.signed, held.offer.key))
                case _:
                    held.future.set_result(Uncertain("no answer"))
        self.go_on()

    @precondition(lambda self: self.received)
    @rule(which=st.integers(0, 5), late=st.booleans())
    def chain_lands_what_was_received(self, which: int, late: bool) -> None:
        """The money moves though no answer came; often only just before somebody sees the lease over."""
        signed, key = self.received[which % len(self.received)]
        self.land(signed, key)
        if late:
            self.clock.advance(101)

    @precondition(lambda self: self.held_verifications)
    @rule(which=st.integers(0, 5))
    def somebody_else_submits_what_it_saw_at_verify(self, which: int) -> None:
        """What no server can prevent; only from the moment at which the provider says so can we know."""
        signed = self.held_verifications[which % len(self.held_verifications)].signed
        if isinstance(self.land(signed, signed.key), Settled):
            self.moved_by_others.add(signed.proof)

    # What happens to processes, time and rows.

    @rule(
        number=st.integers(0, 1),
        what=st.sampled_from(
            ("crash", "purge", "time", "time", "operator", "keeper", "keeper", "a keeper whose node lies")
        ),
        seconds=st.sampled_from((1, 12, 31, 101, 130, 800, 86_401)),
        key=OFTEN_ONE_KEY,
    )
    def meanwhile(self, number: int, what: str, seconds: int, key: str) -> None:
        """One rule for all that befalls processes, rows and time, so that requests stay the most frequent of all."""
        match what:
            case "crash":
                self.crash(number)
            case "purge":
                self.run(self.processes[number].store.purge())
            case "time":
                self.clock.advance(seconds)
            case "operator":
                self.operator_looks(number, key)
            case _:
                self.keeper_looks(number, lies=what != "keeper")

    def crash(self, number: int) -> None:
        """The process dies where it stands, and comes back with nothing but the file."""
        self.kill(number)
        self.run(self.processes[number].store.close())
        self.processes[number] = self.new_process()

    def kill(self, number: int) -> None:
        process = self.processes[number]

        async def die() -> None:
            doomed = [*process.purchases._running, *(task for _, _, task in process.requests)]
            for task in doomed:
                task.cancel()
            for task in doomed:
                with contextlib.suppress(asyncio.CancelledError, ServiceError):
                    await task
            process.requests.clear()

        self.run(die())
        self.held_verifications = [held for held in self.held_verifications if held.process != number]
        self.held_settlements = [held for held in self.held_settlements if held.process != number]

    def operator_looks(self, number: int, key: str) -> None:
        """An honest operator: settles what the chain shows, releases what can never land any more."""
        store = self.processes[number].store
        row = self.run(store.read(key)).standing
        if row is None or row.valid_before is None:
            return
        if row.payment_id in self.ledger.moved:
            event = OperatorSettle(f"reconciled {row.payment_id}", f"tx of {row.payment_id}", "op", "the chain")
            if self.run(store.move(row.claim, event)).owned:
                # The caller, told that it is settled, sends the identical request again.
                own = [signed for signed in self.signed if signed.proof == row.payment_id and signed.key == key]
                self.ask(number, key, 0, own[0] if own else None)
                self.go_on()
        elif self.clock.now() > row.valid_before + 600:
            step = self.run(store.move(row.claim, OperatorRelease("op", "the chain")))
            if step.owned:
                self.released.add(key)

    def keeper_looks(self, number: int, *, lies: bool) -> None:
        """The service asks the chain by itself; of what it releases nothing may ever land, so no key is marked."""
        process = self.processes[number]
        process.protocol.lies = lies

        async def look() -> None:
            await process.keeper.look()
            await process.keeper.idle()

        self.run(look())
        process.protocol.lies = False
        self.go_on()

    # What always holds.

    @invariant()
    def a_proof_is_submitted_once(self) -> None:
        if hasattr(self, "ledger"):
            assert all(calls <= 1 for calls in self.ledger.calls.values()), "I5: a proof was sent to be settled twice"
            assert all(states == [("settling",)] for states in self.states_at_the_call), "I5: a call before SUBMIT"

    @invariant()
    def a_key_moves_money_once(self) -> None:
        if hasattr(self, "ledger"):
            for key in KEYS:
                assert self.moved_under(key) <= 1, "I2: a key moved money twice"

    @invariant()
    def a_keys_answers_are_the_same_bytes(self) -> None:
        if hasattr(self, "replies"):
            assert all(len(replies) == 1 for replies in self.replies.values())

    @invariant()
    def money_that_moved_is_held_by_a_row(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for proof, key in self.moved_by_us().items():
            seen = self.run(self.processes[0].store.read(key))
            rows = [row for row in seen.rows if row.payment_id == proof and row.state is not State.RESERVED]
            held = any(row.state in {State.SETTLING, State.UNCERTAIN, State.SETTLED} for row in rows)
            assert held or seen.paid_and_purged, "I4: money moved and no row holds it"


class LifecycleInPostgres(Lifecycle):
    """The same histories over the shared store."""

    server: ClassVar[PostgresServer]

    def open_place(self) -> None:
        self.url = self.server.new_database()

    def leave_place(self) -> None:
        self.server.give_back(self.url)

    def new_store(self) -> AttemptStore:
        return PostgresStore(self.url, lambda database: self.clock())

    def states_that_hold(self, proof: bytes) -> list[Any]:
        with psycopg.connect(self.url, options="-c search_path=ranking_evaluate") as reader:
            return reader.execute(f"{STATES_THAT_HOLD} %s".encode(), (proof,)).fetchall()


@pytest.fixture(autouse=True, scope="module")
def _server(postgres_server: PostgresServer) -> None:
    LifecycleInPostgres.server = postgres_server


OPTIONS: Final = settings(stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))

TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(OPTIONS, max_examples=200)

TestLifecycleInPostgres = LifecycleInPostgres.TestCase
TestLifecycleInPostgres.settings = settings(OPTIONS, max_examples=30)
