"""No mutation of a body or of a credential makes the service fail, and its memory does not grow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hostile.service import HOST, JSON, KEY, MPP_PATH, PATH, Service, request
from tests.hostile.torture import soak, torture
from tests.oracles.answer_keys import BODIES


@pytest.mark.parametrize("row", BODIES, ids=[f"{row['id']}: {row['why']}" for row in BODIES])
def test_every_hostile_body_gets_the_status_and_code_of_its_row(service: Service, row: dict[str, Any]) -> None:
    # What `evaluate` would answer has its price here.
    status, codes = (402, ["PAYMENT_REQUIRED"]) if row["status"] == 200 else (row["status"], row["codes"])
    for path in (PATH, MPP_PATH):
        answer = service.send(request(HOST, JSON, f"Idempotency-Key: {KEY}", path=path, body=row["body"]))
        assert answer.status == status
        assert answer.code in codes


def test_2000_mutations_of_bodies_and_credentials_give_no_5xx(service: Service) -> None:
    seen = torture(service, 2_000)
    assert {
        "402 PAYMENT_REQUIRED",
        "402 PAYMENT_REJECTED",
        "400 MALFORMED_JSON",
        "400 PAYMENT_MALFORMED",
    } <= seen.keys()


def test_memory_stays_flat(service: Service) -> None:
    soak(service, 2_000)
    before = service.memory()
    soak(service, 4_000)
    assert service.memory() - before < 4 * 2**20
