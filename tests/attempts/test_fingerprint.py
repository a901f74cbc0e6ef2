"""What makes two requests the same purchase."""

from __future__ import annotations

import hashlib

import pytest

from ranking_evaluate.attempts.fingerprint import fingerprint

BOUGHT = {
    "operation": "ranking.evaluate",
    "protocol": "x402",
    "release": "0.29.0",
    "input_sha256": "0f" * 32,
}


def test_it_is_the_sha256_of_the_canonical_json_of_what_is_bought() -> None:
    canonical = f'{{"input":"{"0f" * 32}","op":"ranking.evaluate","protocol":"x402","release":"0.29.0"}}'
    assert fingerprint(**BOUGHT) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("part", BOUGHT)
def test_each_part_makes_another_purchase(part: str) -> None:
    assert fingerprint(**{**BOUGHT, part: "f0" * 32}) != fingerprint(**BOUGHT)


def test_parts_that_trade_places_make_another_purchase() -> None:
    swapped = {**BOUGHT, "operation": BOUGHT["protocol"], "protocol": BOUGHT["operation"]}
    assert fingerprint(**swapped) != fingerprint(**BOUGHT)
