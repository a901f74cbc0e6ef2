"""No mutation of a body or of a credential makes the service fail, and its memory does not grow."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest

from tests.hostile.service import HOST, JSON, KEY, MPP_PATH, PATH, Service, request
from tests.hostile.torture import BODIES, soak, torture

ROWS: Final = [json.loads(text) for text in BODIES.read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['id']}: {row['why']}" for row in ROWS])
def test_every_hostile_body_gets_the_status_and_code_of_its_row(service: Service, row: dict[str, Any]) -> None:
    body = base64.b64decode(row["bodyBase64"])
    for path in (PATH, MPP_PATH):
        answer = service.send(request(HOST, JSON, f"Idempotency-Key: {KEY}", path=path, body=body))
        assert (answer.status, answer.code) == (row["status"], answer.code)
        assert answer.code in row["codes"]


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
