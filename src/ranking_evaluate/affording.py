"""Whether a payer can pay a purchase beside its others: each passes a check of its own, the wallet holds one price."""

from __future__ import annotations

import asyncio
from typing import Final

from ranking_evaluate.attempts.attempt import Attempt
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.payments.protocol import PaymentFacts, PaymentProtocol

TOO_POOR: Final = (
    "payment-insufficient: the wallet does not hold the price beside what its other purchases under way may take; when "
    "those are done, the identical request may be sent again"
)

LOOKED_AGAIN: Final = (0.0, 0.5, 1.0)
"""Seconds before each look at a payer's balance, while it holds the price but not what is under way as well.

What is settled meanwhile leaves its balance and stops counting.
"""


async def is_in_company(store: AttemptStore, protocol: PaymentProtocol, attempt: Attempt) -> bool:
    """Return whether the payer has other purchases under way, where anybody could tell what it holds."""
    return protocol.has_node(attempt.network) and await store.under_way(attempt) > 0


async def affords(store: AttemptStore, protocol: PaymentProtocol, attempt: Attempt, facts: PaymentFacts) -> bool:
    """Return whether the payer holds the price beside what its purchases under way may take, or nobody can tell."""
    for wait in LOOKED_AGAIN:
        await asyncio.sleep(wait)
        # The balance is read first: what another purchase takes in between is then counted twice, never not at all.
        held = await protocol.holds(facts)
        under_way = await store.under_way(attempt)
        if held is None or held >= attempt.amount + under_way:
            return True
        if held < attempt.amount:
            return False
    return False
