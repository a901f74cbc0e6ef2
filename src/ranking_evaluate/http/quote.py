"""The 402 that a GET of a paid path gets, and a probe: the terms, for discovery. It stores and takes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from ranking_evaluate.contract.discovery import DISCOVERY_KEY, example_body
from ranking_evaluate.contract.errors import MethodNotAllowed
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.http.dependencies import Sold
from ranking_evaluate.order import ended, not_ready, offer_of, unconfigured
from ranking_evaluate.payments.required import payment_required


async def quote(
    headers: Mapping[str, str], wires: tuple[Wire, ...], sold: Sold, url: str, *, sales_ended: bool
) -> NoReturn:
    """Raise the challenge for the published example under the published key, of which no credential is ever taken.

    Raises:
        MethodNotAllowed: The request carries a credential; it was not used.
        Unavailable: No payment can be taken at the moment.
        PaymentRequired: The terms.
    """
    if any(wire.carries_credential(headers) for wire in wires):
        raise MethodNotAllowed(
            "METHOD_NOT_ALLOWED",
            "Payments are taken with POST alone; this one was not used.",
            headers={"allow": "POST"},
        )
    if sales_ended:
        raise ended()
    if sold.protocol is None:
        raise unconfigured(sold.wire)
    ready = sold.protocol.ready()
    if not ready.ready:
        raise not_ready(ready.reason)
    offer = offer_of(sold.operation, url=url, key=DISCOVERY_KEY, body=example_body(sold.operation), for_discovery=True)
    raise await payment_required(
        sold.protocol,
        offer,
        "PAYMENT_REQUIRED",
        "These are the terms of a POST to this path, with a JSON body and an Idempotency-Key of your own.",
        cause="terms",
    )
