"""What a caller may ask about its own key, instead of paying again."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.store import AttemptStore, StoreUnavailable
from ranking_evaluate.contract.errors import PROBLEMS, RETRY_AFTER, NotFound, Unavailable
from ranking_evaluate.core.instants import written
from ranking_evaluate.http.requests import read_headers, read_key
from ranking_evaluate.http.responses import json_response

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


async def show_attempt(request: Request, store: AttemptStore) -> Response:
    """Return where the key's current attempt stands; 404 when the key stands for nothing."""
    key = read_key(read_headers(request))
    try:
        seen = await store.read(key)
    except StoreUnavailable as error:
        raise Unavailable(
            "STATE_UNAVAILABLE", "The record of purchases cannot be read.", retry_after=RETRY_AFTER
        ) from error
    if seen.current is not None:
        return json_response(_document(seen.current, seen.now))
    if seen.paid:
        settled = next((row for row in seen.rows if row.state is State.SETTLED), None)
        known = _UNKNOWN if settled is None else _document(settled, seen.now)
        return json_response({**known, "state": State.SETTLED.value, "nextStep": EXPIRED})
    raise NotFound("NOT_FOUND", "No purchase is recorded under this key.")


def _document(attempt: Attempt, now: float) -> dict[str, object]:
    state = attempt.state_at(now)
    return {
        "protocol": attempt.protocol,
        "operation": attempt.operation,
        "state": state.value,
        "amount": str(attempt.amount),
        "asset": attempt.asset,
        "network": attempt.network,
        "transaction": attempt.transaction if state is State.SETTLED else None,
        "reportedTransaction": attempt.reported_transaction,
        "reason": attempt.reason,
        "receipt": attempt.receipt if state is State.SETTLED else None,
        "outputSha256": attempt.output_sha256,
        "createdAt": written(attempt.created_at),
        "expiresAt": None if attempt.expires_at is None else written(attempt.expires_at),
        "nextStep": NEXT_STEP[state],
    }


# What is left to say of a paid key whose row was purged; the members are those of `_document`.
_UNKNOWN: Final[dict[str, object]] = dict.fromkeys(
    (
        "protocol",
        "operation",
        "state",
        "amount",
        "asset",
        "network",
        "transaction",
        "reportedTransaction",
        "reason",
        "receipt",
        "outputSha256",
        "createdAt",
        "expiresAt",
        "nextStep",
    )
)
