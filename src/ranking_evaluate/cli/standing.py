"""Where a purchase stands by the word of the service: whether a key was charged there, and what of that is believed."""

from __future__ import annotations

from typing import Final

import httpx

from ranking_evaluate.cli.exchange import Reply, exchange

NO_ATTEMPT: Final = "none"
NO_CHARGE: Final = frozenset({NO_ATTEMPT, "failed", "released"})
UNDER_WAY: Final = frozenset({"reserved", "settling", "settled"})
UNCERTAIN: Final = "uncertain"
_STATES: Final = (NO_CHARGE | UNDER_WAY | {UNCERTAIN}) - {NO_ATTEMPT}


def ask(client: httpx.Client, url: str, key: str) -> Reply:
    """Return what the service at `url` answers about a key.

    Raises:
        ExchangeError: There is no answer.
    """
    return exchange(client, "GET", httpx.URL(url).join("/v1/attempts"), {"Idempotency-Key": key})


def standing_in(reply: Reply) -> str | None:
    """Return what an answer of `/v1/attempts` says of the key, and None for whatever our service would not say.

    Any server answers 404 to a route that it does not have; ATTEMPT_UNKNOWN comes from one that keeps a record.
    """
    problem = reply.problem
    if reply.status == httpx.codes.NOT_FOUND:
        return NO_ATTEMPT if problem.get("code") == "ATTEMPT_UNKNOWN" else None
    state = problem.get("state")
    is_said = reply.response.is_success and isinstance(state, str) and state in _STATES
    return str(state) if is_said else None
