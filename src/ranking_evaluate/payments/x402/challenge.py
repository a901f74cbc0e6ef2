"""The x402 challenge: the terms, the purchase that they are for, and as much about the input as fits into a header."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from x402 import x402ResourceServer
from x402.extensions.bazaar import declare_discovery_extension
from x402.extensions.payment_identifier import PAYMENT_IDENTIFIER, declare_payment_identifier_extension
from x402.schemas import PaymentRequirements, ResourceInfo

from ranking_evaluate.contract.discovery import Announcement, announcements
from ranking_evaluate.operations import registry
from ranking_evaluate.payments.protocol import Challenge, Offer
from ranking_evaluate.payments.x402.resource import ANSWER, resource_of
from ranking_evaluate.payments.x402.wire import WIRE

MAX_CHALLENGE_BYTES: Final = 2_900
"""How long PAYMENT-REQUIRED may be.

A proxy gives the whole head of an answer 4,096 bytes unless it is told otherwise, and clients echo the challenge to
facilitators, of which one refused 3,564 bytes and took 2,996.
"""

MAX_KEPT: Final = 256


class Terms(NamedTuple):
    """A PaymentRequired object as a dictionary, without its purchase, and how long it is as JSON."""

    members: Mapping[str, Any]
    length: int


class Challenges:
    """Makes challenges; what is the same for every purchase of an operation is made once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int, str | None], tuple[Terms, ...]] = {}

    async def make(
        self, server: x402ResourceServer, requirements: Sequence[PaymentRequirements], offer: Offer, reason: str | None
    ) -> Challenge:
        """Return the PaymentRequired object as header and as members, equal to each other.

        Its payment-identifier holds the key of the purchase. Clients echo what a challenge declares, so their
        credential names this purchase without any code of theirs.
        """
        same = (offer.operation, offer.url, offer.amount, reason)
        terms = self._kept.get(same)
        if terms is None:
            terms = await _all_terms(server, requirements, offer, reason)
            # A facilitator may word its reasons as it likes.
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[same] = terms
        purchase = {} if offer.for_discovery else {"id": offer.key}
        members = _fullest(terms, len(orjson.dumps(purchase)))
        identifier = members["extensions"][PAYMENT_IDENTIFIER]
        named = {**identifier, "info": {**identifier["info"], **purchase}}
        members = {**members, "extensions": {**members["extensions"], PAYMENT_IDENTIFIER: named}}
        header = base64.b64encode(orjson.dumps(members)).decode()
        return Challenge({WIRE.challenge_header.lower(): header}, members)


def _fullest(terms: tuple[Terms, ...], more: int) -> Mapping[str, Any]:
    """Return the first terms that fit into the header with so many bytes more; the last ones, if none do."""
    fitting = (each.members for each in terms if base64_length(each.length + more) <= MAX_CHALLENGE_BYTES)
    return next(fitting, terms[-1].members)


def base64_length(length: int) -> int:
    """Return how long so many bytes are in base64."""
    return (length + 2) // 3 * 4


async def _all_terms(
    server: x402ResourceServer, requirements: Sequence[PaymentRequirements], offer: Offer, reason: str | None
) -> tuple[Terms, ...]:
    """Return the terms with all about the input, with less and less of it, with nothing, and at last without words."""
    # Whoever was refused knows the input, and the head of that answer may have a receipt to carry.
    announced = announcements(offer.operation) if reason is None else ()
    # Several networks and a long origin leave no room for sentences, and then none for the service's own tags and icon.
    choices = [
        *((each.description, _bazaar(each), False) for each in announced),
        *((each.description, _bazaar(each), True) for each in announced[-1:]),
        (offer.description, {}, False),
        (registry.find(offer.operation).name, {}, True),
    ]
    return tuple(
        [
            await _terms(server, requirements, reason, resource_of(offer, description, brief=brief), discovery)
            for description, discovery, brief in choices
        ]
    )


def _bazaar(announced: Announcement) -> dict[str, Any]:
    discovery = declare_discovery_extension(
        input=dict(announced.example), input_schema=announced.schema, body_type="json"
    )
    # The SDK leaves the method to its own middleware, which narrows the choices in the same way.
    discovery["bazaar"]["info"]["input"]["method"] = "POST"
    described = discovery["bazaar"]["schema"]["properties"]
    described["input"]["properties"]["method"]["enum"] = ["POST"]
    described["input"]["properties"]["bodyType"]["enum"] = ["json"]
    described["output"] = ANSWER
    return discovery


async def _terms(
    server: x402ResourceServer,
    requirements: Sequence[PaymentRequirements],
    reason: str | None,
    resource: ResourceInfo,
    discovery: Mapping[str, Any],
) -> Terms:
    # The SDK changes what it is given, so it gets something fresh every time.
    required = await server.create_payment_required_response(
        [each.model_copy(deep=True) for each in requirements],
        resource=resource,
        error=reason or "PAYMENT-SIGNATURE header is required",
        extensions={PAYMENT_IDENTIFIER: declare_payment_identifier_extension(required=True), **discovery},
    )
    members = required.model_dump(by_alias=True, exclude_none=True)
    return Terms(members, len(orjson.dumps(members)))
