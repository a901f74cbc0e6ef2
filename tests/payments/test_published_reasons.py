"""What facilitators publish, code by code, is what the table says here; the table is complete for what is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from x402.mechanisms.evm import constants

from ranking_evaluate.payments.facilitator import Answer, classify_settlement, classify_verification
from ranking_evaluate.payments.reasons import MAY_FOLLOW_A_PAYMENT, REFUSED_BEFORE_BROADCAST
from tests.payments.published_reasons import ASK_CHAIN, CDP, PUBLISHED, PYTHON, TYPESCRIPT, Reason, codes

PAYER: Final = "0x" + "11" * 20
NETWORK: Final = "eip155:84532"
TYPESCRIPT_FILE: Final = Path(__file__).parents[2] / "node_modules/@x402/evm/dist/cjs/exact/facilitator/index.js"

OTHER_SCHEMES: Final = ("permit2", "erc20", "eip2612", "upto", "batch_settlement", "svm", "solana")


def ours(published: set[str]) -> set[str]:
    """Return the codes that an exact payment by an EIP-3009 authorization can meet."""
    return {code for code in published if not any(scheme in code for scheme in OTHER_SCHEMES)}


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda reason: f"{reason.source.split(' ')[0]}-{reason.code}")
def test_a_published_reason_becomes_what_the_table_says(published: Reason) -> None:
    refusal = {"success": False, "errorReason": published.code, "transaction": "", "payer": PAYER, "network": NETWORK}
    settled = classify_settlement(Answer(200, refusal), network=NETWORK, payer=PAYER)
    assert type(settled).__name__ == published.settle, published.why
    invalid = {"isValid": False, "invalidReason": published.code, "payer": PAYER}
    verified = classify_verification(Answer(200, invalid), payer=PAYER)
    asks = ", if the chain shows no use" if published.code in MAY_FOLLOW_A_PAYMENT else ""
    assert type(verified).__name__ + asks == published.verify, published.why


def test_sources_agree_about_a_code() -> None:
    said: dict[str, set[tuple[str, str]]] = {}
    for reason in PUBLISHED:
        said.setdefault(reason.code, set()).add((reason.settle, reason.verify))
    assert {code: what for code, what in said.items() if len(what) > 1} == {}
    assert len(PUBLISHED) == len({(reason.source, reason.code) for reason in PUBLISHED})


def test_every_reason_that_is_definite_or_asked_about_is_published_by_somebody() -> None:
    assert {reason.code for reason in PUBLISHED if reason.settle == "Refused"} == REFUSED_BEFORE_BROADCAST
    assert {reason.code for reason in PUBLISHED if reason.verify == ASK_CHAIN} == MAY_FOLLOW_A_PAYMENT


def test_the_table_has_every_reason_of_the_python_sdk() -> None:
    published = {value for name, value in vars(constants).items() if name.startswith("ERR_")}
    assert codes(PYTHON) == ours(published)


@pytest.mark.beyond_unit
@pytest.mark.skipif(not TYPESCRIPT_FILE.exists(), reason="npm's packages are not installed")
def test_the_table_has_every_reason_of_the_typescript_sdk() -> None:
    published = set(re.findall(r'\bErr\w+ = "([^"]+)"', TYPESCRIPT_FILE.read_text(encoding="utf-8")))
    assert codes(TYPESCRIPT) == ours(published)


@pytest.mark.beyond_unit
def test_the_table_has_every_reason_of_cdp() -> None:
    models = [
        pytest.importorskip(f"cdp.openapi_client.models.{module}", reason="the extra [cdp] is not installed")
        for module in ("x402_settle_error_reason", "x402_verify_invalid_reason")
    ]
    enums = (models[0].X402SettleErrorReason, models[1].X402VerifyInvalidReason)
    published = {reason.value for enum in enums for reason in enum}
    assert codes(CDP) == ours(published)
