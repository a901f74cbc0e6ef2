"""The 402 that a GET of a paid path gets: the terms, for discovery. It stores nothing and takes no payment."""

from __future__ import annotations

from typing import Any, NoReturn

from starlette.requests import Request

from ranking_evaluate.contract.discovery import DISCOVERY_KEY, example_body
from ranking_evaluate.contract.errors import RETRY_AFTER, MethodNotAllowed, PaymentRequired, Unavailable
from ranking_evaluate.http.requests import read_headers
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.order import offer_of
from ranking_evaluate.payments.protocol import PaymentProtocol


async def quote(
    request: Request,
    protocols: tuple[PaymentProtocol, ...],
    protocol: PaymentProtocol,
    operation: Operation[Any],
    url: str,
) -> NoReturn:
    """Raise the challenge for the published example under the published key, of which no credential is ever taken."""
    headers = read_headers(request)
    if any(one.carries_credential(headers) for one in protocols):
        raise MethodNotAllowed(
            "METHOD_NOT_ALLOWED",
            "Payments are taken with POST alone; this one was not used.",
            headers={"allow": "POST"},
        )
    ready = protocol.ready()
    if not ready.ready:
        raise Unavailable(
            "PAYMENT_UNAVAILABLE", f"No payment can be taken at the moment: {ready.reason}.", retry_after=RETRY_AFTER
        )
    offer = offer_of(operation, url=url, key=DISCOVERY_KEY, body=example_body(operation))
    challenge = await protocol.challenge(offer)
    raise PaymentRequired(
        "PAYMENT_REQUIRED",
        "These are the terms of a POST to this path, with a JSON body and an Idempotency-Key of your own.",
        headers=challenge.headers,
        members=challenge.members,
    )
