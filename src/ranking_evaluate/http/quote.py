"""The 402 that a GET of a paid path gets, and a probe: the terms, for discovery. It stores and takes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from ranking_evaluate.contract.discovery import DISCOVERY_KEY, example_body
from ranking_evaluate.contract.errors import RETRY_AFTER, MethodNotAllowed, PaymentRequired, Unavailable
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.order import offer_of
from ranking_evaluate.payments.protocol import NOT_CONFIGURED, PaymentProtocol


async def quote(
    headers: Mapping[str, str],
    wires: tuple[Wire, ...],
    protocol: PaymentProtocol | None,
    operation: Operation[Any],
    url: str,
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
    ready = NOT_CONFIGURED if protocol is None else protocol.ready()
    if protocol is None or not ready.ready:
        raise Unavailable(
            "PAYMENT_UNAVAILABLE", f"No payment can be taken at the moment: {ready.reason}.", retry_after=RETRY_AFTER
        )
    offer = offer_of(operation, url=url, key=DISCOVERY_KEY, body=example_body(operation), for_discovery=True)
    challenge = await protocol.challenge(offer)
    raise PaymentRequired(
        "PAYMENT_REQUIRED",
        "These are the terms of a POST to this path, with a JSON body and an Idempotency-Key of your own.",
        headers=challenge.headers,
        members=challenge.members,
    )
