"""Uncertain payments end by themselves: while a service runs it asks the chain about each, and records what it says.

What is asked when, and what suffices for a decision, stands in docs/lifecycle.md, section 9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeGuard

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.events import CHAIN
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.chains import Chains, releasable_from
from ranking_evaluate.payments.protocol import Evidence, Landed, NeverLanded
from ranking_evaluate.reconcile import VERDICTS, DecisionRefused, Reconciler, in_words

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks at what is uncertain; the chain is asked only about what is due."""

FIRST_ASKED: Final = 15.0
"""Seconds after which the chain is asked for the first time; then after twice as long each time."""

ASKED_AT_LEAST: Final = 3600.0
"""Seconds between two questions about one payment, at the most."""

ROUNDS_APART: Final = 60.0
"""Seconds between the two rounds that must find the same before a payment is released."""

PAST_THE_END: Final = 30.0
"""Seconds after a payment may be released at which the chain is asked in any case, and each minute from then on."""

CALLS_A_SECOND: Final = 5.0
"""Calls that one process makes to nodes at most, so that a thousand uncertain payments use nobody's plan up."""

UNTOLD_FOR: Final = 900.0
"""Seconds after which a person must look at a payment that the chain is not asked about."""

MOST_WATCHED: Final = 10_000
"""Uncertain attempts that are watched at once, the ones that changed last."""


@dataclass(slots=True)
class _Watch:
    """When an attempt is asked about next, after how long again, and what a round has found that one more must find."""

    due: float
    wait: float
    found: NeverLanded | None = None
    found_at: float = 0.0


