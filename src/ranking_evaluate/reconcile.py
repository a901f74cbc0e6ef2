"""What may be decided about an attempt whose outcome nobody knows: settle it, release it, or wait.

The chain decides, asked by an operator or by the service itself (keeper.py). An operator's decision that the chain does
not support is refused unless it is forced. The audit table keeps every decision, with who took it and on which
evidence. The service may run meanwhile: a decision is one compare-and-set of the store, so the first of two stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ranking_evaluate.attempts.attempt import Attempt, Audit, State
from ranking_evaluate.attempts.events import Event, Grounds, OperatorRelease, OperatorSettle
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.chains import Chains, releasable_from
from ranking_evaluate.contract.errors import ServiceError
from ranking_evaluate.payments.protocol import TRANSACTION, Evidence, Landed, NeverLanded, Unknown

VERDICTS: Final = {Landed: "landed", NeverLanded: "never landed", Unknown: "unknown"}
"""What the chain says in one word, for the audit and for metrics."""


class DecisionRefused(Exception):
    """The decision was not taken; the text says why, and what the operator may do instead."""


@dataclass(frozen=True, slots=True)
class Case:
    """One key as an operator sees it.

    Attributes:
        now: The store's clock.
        attempt: The attempt that stands under the key.
        audits: When, for which n, and what was decided about the key's attempts.
    """

    now: float
    attempt: Attempt
    audits: tuple[tuple[float, int, Audit], ...]

    @property
    def state(self) -> State:
        """The state that counts now: a settling attempt whose lease is over is uncertain."""
        return self.attempt.state_at(self.now)

    @property
    def releasable_at(self) -> float | None:
        """The time from which a release needs no force; None when the payment's last second is not known."""
        return releasable_from(self.attempt)


