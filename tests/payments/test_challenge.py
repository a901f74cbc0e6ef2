"""The x402 challenge names the purchase, and fits into its header wherever the service stands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from x402.http.utils import decode_payment_required_header

from ranking_evaluate.contract.schema import input_schema
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.order import offer_of
from ranking_evaluate.payments.config import USDC, X402Config, X402Network
from ranking_evaluate.payments.x402.challenge import MAX_KEPT
from ranking_evaluate.payments.x402.protocol import X402Protocol
from tests.faults.facilitator import FaultyFacilitator, ledger_only

NETWORK = "eip155:8453"


@pytest.fixture(scope="module")
def protocol() -> X402Protocol:

    async def connected(facilitator_url: str) -> X402Protocol:
        made = X402Protocol(
            X402Config(
                pay_to="0x" + "11" * 20,
                networks=(X402Network(NETWORK, USDC[NETWORK]),),
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


ORIGINS = ["https://a.io", f"https://{'long-name.' * 10}example", f"https://{'n' * 253}:65535"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
@pytest.mark.parametrize("origin", ORIGINS, ids=len)
@pytest.mark.parametrize("key", ["k" * 16, "k" * 128], ids=len)
@pytest.mark.parametrize("reason", [None, "what it accepts is not what is asked: " * 3], ids=["unpaid", "refused"])
def test_a_challenge_fits_into_its_header(
    protocol: X402Protocol, operation: Operation[Any], origin: str, key: str, reason: str | None
) -> None:
    offer = offer_of(operation, url=f"{origin}/v1/x402/{operation.id}", key=key, body=b"{}")
    challenge = asyncio.run(protocol.challenge(offer, reason))
    assert len(challenge.headers["payment-required"]) <= 2_900
    assert decode_payment_required_header(challenge.headers["payment-required"]).model_dump(
        by_alias=True, exclude_none=True
    ) == dict(challenge.members)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_the_members_of_the_input_are_announced_with_a_key_and_an_origin_of_usual_length(
    protocol: X402Protocol, operation: Operation[Any]
) -> None:
    url = f"https://ranking-evaluate.example.com/v1/x402/{operation.id}"
    members: Any = asyncio.run(protocol.challenge(offer_of(operation, url=url, key="k" * 36, body=b"{}"))).members
    announced = members["extensions"]["bazaar"]["schema"]["properties"]["input"]["properties"]["body"]
    assert set(announced["properties"]) == set(input_schema(operation)["properties"])


def on_networks(count: int) -> X402Protocol:
    networks = [X402Network(f"eip155:{number}", USDC[NETWORK]) for number in range(43_110, 43_110 + count)]
    return X402Protocol(
        X402Config(pay_to="0x" + "11" * 20, networks=tuple(networks), facilitator_url="http://127.0.0.1:1")
    )


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_with_two_networks_every_operation_shows_an_example(operation: Operation[Any]) -> None:
    url = f"https://ranking-evaluate.agents.example.com/v1/x402/{operation.id}"
    offer = offer_of(operation, url=url, key="k" * 36, body=b"{}")
    members: Any = asyncio.run(on_networks(2).challenge(offer)).members
    example = members["extensions"]["bazaar"]["info"]["input"]["body"]
    assert example in (operation.example_input, operation.short_input)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
@pytest.mark.parametrize("reason", [None, "r" * 120], ids=["unpaid", "refused"])
def test_four_networks_fit_at_any_origin_and_eight_at_none(operation: Operation[Any], reason: str | None) -> None:
    for count, origin, fits in ((4, ORIGINS[-1], True), (8, ORIGINS[0], False)):
        offer = offer_of(operation, url=f"{origin}/v1/x402/{operation.id}", key="k" * 128, body=b"{}")
        challenge = asyncio.run(on_networks(count).challenge(offer, reason))
        assert (len(challenge.headers["payment-required"]) <= 2_900) is fits, count


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_facilitators_take_the_description(operation: Operation[Any]) -> None:
    assert len(operation.description) <= 500


def test_a_challenge_names_the_purchase_that_it_is_for(protocol: X402Protocol) -> None:
    asked = offer_of(OPERATIONS[0], url="https://a.io/", key="a" * 16, body=b"{}")
    for offer, reason, purchase in (
        (asked, None, {"id": "a" * 16}),
        (asked, "no", {"id": "a" * 16}),
        (replace(asked, key="b" * 16), None, {"id": "b" * 16}),
        (replace(asked, for_discovery=True), None, {}),
    ):
        members: Any = asyncio.run(protocol.challenge(offer, reason)).members
        assert members["extensions"]["payment-identifier"]["info"] == {"required": True, **purchase}


def test_a_refused_client_is_not_told_again_what_the_input_looks_like(protocol: X402Protocol) -> None:
    offer = offer_of(OPERATIONS[0], url="https://a.io/", key="a" * 16, body=b"{}")
    assert set(asyncio.run(protocol.challenge(offer, "no")).members["extensions"]) == {"payment-identifier"}  # type: ignore[call-overload]
    assert asyncio.run(protocol.challenge(offer, "no")).members["error"] == "no"


def test_what_is_announced_is_what_the_challenge_asks(protocol: X402Protocol) -> None:
    for operation in OPERATIONS:
        offer = offer_of(operation, url="https://a.io/", key="k" * 16, body=b"{}")
        members: Any = asyncio.run(protocol.challenge(offer)).members
        assert list(protocol.announce(operation.price_base_units).accepts) == members["accepts"]


def test_no_more_terms_are_kept_than_the_limit(protocol: X402Protocol) -> None:
    offer = offer_of(OPERATIONS[0], url="https://a.io/", key="a" * 16, body=b"{}")

    async def challenges() -> None:
        for number in range(2 * MAX_KEPT):
            await protocol.challenge(offer, f"reason {number}")

    asyncio.run(challenges())
    assert 0 < len(protocol._challenges._kept) <= MAX_KEPT
