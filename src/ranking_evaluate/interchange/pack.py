"""Queries into as few inputs as the limits allow, asking the operation itself what it accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from ranking_evaluate.contract.answer import answer
from ranking_evaluate.core.canonical import number
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.measure.rules import Rules
from ranking_evaluate.operations.fields import JUDGMENTS, QUERIES
from ranking_evaluate.operations.ranking_evaluate import OPERATION, RankedQuery

# trec_eval's rule for a ranked document without a judgment.
UNJUDGED: Final = "nonrelevant"


def render(queries: Sequence[RankedQuery], rules: Rules) -> bytes:
    """Return an input as one line of JSON, without its newline."""
    options: dict[str, object] = {"k": rules.depth, "unjudged": UNJUDGED}
    if rules.relevant_at_least != 1:
        options["relevantAtLeast"] = number(rules.relevant_at_least)
    if rules.gain != "linear":
        options["gain"] = rules.gain
    return orjson.dumps({**options, "queries": queries})


def misfit(query: RankedQuery, rules: Rules) -> str | None:
    """Return why a query does not fit an input of its own, or None when it does."""
    count = len(query["judgments"])
    if count > JUDGMENTS:
        relevant = sum(judgment["grade"] >= rules.relevant_at_least for judgment in query["judgments"])
        return f"its figures depend on {count} judgments, {relevant} of them relevant, and a query may have {JUDGMENTS}"
    try:
        answer(OPERATION, render([query], rules))
    except OperationError as error:
        return error.detail
    return None


def pack(queries: Sequence[RankedQuery], rules: Rules) -> Iterator[bytes]:
    """Yield inputs that hold all the queries in their order, each one as full as its limits allow.

    Every query fits an input of its own: ask `misfit` first. Every input has been evaluated, so the service accepts it.
    """
    start = 0
    while start < len(queries):
        end = _end(queries, start, rules)
        yield render(queries[start:end], rules)
        start = end


def _end(queries: Sequence[RankedQuery], start: int, rules: Rules) -> int:
    """Return where an input from `start` on ends: it is accepted, and with one query more it would be refused."""
    most = min(start + QUERIES, len(queries))
    if _is_accepted(queries[start:most], rules):
        return most
    accepted, refused = start + 1, most
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if _is_accepted(queries[start:middle], rules):
            accepted = middle
        else:
            refused = middle
    return accepted


def _is_accepted(queries: Sequence[RankedQuery], rules: Rules) -> bool:
    try:
        answer(OPERATION, render(queries, rules))
    except OperationError:
        return False
    return True
