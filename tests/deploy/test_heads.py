"""Every 402 has a head that a proxy takes with its default buffers, and docs/operate.md says how long it is."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import httpx

from ranking_evaluate.http.heads import OTHER_BYTES
from ranking_evaluate.operations.registry import OPERATIONS
from tests.deploy.heads import LONGEST_KEY_BYTES, USUAL_ORIGIN, Asked, Caller, head_bytes
from tests.hostile.service import NETWORK, OTHER_NETWORKS, PAYEE, Neighbourhood, Service

HEAD_BYTES: Final = 3_800
CHALLENGE_BYTES: Final = 2_900
OPERATE: Final = Path(__file__).parents[2] / "docs" / "operate.md"
COLUMNS: Final = ("x402 unpaid", "x402 refused", "MPP unpaid", "MPP refused")


def asked_everything(place: Neighbourhood, service: Service, key_bytes: int = 36) -> list[Asked]:
    with httpx.Client(base_url=service.origin, trust_env=False, timeout=30) as client:
        ways = list(Caller(client, place.facilitator, key_bytes).ways())
    assert {way.answer.status_code for way in ways} == {402}
    return ways


def test_the_head_of_every_402_fits_at_the_longest_origin_with_the_longest_key(
    place: Neighbourhood, longest: Service
) -> None:
    for way in asked_everything(place, longest, LONGEST_KEY_BYTES):
        assert head_bytes(way.answer) <= HEAD_BYTES, way
        assert len(way.answer.headers.get("payment-required", "")) <= CHALLENGE_BYTES, way


def test_the_head_of_every_402_fits_with_as_many_networks_as_the_start_allows(place: Neighbourhood) -> None:
    networks = [NETWORK, *OTHER_NETWORKS]
    token = {"X402_ASSET": PAYEE, "X402_ASSET_NAME": "USD Coin", "X402_ASSET_VERSION": "2"}
    settings = {name: ",".join(f"{network}={value}" for network in networks) for name, value in token.items()}
    settings |= {"X402_NETWORK": ",".join(networks), "PUBLIC_ORIGIN": USUAL_ORIGIN}
    with place.running("many", **settings) as service:
        for way in asked_everything(place, service, LONGEST_KEY_BYTES):
            challenge = way.answer.headers.get("payment-required", "")
            assert head_bytes(way.answer) <= HEAD_BYTES, way
            assert len(challenge) <= CHALLENGE_BYTES, way
            if challenge:
                assert len(json.loads(base64.b64decode(challenge))["accepts"]) == len(networks)


def test_what_a_head_holds_beside_the_challenge_is_what_the_start_allows_for(
    place: Neighbourhood, longest: Service
) -> None:
    names = ("payment-required", "www-authenticate")
    for way in asked_everything(place, longest, LONGEST_KEY_BYTES):
        lines = [len(name) + len(value) + 4 for name, value in way.answer.headers.items() if name in names]
        receipt = len(way.answer.headers.get("payment-response", ""))
        # A receipt's reason may be longer than this one's: the facilitator's code has 80 characters at most.
        assert head_bytes(way.answer) - sum(lines) - receipt + 330 <= OTHER_BYTES, way


def rounded(ways: Iterable[Asked]) -> int:
    return max(-(-head_bytes(way.answer) // 100) * 100 for way in ways)


def test_the_documented_sizes_are_those_of_the_service(place: Neighbourhood, usual: Service, longest: Service) -> None:
    ways, longest_ways = asked_everything(place, usual), asked_everything(place, longest, LONGEST_KEY_BYTES)
    rows = {
        operation.id: [rounded(way for way in ways if way[:2] == (name, operation.id)) for name in COLUMNS]
        for operation in OPERATIONS
    }
    rows["longest origin and key"] = [rounded(way for way in longest_ways if way.name == name) for name in COLUMNS]
    written = "".join(f"| {' | '.join((row, *(f'{size:,}' for size in sizes)))} |\n" for row, sizes in rows.items())
    table = re.search(r"\n\| bytes, rounded up \|.*\n\|.*\n((?:\|.*\n)+)", OPERATE.read_text(encoding="utf-8"))
    assert table
    assert table[1] == written
