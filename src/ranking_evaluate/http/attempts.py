"""What a caller may ask about its own key, instead of paying again."""

from __future__ import annotations

from typing import Any, Final

from pydantic import with_config

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.events import Grounds
from ranking_evaluate.attempts.shown import Shown, shown
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.errors import RETRY_AFTER, NotFound, Unavailable
from ranking_evaluate.contract.problems import HEALING_WORDS, PROBLEMS, problem_of
from ranking_evaluate.core.instants import written
from ranking_evaluate.operations.fields import STRICT

_UNDER_WAY: Final = (
    "The payment is being settled. Send the identical request again in a few seconds, for ten minutes at most. Do not "
    "sign another credential."
)
_OPEN_AGAIN: Final = (
    "A new challenge may be answered under this key, or under a fresh one where this key is refused with a conflict."
)
NEXT_STEP: Final = {
    State.RESERVED: _UNDER_WAY,
    State.SETTLING: _UNDER_WAY,
    State.UNCERTAIN: PROBLEMS["PAYMENT_UNCERTAIN"].next_step,
    State.SETTLED: (
        "Paid: do not pay again. Send the identical body, key and credential to fetch the answer until expiresAt; "
        "without that credential it is lost."
    ),
    State.FAILED: f"Nothing was charged. {_OPEN_AGAIN}",
    State.RELEASED: f"The chain shows, or an operator found, that nothing was charged. {_OPEN_AGAIN}",
}
RELEASED: Final = {
    Grounds.NEVER_LANDED: NEXT_STEP[State.RELEASED],
    Grounds.OWN_WORD: (
        "An operator released this payment on their own word. If your wallet shows it, stop and ask the operator. If "
        f"it does not: {_OPEN_AGAIN[0].lower()}{_OPEN_AGAIN[1:]}"
    ),
    Grounds.ALTHOUGH_PAID: (
        "You were charged: the chain shows this payment in the transaction that stands here. An operator released it "
        "all the same. Stop, and ask the operator to pay it back."
    ),
}
"""What to do after a release, by its grounds."""

EXPIRED: Final = "Paid, and the replay window is over. Stop: the answer is no longer delivered."


@with_config(STRICT)
class Standing(Shown):
    """Where the purchase under a key stands."""

    nextStep: str


async def standing(key: str, store: AttemptStore, chains: Chains) -> Standing:
    """Return where the key's current attempt stands.

    Raises:
        NotFound: The key stands for nothing.
        Unavailable: STATE_UNAVAILABLE, the store cannot be read.
    """
    try:
        seen = await store.read(key)
    except StoreUnavailable as error:
        raise Unavailable(
            "STATE_UNAVAILABLE", "The record of purchases cannot be read.", retry_after=RETRY_AFTER
        ) from error
    if seen.current is not None:
        return _standing(seen.current, seen.now, chains)
    if seen.paid:
        settled = next((row for row in seen.rows if row.state is State.SETTLED), None)
        # Of a row that was purged only its key is known, and that it was paid.
        nothing: Any = dict.fromkeys(Standing.__annotations__)
        known: Standing = nothing if settled is None else _standing(settled, seen.now, chains)
        return {**known, "state": State.SETTLED, "nextStep": EXPIRED}
    raise NotFound("ATTEMPT_UNKNOWN", "No purchase is recorded under this key.")


def _standing(attempt: Attempt, now: float, chains: Chains) -> Standing:
    found = shown(attempt, now)
    grounds = next((each for each in Grounds if each == attempt.reason), Grounds.NEVER_LANDED)
    if found["state"] is not State.SETTLED:
        # A caller must take neither for evidence of a payment, but where it is one.
        found["receipt"] = None
        if grounds is not Grounds.ALTHOUGH_PAID:
            found["transaction"] = None
    return {**found, "nextStep": _next_step(attempt, found["state"], now, chains, grounds)}


def _next_step(attempt: Attempt, state: State, now: float, chains: Chains, grounds: Grounds) -> str:
    if state is State.RELEASED:
        return RELEASED[grounds]
    told_by = chains.promise(attempt, now) if state is State.UNCERTAIN else None
    if told_by is None:
        return NEXT_STEP[state]
    return f"{HEALING_WORDS.format(time=written(told_by))} {problem_of('PAYMENT_UNCERTAIN', 'chain').next_step}"
