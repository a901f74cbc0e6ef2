"""Stand-ins for what a test must hold in its own hands: time, and the other side of a payment."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ranking_evaluate.contract.errors import RequestMalformed
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.payments.clock import ClockWatch, Limits
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import (
    Announcement,
    Challenge,
    Credential,
    Evidence,
    Offer,
    PaymentFacts,
    Readiness,
    Settlement,
    Terms,
    Unknown,
    Unreadable,
    Verification,
    Verified,
)


class FixedClock:
    """Seconds since the epoch that pass only when told to; call it, as a store does, or ask `now()`."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    __call__ = now


VALID_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Signed:
    """A credential that a client signed: `proof` is what moves the money, `dressing` changes its digest alone.

    `new_key` names a new key's authorization, which it carries; two payments with one cannot both be made.
    """

    key: str
    proof: str
    valid_before: float
    dressing: int = 0
    new_key: str = ""

    def header(self) -> dict[str, str]:
        members = {"key": self.key, "proof": self.proof, "validBefore": self.valid_before, "dressing": self.dressing}
        return {"x-scripted-payment": json.dumps({**members, "newKey": self.new_key})}

    @property
    def digest_of_proof(self) -> bytes:
        return hashlib.sha256(self.proof.encode()).digest()

    @property
    def digest_of_new_key(self) -> bytes | None:
        return hashlib.sha256(f"new key {self.new_key}".encode()).digest() if self.new_key else None


@dataclass(slots=True)
class Ledger:
    """The chain of the scripted protocol: the key under which each proof moved its money, and the settle calls."""

    moved: dict[str, str] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def move(self, proof: str, key: str) -> bool:
        """Move the money of a proof; like a chain, only once."""
        if proof in self.moved:
            return False
        self.moved[proof] = key
        return True


Settler = Callable[[Signed, Offer], "asyncio.Future[Settlement] | Settlement"]


class ScriptedProtocol:
    """A payment protocol whose other side does what the test says.

    `verifier` and `settler` answer at once, or with a future that the test resolves later.
    """

    wire = Wire(
        name="scripted",
        title="scripted",
        credential_header="X-Scripted-Payment",
        challenge_header="X-Scripted-Challenge",
        receipt_header="X-Scripted-Receipt",
    )

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()
        self.verifier: Callable[[Signed], Verification | asyncio.Future[Verification]] = lambda signed: Verified()
        self.settler: Settler | None = None
        self.before_settle: Callable[[Signed], None] = lambda signed: None
        self.readiness = Readiness(True)
        self.challenges = 0
        self.clock = ClockWatch(self.wire.name, Limits(behind=60, ahead=110), {})

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def terms(self) -> tuple[Terms, ...]:
        return (Terms("scripted:1", "token", "payee", True),)

    def announce(self, amount: int) -> Announcement:
        terms = {"amount": str(amount), "asset": "token"}
        return Announcement(accepts=(terms,), offers=({"amount": str(amount)},), protocols=({self.wire.name: {}},))

    def ready(self) -> Readiness:
        return self.readiness

    async def challenge(self, offer: Offer, reason: str | None = None) -> Challenge:
        self.challenges += 1
        return Challenge({self.wire.challenge_header.lower(): offer.key}, {"reason": reason})

    def read_credential(self, headers: Mapping[str, str], offer: Offer) -> Credential | Unreadable | None:
        found = self.wire.credentials(headers)
        if not found:
            return None
        (text,) = found
        try:
            members = json.loads(text)
            names = ("key", "proof", "validBefore", "dressing", "newKey")
            signed = Signed(*(members[name] for name in names))
        except (ValueError, KeyError):
            return Unreadable("not a scripted credential")
        if signed.key != offer.key:
            raise RequestMalformed("PAYMENT_IDENTIFIER_MISMATCH", "The credential names another key.")
        return Credential(
            digest=digest_of(signed),
            proofs=tuple(filter(None, (signed.digest_of_proof, signed.digest_of_new_key))),
            new_key_proof=signed.digest_of_new_key,
            facts=PaymentFacts(
                network="scripted:1",
                asset="token",
                amount=offer.amount,
                pay_to="payee",
                payer="payer",
                payment_id=signed.proof,
                valid_before=int(signed.valid_before),
            ),
            content=signed,
        )

    def check_terms(self, credential: Credential, offer: Offer, now: float) -> str | None:
        return "expired" if signed_in(credential).valid_before <= now + 10 else None

    def remark(self, reason: str, now: float) -> str | None:
        return None

    async def verify(self, credential: Credential, offer: Offer) -> Verification:
        said = self.verifier(signed_in(credential))
        return await said if isinstance(said, asyncio.Future) else said

    async def settle(self, credential: Credential, offer: Offer) -> Settlement:
        signed = signed_in(credential)
        self.before_settle(signed)
        self.ledger.calls[signed.proof] = self.ledger.calls.get(signed.proof, 0) + 1
        if self.settler is None:
            raise RuntimeError("the test gave no settler")
        said = self.settler(signed, offer)
        return await said if isinstance(said, asyncio.Future) else said

    def has_node(self, network: str) -> bool:
        return False

    async def holds(self, facts: PaymentFacts) -> int | None:
        return None

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        return Unknown("the test knows")

    async def reconciled_receipt(self, facts: PaymentFacts, transaction: str, key: str) -> str:
        return f"reconciled {transaction}"


def signed_in(credential: Credential) -> Signed:
    """Return what the client signed."""
    assert isinstance(credential.content, Signed)
    return credential.content


def digest_of(signed: Signed) -> str:
    """Return the credential digest under which the scripted protocol presents what a client signed."""
    return hashlib.sha256(signed.header()["x-scripted-payment"].encode()).hexdigest()
