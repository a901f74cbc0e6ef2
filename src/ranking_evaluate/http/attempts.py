"""What a caller may ask about its own key, instead of paying again."""

from __future__ import annotations

from typing import Any, Final

from pydantic import with_config

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.shown import Shown, shown
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.contract.errors import PROBLEMS, RETRY_AFTER, NotFound, Unavailable
from ranking_evaluate.operations.fields import STRICT

NEXT_STEP: Final = {
    State.RESERVED: PROBLEMS["PAYMENT_IN_PROGRESS"].next_step,
    State.SETTLING: PROBLEMS["PAYMENT_IN_PROGRESS"].next_step,
    State.UNCERTAIN: PROBLEMS["PAYMENT_UNCERTAIN"].next_step,
    State.SETTLED: "Paid. Send the identical body, key and credential to fetch the answer until expiresAt.",
    State.FAILED: "Nothing was charged. To buy, answer a new challenge under this key, or use a new one.",
    State.RELEASED: "An operator found that nothing was charged. To buy, answer a new challenge under this key.",
}
EXPIRED: Final = (
    "Paid, and the replay window is over: the answer is no longer delivered. A new purchase needs a new key."
)


@with_config(STRICT)
class Standing(Shown):
    """Where the purchase under a key stands."""

    nextStep: str


async def standing(key: str, store: AttemptStore) -> Standing:
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
        return _standing(seen.current, seen.now)
    if seen.paid:
        settled = next((row for row in seen.rows if row.state is State.SETTLED), None)
        # Of a row that was purged only its key is known, and that it was paid.
        nothing: Any = dict.fromkeys(Standing.__annotations__)
        known: Standing = nothing if settled is None else _standing(settled, seen.now)
        return {**known, "state": State.SETTLED, "nextStep": EXPIRED}
    raise NotFound("NOT_FOUND", "No purchase is recorded under this key.")


def _standing(attempt: Attempt, now: float) -> Standing:
    found = shown(attempt, now)
    if found["state"] is not State.SETTLED:
        # A caller must take neither for evidence of a payment.
        found["transaction"] = found["receipt"] = None
    return {**found, "nextStep": NEXT_STEP[found["state"]]}
