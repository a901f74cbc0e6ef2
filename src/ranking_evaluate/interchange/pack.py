"""Queries into as few inputs as the limits allow, asking the operation itself what it accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from ranking_evaluate.contract.answer import answer
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.operations.fields import JUDGMENTS, QUERIES
from ranking_evaluate.operations.ranking_evaluate import OPERATION, RankedQuery

# trec_eval's rule for a ranked document without a judgment.
UNJUDGED: Final = "nonrelevant"


def render(queries: Sequence[RankedQuery], k: int) -> bytes:
    """Return an input as one line of JSON, without its newline."""
    return orjson.dumps({"k": k, "unjudged": UNJUDGED, "queries": queries})


def misfit(query: RankedQuery, k: int) -> str | None:
    """Return why a query does not fit an input of its own, or None when it does."""
    count = len(query["judgments"])
    if count > JUDGMENTS:
        relevant = sum(judgment["grade"] >= 1 for judgment in query["judgments"])
        return f"its figures depend on {count} judgments, {relevant} of them relevant, and a query may have {JUDGMENTS}"
    try:
        answer(OPERATION, render([query], k))
    except OperationError as error:
        return error.detail
    return None


def pack(queries: Sequence[RankedQuery], k: int) -> Iterator[bytes]:
    """Yield inputs that hold all the queries in their order, each one as full as its limits allow.

    Every query fits an input of its own: ask `misfit` first. Every input has been evaluated, so the service accepts it.
    """
    start = 0
    while start < len(queries):
        end = _end(queries, start, k)
        yield render(queries[start:end], k)
        start = end


def _end(queries: Sequence[RankedQuery], start: int, k: int) -> int:
    """Return where an input from `start` on ends: it is accepted, and with one query more it would be refused."""
    most = min(start + QUERIES, len(queries))
    if _is_accepted(queries[start:most], k):
        return most
    accepted, refused = start + 1, most
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if _is_accepted(queries[start:middle], k):
            accepted = middle
        else:
            refused = middle
    return accepted


def _is_accepted(queries: Sequence[RankedQuery], k: int) -> bool:
    try:
        answer(OPERATION, render(queries, k))
    except OperationError:
        return False
    return True
