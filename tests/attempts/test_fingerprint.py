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
    "schema_sha256": "1e" * 32,
}


def test_it_is_the_sha256_of_the_canonical_json_of_what_is_bought() -> None:
    canonical = (
        f'{{"input":"{"0f" * 32}","op":"ranking.evaluate","protocol":"x402","release":"0.29.0","schema":"{"1e" * 32}"}}'
    )
    assert fingerprint(**BOUGHT) == hashlib.sha256(canonical.encode()).hexdigest()


def test_without_a_schema_it_has_the_form_of_release_0_29_0() -> None:
    canonical = f'{{"input":"{"0f" * 32}","op":"ranking.evaluate","protocol":"x402","release":"0.29.0"}}'
    former = {name: value for name, value in BOUGHT.items() if name != "schema_sha256"}
    assert fingerprint(**former) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("part", BOUGHT)
def test_each_part_makes_another_purchase(part: str) -> None:
    assert fingerprint(**{**BOUGHT, part: "f0" * 32}) != fingerprint(**BOUGHT)


def test_parts_that_trade_places_make_another_purchase() -> None:
    swapped = {**BOUGHT, "operation": BOUGHT["protocol"], "protocol": BOUGHT["operation"]}
    assert fingerprint(**swapped) != fingerprint(**BOUGHT)
