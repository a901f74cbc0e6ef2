"""An attempt as a row of a table and back, for every store that speaks SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Final

from ranking_evaluate.attempts.attempt import Attempt, State

COLUMNS: Final = tuple(field.name for field in fields(Attempt) if field.name != "proofs")
"""The columns of `attempts`, in the order of the fields of `Attempt`; proofs stand in a table of their own."""

MOVED: Final = ("state", "lease", "payer", "transaction", "reason", "receipt", "updated_at", "expires_at")
"""The columns that a move may change; the others are what was bought and stay as inserted."""


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
