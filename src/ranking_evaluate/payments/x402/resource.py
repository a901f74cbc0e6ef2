"""What the challenge says of the thing that is sold: facilitators list it by these words, and people see them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urljoin

from x402.schemas import ResourceInfo

from ranking_evaluate.contract import icon
from ranking_evaluate.payments.protocol import Offer

SERVICE_NAME: Final = "ranking-evaluate"
TAGS: Final = ("ranking", "retrieval")

ANSWER: Final = {"properties": {"example": {"type": "object"}}}
"""What the challenge says of the answer: that it is a JSON object.

Indexers count an endpoint that says nothing of it as broken. Its own schema would triple the header, which clients
echo; it stands in the service contract and in OpenAPI.
"""


def resource_of(offer: Offer, description: str, *, brief: bool = False) -> ResourceInfo:
    """Return the resource of a challenge, with the metadata that specs/extensions/bazaar.md of x402 names.

    A brief one is without tags and icon, for where there is no room.
    """
    return ResourceInfo(
        url=offer.url,
        description=description,
        mime_type="application/json",
        service_name=SERVICE_NAME,
        tags=None if brief else list(TAGS),
        icon_url=None if brief else urljoin(offer.url, icon.PATH),
    )
