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


def releasable_from(attempt: Attempt) -> float | None:
    """Return the time from which a payment that did not land may be released; None if its last second is not known."""
    return None if attempt.valid_before is None else attempt.valid_before + RELEASE_AFTER


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
        return known and protocol is not None and protocol.has_node(attempt.network)

    def told_by(self, attempt: Attempt) -> float | None:
        """Return the time by which the chain will have told of a payment; None where it is not asked."""
        since = releasable_from(attempt)
        return since + FINAL_WITHIN if since is not None and self.can_tell(attempt) else None

    def promise(self, attempt: Attempt, now: float) -> float | None:
        """Return the time by which a caller may be told that the chain will have told; None once it is over."""
        told_by = self.told_by(attempt)
        return told_by if told_by is not None and told_by >= now else None

    async def ask(self, attempt: Attempt, transaction: str | None = None) -> Evidence:
        """Return what the chain says became of the payment, or whether this transaction made it."""
        protocol = self.protocol_of(attempt)
        if protocol is None:
            return Unknown(f"{attempt.protocol} is not configured, so its chain cannot be asked")
        facts = _facts(attempt, protocol)
        return await protocol.inspect(replace(facts, transaction=transaction or facts.transaction), self._pace)

    async def receipt(self, attempt: Attempt, transaction: str) -> str | None:
        """Return the receipt of a payment that this transaction made; None where its protocol is not configured.

        Raises:
            ServiceError: The protocol cannot make one.
        """
        protocol = self.protocol_of(attempt)
        if protocol is None:
            return None
        return await protocol.reconciled_receipt(_facts(attempt, protocol), transaction, attempt.key)


def _facts(attempt: Attempt, protocol: PaymentProtocol) -> PaymentFacts:
    """Return what the chain is asked about; the recipient is the current setting where schema 1 kept none."""
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
