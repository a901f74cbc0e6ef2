"""The operator's books: one sale for each payment received, written in the transaction that settles its attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from ranking_evaluate.attempts.attempt import Step
from ranking_evaluate.attempts.events import Event, OperatorSettle
from ranking_evaluate.core import canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """One payment received, and whether it was paid back; times are seconds since the epoch by the store's clock.

    `id` counts up with the sales of a store. `recipient` is None for what schema 1 recorded. `reconciled` says that an
    operator or the chain decided that it was paid.
    """

    id: int = 0
    at: float
    key_sha256: str
    n: int
    protocol: str
    operation: str
    release: str
    amount: int
    asset: str
    network: str
    recipient: str | None
    payer: str | None
    transaction: str
    reconciled: bool
    refunded_at: float | None = None
    refund_transaction: str | None = None


SALE_COLUMNS: Final = tuple(field.name for field in fields(Sale))
NEW_SALE: Final = tuple(name for name in SALE_COLUMNS if name not in ("id", "refunded_at", "refund_transaction"))
"""The columns that are written with a sale."""


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of a text: how the books name a key."""
    return canonical.sha256(text.encode())


def sale_of(event: Event, step: Step) -> Sale | None:
    """Return the sale that a move makes: one for every attempt that becomes settled, however it does."""
    row = step.attempt
    if not step.sold or row is None or row.transaction is None:
        return None
    return Sale(
        at=row.updated_at,
        key_sha256=sha256_hex(row.key),
        n=row.n,
        protocol=row.protocol,
        operation=row.operation,
        release=row.release,
        amount=row.amount,
        asset=row.asset,
        network=row.network,
        recipient=row.recipient,
        payer=row.payer,
        transaction=row.transaction,
        reconciled=isinstance(event, OperatorSettle),
    )


def to_sale_row(sale: Sale) -> tuple[Any, ...]:
    """Return the values of `NEW_SALE`."""
    return tuple(getattr(sale, name) for name in NEW_SALE)


def from_sale_row(row: Sequence[Any]) -> Sale:
    """Return the sale that a row of `SALE_COLUMNS` holds."""
    values = dict(zip(SALE_COLUMNS, row, strict=True))
    return Sale(**values | {"reconciled": bool(values["reconciled"])})
