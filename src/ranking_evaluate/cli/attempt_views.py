"""How the operator's commands show an attempt: as a table, as advice, or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.shown import shown
from ranking_evaluate.cli.streams import tell
from ranking_evaluate.core.instants import written
from ranking_evaluate.core.visible import visible
from ranking_evaluate.telemetry import key_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ranking_evaluate.payments.protocol import Evidence
    from ranking_evaluate.reconcile import Case

HASH_WIDTH: Final = 66
CARD_HEADINGS_WIDTH: Final = 13
LIST_WIDTH_BESIDE_KEYS: Final = 44

STYLES: Final = {State.UNCERTAIN: "bold yellow", State.SETTLED: "green", State.FAILED: "red"}


def document(attempt: Attempt, now: float) -> dict[str, Any]:
    """Return all that is kept of an attempt, but for its claim: who holds that owns the row."""
    return {
        "key": attempt.key,
        "n": attempt.n,
        **shown(attempt, now),
        "release": attempt.release,
        "payer": attempt.payer,
        "paymentId": attempt.payment_id,
        "validBefore": None if attempt.valid_before is None else written(attempt.valid_before),
        "recipient": attempt.recipient,
        "reasonCode": attempt.reason_code,
        "answerSha256": attempt.answer_sha256,
        "requestId": attempt.request_id,
        "keyDigest": key_digest(attempt.key),
        "updatedAt": written(attempt.updated_at),
    }


def decisions(case: Case) -> dict[str, Any]:
    """Return what operators decided about the key."""
    return {
        "decisions": [
            {"at": written(at), "n": n, "who": audit.who, "what": audit.what, "evidence": audit.evidence}
            for at, n, audit in case.audits
        ]
    }


def chain(evidence: Evidence | None) -> dict[str, Any]:
    """Return what the chain says, nothing when it was not asked."""
    from ranking_evaluate.payments.protocol import Landed, NeverLanded
    from ranking_evaluate.reconcile import in_words

    match evidence:
        case None:
            return {}
        case Landed(transaction=transaction):
            return {"chain": {"says": "landed", "transaction": transaction, "reason": in_words(evidence)}}
        case NeverLanded():
            return {"chain": {"says": "never landed", "transaction": None, "reason": in_words(evidence)}}
        case _:
            return {"chain": {"says": "unknown", "transaction": None, "reason": in_words(evidence)}}


def listing(found: Sequence[Attempt], now: float) -> Table:
    """Return attempts as a table, one line each."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    # The key stands last, so that a long one runs over the edge alone.
    for heading in ("changed", "state", "price", "key"):
        table.add_column(heading, no_wrap=True, min_width=9)
    for attempt in found:
        seen = attempt.state_at(now)
        price = f"{tokens(attempt.amount)} {attempt.protocol}"
        table.add_row(written(attempt.updated_at), Text(seen, STYLES.get(seen, "")), price, attempt.key)
    return table


def card(case: Case) -> Table:
    """Return the attempt as a table without a frame: so a hash fits on one line of 80 columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    attempt, state = case.attempt, case.state
    table.add_row("key", attempt.key)
    table.add_row("state", Text(state, STYLES.get(state, "")))
    if attempt.n > 1:
        table.add_row("attempt", f"number {attempt.n} under this key")
    for name, value in (
        ("reason", attempt.reason),
        ("provider says", attempt.reason_code),
        ("and names", attempt.reported_transaction),
        ("purchase", f"{attempt.operation} {attempt.release} over {attempt.protocol}"),
        ("amount", f"{tokens(attempt.amount)} of {attempt.asset}"),
        ("network", attempt.network),
        ("payer", attempt.payer),
        ("recipient", attempt.recipient),
        ("payment id", attempt.payment_id),
        ("valid until", None if attempt.valid_before is None else written(attempt.valid_before)),
        ("transaction" if state is State.SETTLED else "would be in", attempt.transaction),
        ("request id", attempt.request_id),
        ("in the log", f"key_digest {key_digest(attempt.key)}"),
        ("created", written(attempt.created_at)),
        ("changed", written(attempt.updated_at)),
        ("over at", None if attempt.expires_at is None else written(attempt.expires_at)),
    ):
        if value is not None:
            table.add_row(name, visible(value))
    for at, n, audit in case.audits:
        words = f"{written(at)}, attempt {n}: {audit.what} by {audit.who} ({audit.evidence})"
        table.add_row("decision", visible(words))
    return table


def advice(case: Case, evidence: Evidence | None) -> str | None:
    """Return what an operator may do about an uncertain payment."""
    from ranking_evaluate.payments.protocol import Landed, NeverLanded

    if case.state is not State.UNCERTAIN:
        return None
    command, key = "ranking-evaluate attempts", case.attempt.key
    match evidence:
        case None:
            return f"Ask the chain: {command} show {key} --check"
        case Landed(transaction=transaction):
            return f"It was paid: {command} settle {key} --tx {transaction}"
        case NeverLanded() if case.releasable_at is not None and case.now >= case.releasable_at:
            return f"It was never paid: {command} release {key}"
        case _ if case.releasable_at is not None and case.now < case.releasable_at:
            return f"Check again at {written(case.releasable_at)}, when nothing of it can land any more."
        case _:
            return "The chain does not tell. Look at the transactions of the payer before you force anything."


def tokens(base_units: int) -> str:
    """Return an amount in whole tokens."""
    from ranking_evaluate.payments.protocol import AMOUNT_DECIMALS

    sign = "-" if base_units < 0 else ""
    whole, rest = divmod(abs(base_units), 10**AMOUNT_DECIMALS)
    return f"{sign}{whole}.{rest:0{AMOUNT_DECIMALS}d}".rstrip("0").rstrip(".") or "0"


def print_table(table: Table, at_least: int) -> None:
    """Print a table, wider than the terminal if need be: a key or a hash that was folded could not be copied."""
    # What comes from a store or a chain is text, never markup or an emoji's name.
    console = Console(markup=False, emoji=False, highlight=False)
    console.width = max(console.width, at_least)
    console.print(table)


def print_json(document: object) -> None:
    """Print a document for programs."""
    tell(json.dumps(document, indent=2))
