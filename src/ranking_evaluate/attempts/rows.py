"""An attempt as a row of a table and back, for every store that speaks SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Final, NamedTuple

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.decide import Snapshot

COLUMNS: Final = tuple(field.name for field in fields(Attempt) if field.name != "proofs")
"""The columns of `attempts`, in the order of the fields of `Attempt`; proofs stand in a table of their own."""

MOVED: Final = (
    *("state", "lease", "payer", "transaction", "reason", "receipt", "updated_at", "expires_at"),
    *("reason_code", "reported_transaction", "new_key_proof"),
)
"""The columns that a move may change; the others are what was bought and stay as inserted."""

LAPSED_KEPT: Final = 3600.0
"""Seconds for which a lapsed reservation is left lying, for whoever looks into what happened."""


class Kept(NamedTuple):
    """A row of `proofs`."""

    proof: bytes
    key: str
    n: int
    claim: str
    last_state: str | None


def names(columns: Iterable[str]) -> str:
    """Return the columns as SQL names them: quoted, since `transaction` and `release` are words of SQL."""
    return ", ".join(f'"{column}"' for column in columns)


def to_row(attempt: Attempt, columns: Sequence[str] = COLUMNS) -> tuple[Any, ...]:
    """Return the attempt's values for these columns."""
    return tuple(attempt.state.value if column == "state" else getattr(attempt, column) for column in columns)


def from_row(row: Sequence[Any], proofs: Iterable[bytes]) -> Attempt:
    """Return the attempt that a row of `COLUMNS` and its proofs hold."""
    values = dict(zip(COLUMNS, row, strict=True))
    return Attempt(**values | {"state": State(values["state"]), "proofs": tuple(sorted(proofs))})


def snapshot_of(now: float, rows: tuple[Attempt, ...], kept: Iterable[Kept], recorded: Iterable[bytes]) -> Snapshot:
    """Return what the decision table needs.

    Args:
        now: The store's clock.
        rows: Every row of the key, by rising n.
        kept: Every proof of the key; those of purged attempts say how they ended.
        recorded: Those of the request's proofs that anything but a lapsed reservation holds.
    """
    purged = [(proof.n, proof.last_state) for proof in kept if proof.last_state is not None]
    submitted = [row.n for row in rows if row.state is not State.RESERVED]
    return Snapshot(
        now=now,
        rows=rows,
        last_n=max([0, *submitted, *(n for n, _ in purged)]),
        paid_and_purged=any(state == State.SETTLED for _, state in purged),
        recorded=frozenset(recorded),
    )


UNDER_WAY: Final = """
    SELECT COALESCE(SUM(amount), 0) FROM attempts
    WHERE expires_at IS NULL AND payer = {payer} AND network = {network} AND asset = {asset} AND claim <> {claim}
    AND (valid_before IS NULL OR valid_before >= {now}) AND (
        state IN ('settling', 'uncertain') OR state = 'reserved' AND lease > {now}
        AND (created_at < {created} OR created_at = {created} AND claim < {claim})
    )
"""
"""The statement of `AttemptStore.under_way`; what stands in braces is a parameter of that name."""


def seen_as(state: State | None) -> str:
    """Return the SQL condition for a state as an operator sees it: a settling attempt past its lease is in doubt.

    `{now}` in it stands for the store's clock.
    """
    match state:
        case None:
            return "true"
        case State.RESERVED:
            return "expires_at IS NULL AND state = 'reserved'"
        case State.SETTLING:
            return "expires_at IS NULL AND state = 'settling' AND lease > {now}"
        case State.UNCERTAIN:
            return "expires_at IS NULL AND (state = 'uncertain' OR state = 'settling' AND lease <= {now})"
        case State.SETTLED | State.FAILED | State.RELEASED:
            return f"state = '{state.value}'"
