"""The chains that can be asked what became of a payment, and by when they will have said it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ranking_evaluate.attempts.attempt import Attempt
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import Evidence, PaymentFacts, PaymentProtocol, Unknown

RELEASE_AFTER: Final = 600.0
"""Seconds past a payment's last second before it may be released.

Ten minutes are more than a chain's clock is ever away from ours, or its next block late.
"""

FINAL_WITHIN: Final = 1_800.0
"""Seconds after which a block is final, at the most: a rollup's blocks are after about twenty minutes."""


class Chains:
    """Asks the chains of the configured protocols.

    Args:
        protocols: The protocols; the chains of others cannot be asked.
        pace: What every question to a node waits for.
    """

    def __init__(self, protocols: Iterable[PaymentProtocol], pace: Pace | None = None) -> None:
        self._protocols = {protocol.wire.name: protocol for protocol in protocols}
        self._pace = pace

    def protocol_of(self, attempt: Attempt) -> PaymentProtocol | None:
        """Return the protocol that was paid over, where it is configured."""
        return self._protocols.get(attempt.protocol)

    def can_tell(self, attempt: Attempt) -> bool:
        """Return whether the service can ask and decide by itself what became of a payment.

        Not where no node of its network is configured, nor of a row of schema 1, which does not say who was to be paid.
        """
        protocol = self.protocol_of(attempt)
        known = attempt.recipient is not None and attempt.valid_before is not None
        return known and protocol is not None and protocol.node_of(attempt.network)

    def told_by(self, attempt: Attempt) -> float | None:
        """Return the time by which the chain will have told of a payment; None where it is not asked."""
        if attempt.valid_before is None or not self.can_tell(attempt):
            return None
        return attempt.valid_before + RELEASE_AFTER + FINAL_WITHIN

    async def ask(self, attempt: Attempt, transaction: str | None = None) -> Evidence:
        """Return what the chain says became of the payment, or whether this transaction made it."""
        protocol, facts = self.protocol_of(attempt), self.facts(attempt)
        if protocol is None or facts is None:
            return Unknown(f"{attempt.protocol} is not configured, so its chain cannot be asked")
        return await protocol.inspect(replace(facts, transaction=transaction or facts.transaction), self._pace)

    def facts(self, attempt: Attempt) -> PaymentFacts | None:
        """Return what the chain is asked about; the recipient is the current setting where schema 1 kept none."""
        protocol = self.protocol_of(attempt)
        if protocol is None:
            return None
        return PaymentFacts(
            network=attempt.network,
            asset=attempt.asset,
            amount=attempt.amount,
            pay_to=attempt.recipient or protocol.terms()[0].pay_to,
            payer=attempt.payer,
            payment_id=attempt.payment_id,
            valid_before=attempt.valid_before,
            transaction=attempt.transaction,
        )