class Reconciler:
    """Looks at attempts, asks the chains about them, and records what an operator decides.

    Args:
        store: Where the attempts are.
        chains: What can be asked.
        who: Who decides, as the audit names them: an operator, or the chain itself.
    """

    def __init__(self, store: AttemptStore, chains: Chains, who: str) -> None:
        self._store = store
        self._chains = chains
        self._who = who

    async def look_up(self, key: str) -> Case | None:
        """Return the case of a key, or None when nothing stands under it."""
        seen = await self._store.read(key)
        if seen.standing is None:
            return None
        return Case(seen.now, seen.standing, tuple(await self._store.audits(key)))

    async def check(self, attempt: Attempt, transaction: str | None = None) -> Evidence:
        """Return what the chain says became of the payment, or whether this transaction made it."""
        return await self._chains.ask(attempt, transaction)

    async def settle(self, key: str, transaction: str, *, force: bool = False) -> Attempt:
        """Record that this transaction made the payment, and return the row; the caller's resend then gets its answer.

        Raises:
            DecisionRefused: The attempt is not open, or the transaction does not show this payment and `force` is
                not set.
        """
        if not TRANSACTION.fullmatch(transaction):
            raise DecisionRefused(f"{transaction} is not a transaction hash of 0x and 64 hexadecimal digits.")
        transaction = transaction.lower()
        case = await self._open_case(key, State.UNCERTAIN, State.RELEASED)
        if self._chains.protocol_of(case.attempt) is None:
            raise DecisionRefused(
                f"The receipt of an {case.attempt.protocol} payment needs the settings of that protocol: run this with "
                "the service's environment."
            )
        found = await self.check(case.attempt, transaction)
        if not isinstance(found, Landed) and not force:
            raise DecisionRefused(f"The chain does not show this payment in {transaction}: {in_words(found)}.")
        if isinstance(found, Landed) and found.transaction.lower() != transaction and not force:
            raise DecisionRefused(
                f"The chain shows the payment in {found.transaction}: settle it with --tx {found.transaction}."
            )
        return await self._settled(case.attempt, transaction, _evidence(found, force))

    async def release(self, key: str, *, force: bool = False, transaction: str | None = None) -> Attempt:
        """Record that the payment was never made, and return the row; another credential may then pay under the key.

        What the chain shows is released by force alone, and only where `transaction` repeats where it is: that is no
        payment that nobody made, but one that its caller is going to be told of.

        Raises:
            DecisionRefused: The attempt is not open; or the payment may still land, has landed or cannot be looked up,
                and `force` is not set.
        """
        case = await self._open_case(key, State.UNCERTAIN)
        found = await self.check(case.attempt)
        if force and isinstance(found, Landed) and (transaction or "").lower() != found.transaction.lower():
            raise DecisionRefused(
                f"The chain shows the payment in {found.transaction}: its caller has paid. Settle it with --tx "
                f"{found.transaction}; to release it all the same, repeat that: --force --tx {found.transaction}."
            )
        if not force:
            if isinstance(found, Landed):
                raise DecisionRefused(
                    f"The chain shows the payment in {found.transaction}: settle it with --tx {found.transaction}."
                )
            if case.releasable_at is None:
                raise DecisionRefused("The record does not say until when the payment may land.")
            if case.now < case.releasable_at:
                wait = case.releasable_at - case.now
                raise DecisionRefused(
                    f"The payment may still land. Without force it can be released in {_duration(wait)}, ten minutes "
                    "after its last second."
                )
            if not isinstance(found, NeverLanded):
                raise DecisionRefused(f"The chain does not say that the payment never landed: {in_words(found)}.")
        match found:
            case Landed():
                grounds = Grounds.ALTHOUGH_PAID
            case NeverLanded():
                grounds = Grounds.NEVER_LANDED
            case Unknown():
                grounds = Grounds.OWN_WORD
        paid_in = found.transaction if isinstance(found, Landed) else None
        release = OperatorRelease(self._who, _evidence(found, force), grounds, paid_in)
        return await self._decide(case.attempt, release)

    async def follow(self, attempt: Attempt, found: Landed | NeverLanded) -> Attempt:
        """Record what the chain said of an uncertain payment, and return the row.

        Whoever calls this has seen to it that what was said is final (docs/lifecycle.md, section 9).

        Raises:
            DecisionRefused: The attempt changed meanwhile, or no receipt can be made.
        """
        if isinstance(found, Landed):
            return await self._settled(attempt, found.transaction.lower(), _evidence(found, False))
        return await self._decide(attempt, OperatorRelease(self._who, _evidence(found, False)))

    async def _settled(self, attempt: Attempt, transaction: str, evidence: str) -> Attempt:
        try:
            receipt = await self._chains.receipt(attempt, transaction)
        except ServiceError as error:
            raise DecisionRefused(f"No receipt can be made: {error}") from error
        if receipt is None:
            raise DecisionRefused(f"{attempt.protocol} is not configured.")
        return await self._decide(attempt, OperatorSettle(receipt, transaction, self._who, evidence))

    async def _open_case(self, key: str, *states: State) -> Case:
        case = await self.look_up(key)
        if case is None:
            raise DecisionRefused(f"Nothing is recorded under the key {key}.")
        if case.state not in states or case.attempt.expired(case.now):
            raise DecisionRefused(f"The attempt is {case.state}: there is nothing to decide.")
        return case

    async def _decide(self, attempt: Attempt, decision: Event) -> Attempt:
        step = await self._store.move(attempt.claim, decision)
        if not step.owned or step.attempt is None:
            raise DecisionRefused("The attempt changed meanwhile. Look at it again.")
        return step.attempt


def in_words(evidence: Evidence) -> str:
    """Return what the chain says, as a sentence without its full stop."""
    match evidence:
        case Landed(transaction=transaction):
            return f"this payment is in transaction {transaction}"
        case NeverLanded(reason=reason) | Unknown(reason=reason):
            return reason


def _evidence(found: Evidence, force: bool) -> str:
    return f"{'forced; ' if force else ''}chain: {VERDICTS[type(found)]}: {in_words(found)}"


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60) + 1
    return "a minute" if minutes == 1 else f"{minutes} minutes"
