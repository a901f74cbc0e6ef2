"""The 402 of every protocol: its own challenge, and in plain members who is to be paid how much, and where to read."""

from __future__ import annotations

from urllib.parse import urljoin

from ranking_evaluate.contract.errors import PaymentRequired
from ranking_evaluate.payments.protocol import Offer, PaymentProtocol


async def payment_required(
    protocol: PaymentProtocol,
    offer: Offer,
    code: str,
    detail: str,
    *,
    cause: str | None = None,
    reason: str | None = None,
    receipt: str | None = None,
) -> PaymentRequired:
    """Return the refusal that asks for a payment.

    What stands here and not in the challenge is in the body alone: a 402's head has little room.

    Args:
        protocol: Whose challenge it is.
        offer: What is asked for.
        code: PAYMENT_REQUIRED or PAYMENT_REJECTED.
        detail: One sentence about this occurrence.
        cause: What tells this challenge from others of its code.
        reason: Why a credential was refused.
        receipt: The receipt header of the refusal.
    """
    challenge = await protocol.challenge(offer, reason)
    headers = dict(challenge.headers)
    if receipt is not None:
        headers[protocol.wire.receipt_header.lower()] = receipt
    asked = [
        {
            "protocol": protocol.wire.name,
            "amount": str(offer.amount),
            "asset": terms.asset,
            "network": terms.network,
            "recipient": terms.pay_to,
        }
        for terms in protocol.terms()
    ]
    members = {**challenge.members, "payment": asked, "documentation": urljoin(offer.url, "/llms.txt")}
    return PaymentRequired(code, detail, cause=cause, headers=headers, members=members)
