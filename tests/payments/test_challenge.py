"""The x402 challenge fits into its header wherever the service stands, and is made once for each that there is."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.order import offer_of
from ranking_evaluate.payments.config import USDC, X402Config
from ranking_evaluate.payments.protocol import Challenge
from ranking_evaluate.payments.x402.protocol import MAX_CHALLENGE_BYTES, MAX_KEPT_CHALLENGES, X402Protocol
from tests.faults.facilitator import FaultyFacilitator, ledger_only

NETWORK = "eip155:8453"


@pytest.fixture(scope="module")
def protocol() -> X402Protocol:
    token = USDC[NETWORK]

    async def connected(facilitator_url: str) -> X402Protocol:
        made = X402Protocol(
            X402Config(
                pay_to="0x" + "11" * 20,
                network=NETWORK,
                asset=token.asset,
                asset_name=token.name,
                asset_version=token.version,
                facilitator_url=facilitator_url,
            )
        )
        await made.start()
        await made.close()
        return made

    with FaultyFacilitator(ledger_only(NETWORK)) as facilitator:
        protocol = asyncio.run(connected(facilitator.url))
    assert protocol.ready().ready
    return protocol


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
@pytest.mark.parametrize("origin", ["https://a.io", f"https://{'long-name.' * 10}example"])
@pytest.mark.parametrize("reason", [None, "what it accepts is not what is asked: " * 3])
def test_a_challenge_fits_into_its_header(
    protocol: X402Protocol, operation: Operation[Any], origin: str, reason: str | None
) -> None:
    offer = offer_of(operation, url=f"{origin}/v1/x402/{operation.id}", key="k" * 128, body=b"{}")
    challenge = asyncio.run(protocol.challenge(offer, reason))
    assert len(challenge.headers["payment-required"]) <= MAX_CHALLENGE_BYTES


def test_what_is_announced_is_what_the_challenge_asks(protocol: X402Protocol) -> None:
    for operation in OPERATIONS:
        offer = offer_of(operation, url="https://a.io/", key="k" * 16, body=b"{}")
        members: Any = asyncio.run(protocol.challenge(offer)).members
        assert list(protocol.announce(operation.price_base_units).accepts) == members["accepts"]


def test_the_key_and_the_body_make_no_new_challenge_and_a_reason_does(protocol: X402Protocol) -> None:
    async def challenges() -> None:
        first = await protocol.challenge(offer_of(OPERATIONS[0], url="https://a.io/", key="a" * 16, body=b"{}"))
        again = await protocol.challenge(offer_of(OPERATIONS[0], url="https://a.io/", key="b" * 16, body=b"[]"))
        assert again is first
        refused = await protocol.challenge(offer_of(OPERATIONS[0], url="https://a.io/", key="a" * 16, body=b"{}"), "no")
        assert refused.members["error"] == "no"

    asyncio.run(challenges())


def test_no_more_challenges_are_kept_than_the_limit(protocol: X402Protocol) -> None:
    offer = offer_of(OPERATIONS[0], url="https://a.io/", key="a" * 16, body=b"{}")

    async def challenges() -> list[Challenge]:
        return [await protocol.challenge(offer, f"reason {number}") for number in range(2 * MAX_KEPT_CHALLENGES)]

    started = time.perf_counter()
    kept = sum(first is again for first, again in zip(*[asyncio.run(challenges()) for _ in range(2)], strict=True))
    assert kept <= MAX_KEPT_CHALLENGES
    assert time.perf_counter() - started < 30
