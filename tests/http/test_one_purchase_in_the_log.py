"""One purchase end to end: one digest of its key finds all its lines, and its row names the request that paid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest

from ranking_evaluate.payments.protocol import Rejected, Uncertain
from tests.http.conftest import JSON, KEY, SETTLED, Service

pytestmark = pytest.mark.anyio

DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


async def test_all_lines_about_one_key_are_found_by_one_digest(service: Service, logs: Callable[[], str]) -> None:
    unpaid = await service.post()
    paid = await service.pay()
    again = await service.pay()
    asked = await service.client.get("/v1/attempts", headers={"Idempotency-Key": KEY})
    # Another purchase, whose key begins as this one's does.
    await service.pay("other", f"{KEY[:12]}-of-somebody-else")
    lines = [json.loads(line) for line in logs().splitlines()]
    found = [line for line in lines if line.get("key_digest") == DIGEST[:16]]
    ids = [answer.headers["x-request-id"] for answer in (unpaid, paid, again, asked)]
    assert [(line["event"], line["request_id"]) for line in found] == [
        ("request", ids[0]),
        ("settle outcome", ids[1]),
        ("request", ids[1]),
        ("request", ids[2]),
        ("request", ids[3]),
    ]
    assert found[1]["transaction"] == SETTLED.transaction
    row = (await service.store.read(KEY)).current
    assert row is not None
    assert row.request_id == ids[1]
    # The books hold the whole of the digest.
    (sale,) = await service.store.sales_of(KEY)
    assert sale.key_sha256 == DIGEST
    assert KEY not in logs()


async def test_what_is_refused_or_unknown_is_found_as_well(service: Service, logs: Callable[[], str]) -> None:
    service.protocol.verifier = lambda signed: Rejected("no money")
    await service.pay()
    service.protocol.verifier = type(service.protocol)().verifier
    service.protocol.settler = lambda signed, offer: Uncertain("no answer", "pending", "0xreported")
    uncertain = await service.pay("second")
    found = [line for line in map(json.loads, logs().splitlines()) if line.get("key_digest") == DIGEST[:16]]
    assert [line["event"] for line in found] == ["verification outcome", "request", "settle outcome", "request"]
    assert (found[2]["transaction"], found[2]["reported_transaction"]) == (None, "0xreported")
    row = (await service.store.read(KEY)).current
    assert row is not None
    assert row.request_id == uncertain.headers["x-request-id"]


async def test_a_request_without_a_good_key_has_no_digest(service: Service, logs: Callable[[], str]) -> None:
    await service.post(("Idempotency-Key", "short"), *JSON.items())
    await service.client.get("/v1/attempts")
    assert "key_digest" not in logs()
