"""What a facilitator lists a service by survives the SDK's own check of it."""

from __future__ import annotations

import pytest
from x402.extensions.bazaar.facilitator import _sanitize_resource_service_metadata

from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.order import offer_of
from ranking_evaluate.payments.x402.resource import resource_of


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_a_facilitator_keeps_name_tags_and_icon(operation: Operation[object]) -> None:
    url = f"https://rank.example/v1/x402/{operation.id}"
    offer = offer_of(operation, url=url, key="a-key-of-this-purchase", body=b"{}")
    resource = resource_of(offer, offer.description)
    described = resource.model_dump(by_alias=True)
    kept = _sanitize_resource_service_metadata(described)
    assert (kept.service_name, kept.tags, kept.icon_url) == (
        "ranking-evaluate",
        ["ranking", "retrieval"],
        "https://rank.example/favicon.ico",
    )
    assert described["serviceName"] == kept.service_name
    assert (described["url"], described["mimeType"]) == (url, "application/json")