class Keeper:
    """Asks the chains about uncertain payments and records what they say finally.

    The payments of one network are asked about one after the other, those of different networks beside each other: a
    node that does not answer holds up none but its own. Several replicas may all ask; the first decision stands.

    Args:
        store: Where the attempts are.
        chains: What can be asked, at a pace.
    """

    def __init__(self, store: AttemptStore, chains: Chains) -> None:
        self._store = store
        self._chains = chains
        self._reconciler = Reconciler(store, chains, CHAIN)
        self._watched: dict[str, _Watch] = {}
        self._rounds: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look again and again until cancelled; whatever fails is told and tried again."""
        try:
            while True:
                try:
                    await self.look()
                except StoreUnavailable as error:
                    telemetry.logger().warning("the uncertain attempts cannot be read", reason=str(error))
                except Exception as error:  # noqa: BLE001 - nobody else would look after them.
                    telemetry.logger().error("the keeper failed", error=type(error).__name__)
                    telemetry.count_round("none", "failed")
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for asking in self._rounds.values():
                asking.cancel()
            await self.idle()

    async def look(self) -> None:
        """Begin to ask about every attempt that is due, and tell how many there are, how old, and how many overdue."""
        uncertain = await self._store.recent(State.UNCERTAIN, MOST_WATCHED)
        now = (await self._store.read("keeper-asks-for-the-time")).now
        self._tell(uncertain, now)
        asked_about = {attempt.claim: attempt for attempt in uncertain if self._chains.can_tell(attempt)}
        self._watched = {
            claim: self._watched.get(claim) or _Watch(attempt.updated_at + FIRST_ASKED, FIRST_ASKED)
            for claim, attempt in asked_about.items()
        }
        due: dict[tuple[str, str], list[Attempt]] = {}
        for attempt in sorted(asked_about.values(), key=lambda attempt: self._watched[attempt.claim].due):
            if self._watched[attempt.claim].due <= now:
                due.setdefault((attempt.protocol, attempt.network), []).append(attempt)
        for place, attempts in due.items():
            under_way = self._rounds.get(place)
            if under_way is None or under_way.done():
                self._rounds[place] = asyncio.create_task(self._ask_about(attempts), name="ask the chain")

    async def idle(self) -> None:
        """Return when no round is under way."""
        if self._rounds:
            await asyncio.wait(self._rounds.values())

    async def _ask_about(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            # Another process may have decided while this one was waiting for its turn.
            watch = self._watched.get(attempt.claim)
            if watch is None:
                continue
            try:
                await self._ask(attempt, watch)
            except (StoreUnavailable, DecisionRefused) as error:
                telemetry.logger().warning("a decision of the chain is not recorded", reason=str(error))
            except Exception as error:  # noqa: BLE001 - one attempt must not keep the others from being asked about.
                telemetry.logger().error("a round failed", error=type(error).__name__)
                telemetry.count_round(attempt.protocol, "failed")

    async def _ask(self, attempt: Attempt, watch: _Watch) -> None:
        """Ask about one attempt, note when to ask again, and record what is final."""
        now = (await self._store.read(attempt.key)).now
        # Noted before the question: an attempt about which it fails waits like any other.
        watch.due, watch.wait = _next(attempt, watch.wait, now), min(2 * watch.wait, ASKED_AT_LEAST)
        found = await self._chains.ask(attempt)
        telemetry.count_round(attempt.protocol, VERDICTS[type(found)])
        decision = self._decision(attempt, watch, found, now)
        if decision is None:
            return
        decided = await self._reconciler.follow(attempt, decision)
        telemetry.count_decision(attempt.protocol, decided.state.value)
        telemetry.logger().info(
            "the chain decided",
            protocol=attempt.protocol,
            key_digest=telemetry.key_digest(attempt.key),
            state=decided.state.value,
            evidence=in_words(decision),
            transaction=decided.transaction,
        )

    def _decision(self, attempt: Attempt, watch: _Watch, found: Evidence, now: float) -> Landed | NeverLanded | None:
        """Return what may be recorded: a payment at once, its absence when two rounds found the same."""
        if isinstance(found, Landed):
            return found
        if not _is_absent(found, attempt, now):
            watch.found = None
            return None
        if watch.found == found and now - watch.found_at >= ROUNDS_APART:
            return found
        if watch.found != found:
            watch.found, watch.found_at = found, now
        watch.due = watch.found_at + ROUNDS_APART
        return None

    def _tell(self, uncertain: list[Attempt], now: float) -> None:
        telemetry.UNCERTAIN.set(len(uncertain))
        telemetry.UNCERTAIN_AGE.set(max((now - attempt.created_at for attempt in uncertain), default=0.0))
        telemetry.UNCERTAIN_OVERDUE.set(sum(self._is_overdue(attempt, now) for attempt in uncertain))

    def _is_overdue(self, attempt: Attempt, now: float) -> bool:
        told_by = self._chains.told_by(attempt)
        return now > (attempt.updated_at + UNTOLD_FOR if told_by is None else told_by)


async def decide_now(
    store: AttemptStore, chains: Chains, attempts: list[Attempt], *, dry_run: bool, tell: Callable[[str], None]
) -> bool:
    """Return whether the chain decides about every one of these now; each is told of in a line.

    What never landed is asked about a second time, `ROUNDS_APART` later, before it is released.
    """
    reconciler, all_told = Reconciler(store, chains, CHAIN), True
    absent: list[tuple[Attempt, NeverLanded]] = []
    for attempt in attempts:
        found, now = await chains.ask(attempt), (await store.read(attempt.key)).now
        if _is_absent(found, attempt, now):
            absent.append((attempt, found))
        elif isinstance(found, Landed):
            all_told &= await _follow(reconciler, attempt, found, dry_run, tell)
        else:
            all_told = False
            tell(f"{attempt.key}: not decided: {in_words(found)}")
    if absent and not dry_run:
        tell(f"{len(absent)} did not land; they are released when the chain says so again, in a minute.")
        await asyncio.sleep(ROUNDS_APART)
    for attempt, found in absent:
        again = found if dry_run else await chains.ask(attempt)
        if again == found:
            all_told &= await _follow(reconciler, attempt, found, dry_run, tell)
        else:
            all_told = False
            tell(f"{attempt.key}: not decided: the chain says something else now: {in_words(again)}")
    return all_told


async def _follow(
    reconciler: Reconciler, attempt: Attempt, found: Landed | NeverLanded, dry_run: bool, tell: Callable[[str], None]
) -> bool:
    """Record what the chain said, and return whether that is possible."""
    if dry_run:
        tell(f"{attempt.key}: would be {'settled' if isinstance(found, Landed) else 'released'}: {in_words(found)}")
        return True
    try:
        decided = await reconciler.follow(attempt, found)
    except DecisionRefused as refusal:
        tell(f"{attempt.key}: {refusal}")
        return False
    tell(f"{attempt.key}: {decided.state}: {in_words(found)}")
    return True


def _is_absent(found: Evidence, attempt: Attempt, now: float) -> TypeGuard[NeverLanded]:
    """Return whether the chain says of a payment that it cannot land any more: for good, or since its time is over."""
    if not isinstance(found, NeverLanded):
        return False
    since = releasable_from(attempt)
    return found.for_good or (since is not None and now >= since)


def _next(attempt: Attempt, wait: float, now: float) -> float:
    """Return when to ask again: after a while, but always when it may be released, and each minute from then on."""
    since = releasable_from(attempt)
    if since is None:
        return now + wait
    last = since + PAST_THE_END
    return min(now + wait, last) if now < last else now + ROUNDS_APART
