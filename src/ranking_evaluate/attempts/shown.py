"""What a caller and an operator are both shown of an attempt; the members are listed here and nowhere else."""

from __future__ import annotations

from typing_extensions import TypedDict

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.core.instants import written


class Shown(TypedDict):
    """An attempt as documents show it; a caller sees null for what a purged row no longer tells."""

    protocol: str | None
    operation: str | None
    state: State
    amount: str | None
    asset: str | None
    network: str | None
    transaction: str | None
    reportedTransaction: str | None
    reason: str | None
    receipt: str | None
    outputSha256: str | None
    createdAt: str | None
    expiresAt: str | None


def shown(attempt: Attempt, now: float) -> Shown:
    """Return what is shown of an attempt, with the transaction and the receipt that its row holds."""
    return Shown(
        protocol=attempt.protocol,
        operation=attempt.operation,
        state=attempt.state_at(now),
        amount=str(attempt.amount),
        asset=attempt.asset,
        network=attempt.network,
        transaction=attempt.transaction,
        reportedTransaction=attempt.reported_transaction,
        reason=attempt.reason,
        receipt=attempt.receipt,
        outputSha256=attempt.output_sha256,
        createdAt=written(attempt.created_at),
        expiresAt=None if attempt.expires_at is None else written(attempt.expires_at),
    )
