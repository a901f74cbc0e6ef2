"""The provider of the trials: a facilitator that lies at random, over a bank that pays as often as it is told to."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import Evidence, Landed, NeverLanded, PaymentFacts
from ranking_evaluate.payments.x402.protocol import X402Protocol
from tests.faults.crashing_service import PROVIDER_POINTS
from tests.faults.facilitator import Fault, FaultyFacilitator, authorization_of
from tests.faults.invariants import Call, Move
from tests.faults.witness import Witness

NETWORK: Final = "eip155:31337"
ASSET: Final = "0x" + "5f" * 20
PAYEE: Final = "0x" + "2b" * 20
PAYER: Final = "0x" + "1a" * 20

PLANNED: Final = tuple(
    fault
    for fault in Fault
    # These shut the door for everybody, or need a chain that refuses a second transfer; the matrix has them.
    if fault not in {Fault.DOWN, Fault.GONE, Fault.SETTLED_TWICE, Fault.SLOW_DRIP}
)


class Bank:
    """A facilitator without a chain, and without a chain's care: money moves as often as it is told to move it."""

    def __call__(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Answer one call."""
        if path == "/supported":
            kinds = [{"x402Version": 2, "scheme": "exact", "network": NETWORK}]
            return 200, json.dumps({"kinds": kinds, "extensions": [], "signers": {}}).encode()
        authorization = authorization_of(body)
        payer = authorization["from"]
        if path == "/verify":
            return 200, json.dumps({"isValid": True, "payer": payer}).encode()
        settled = {"success": True, "transaction": transaction_of(authorization["nonce"]), "network": NETWORK}
        return 200, json.dumps({**settled, "payer": payer}).encode()


def transaction_of(proof: str) -> str:
    """Return the hash of the transaction that moves an authorization's money."""
    return "0x" + hashlib.sha256(proof.encode()).hexdigest()


class RandomFacilitator(FaultyFacilitator):
    """A faulty facilitator with a fault for each authorization, which writes down what reaches it and what it moves.

    Attributes:
        plan: What goes wrong for an authorization; nothing where it is silent.
        landed: When each authorization was first used, by the clock.
        kill_at: A point of ours at which the service is killed, and how.
    """

    def __init__(self, witness: Witness) -> None:
        self._here = threading.local()
        self._usual = Fault.NONE
        self._witness = witness
        self._busy: set[int] = set()
        self.plan: dict[str, Fault] = {}
        self.calls_made: list[Call] = []
        self.moves_made: list[Move] = []
        self.clock: Callable[[], float] = time.time
        self.landed: dict[str, float] = {}
        self.kill_at: tuple[str, Callable[[], None]] | None = None
        super().__init__(Bank())

    @property
    def fault(self) -> Fault:
        """What goes wrong with the call that this thread answers."""
        fault: Fault = getattr(self._here, "fault", self._usual)
        return fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._usual = fault

    @property
    def is_idle(self) -> bool:
        """Whether no call is being answered."""
        return not self._busy

    def answer(self, handler: Any, path: str, body: bytes) -> None:
        """Answer one request, by the plan of its authorization."""
        self._busy.add(id(handler))
        try:
            if body:
                self._here.fault = self.plan.get(authorization_of(body)["nonce"], self._usual)
                if path == "/settle":
                    self._write_down(body)
            super().answer(handler, path, body)
        finally:
            self._busy.discard(id(handler))

    def let_go(self) -> None:
        """End what hangs."""
        self._released.set()
        self._released = threading.Event()

    def _write_down(self, body: bytes) -> None:
        proof = authorization_of(body)["nonce"]
        self.calls_made.append(Call(key_of(body), proof, self._witness.holders(proof_digest(proof))))
        self._come_to(PROVIDER_POINTS[0])

    def _move(self, body: bytes) -> dict[str, Any]:
        said = super()._move(body)
        self.landed.setdefault(authorization_of(body)["nonce"], self.clock())
        self.moves_made.append(Move(key_of(body), authorization_of(body)["nonce"], time.monotonic()))
        self._come_to(PROVIDER_POINTS[1])
        return said

    def _come_to(self, point: str) -> None:
        if self.kill_at is not None and self.kill_at[0] == point:
            self.kill_at[1]()


def key_of(body: bytes) -> str:
    """Return the payment-identifier in the body of a /settle call."""
    return str(json.loads(body)["paymentPayload"]["extensions"]["payment-identifier"]["info"]["id"])


def proof_digest(nonce: str) -> bytes:
    """Return what the service keeps of an authorization."""
    named = json.dumps(["x402", NETWORK, ASSET, PAYER, nonce], separators=(",", ":"))
    return hashlib.sha256(named.encode()).digest()


class Ledgers(X402Protocol):
    """The protocol as an operator's command has it, on a chain that is the bank's ledger."""

    moved: Callable[[str], bool]

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        """Look the authorization up."""
        if self.moved(facts.payment_id):
            return Landed(transaction_of(facts.payment_id))
        return NeverLanded("the ledger does not have it")
