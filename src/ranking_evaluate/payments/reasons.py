"""What the reason codes of x402 facilitators mean; `tests/payments/published_reasons.py` lists who publishes which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_CODE: Final = re.compile(r"[a-z0-9_]{1,80}")

_EXACT_EVM: Final = "invalid_exact_evm_"
_AUTHORIZATION: Final = f"{_EXACT_EVM}payload_authorization_"

REFUSED_BEFORE_BROADCAST: Final = frozenset(
    {
        # The Python SDK's words.
        f"{_EXACT_EVM}payload_signature",
        f"{_EXACT_EVM}payload_recipient_mismatch",
        f"{_AUTHORIZATION}value_mismatch",
        f"{_AUTHORIZATION}valid_after",
        f"{_EXACT_EVM}token_name_mismatch",
        f"{_EXACT_EVM}token_version_mismatch",
        f"{_EXACT_EVM}eip3009_not_supported",
        "network_mismatch",
        "unsupported_scheme",
        "invalid_payload",
        "invalid_payment_requirements",
        "missing_eip712_domain",
        "asset_not_deployed_contract",
        "eip6492_factory_not_allowed",
        f"{_EXACT_EVM}payload_undeployed_smart_wallet",
        # The TypeScript and Go SDKs' words for the same.
        f"{_EXACT_EVM}signature",
        f"{_EXACT_EVM}recipient_mismatch",
        f"{_EXACT_EVM}network_mismatch",
        f"{_EXACT_EVM}scheme",
        f"{_EXACT_EVM}missing_eip712_domain",
        f"{_EXACT_EVM}authorization_value",
        # CDP's.
        "invalid_scheme",
        "invalid_network",
        "invalid_x402_version",
        "invalid_amount",
        "invalid_bazaar_extension",
        f"{_AUTHORIZATION}value",
        f"{_AUTHORIZATION}value_too_low",
        f"{_AUTHORIZATION}typed_data_message",
        "self_send_not_allowed",
        "amount_too_low",
    }
)
"""Reasons given before any broadcast, still true if a first copy of the call landed (docs/lifecycle.md, section 5).

A lack of money is not among them: a gateway may ask twice, a facilitator without gas speaks of it too, and a signer
that spoke so after it had broadcast was seen. Neither is a failed simulation: a second copy gets one once the first has
landed.
"""

MAY_FOLLOW_A_PAYMENT: Final = frozenset(
    {
        f"{_EXACT_EVM}transaction_simulation_failed",
        f"{_EXACT_EVM}insufficient_balance",
        f"{_EXACT_EVM}insufficient_funds",
        "insufficient_funds",
        "transaction_simulation",
        "preflight_validation_failed",
    }
)
"""Reasons of /verify that a payment by this very authorization would bring about, so that the chain is asked."""

_POOR: Final = "the wallet holds less than the price"
_SIGNATURE: Final = "the signature is not the payer's"
_RECIPIENT: Final = "the authorization pays somebody else"
_AMOUNT: Final = "the authorization is for another amount"
_EARLY: Final = "the authorization is not valid yet"
_EXPIRED: Final = "the authorization has expired"
_WOULD_FAIL: Final = "the transfer would fail on the chain"

_WORDS: Final[Mapping[str, str]] = {
    f"{_EXACT_EVM}insufficient_balance": _POOR,
    f"{_EXACT_EVM}insufficient_funds": _POOR,
    "insufficient_funds": _POOR,
    f"{_EXACT_EVM}payload_signature": _SIGNATURE,
    f"{_EXACT_EVM}signature": _SIGNATURE,
    "invalid_signature": _SIGNATURE,
    f"{_EXACT_EVM}payload_recipient_mismatch": _RECIPIENT,
    f"{_EXACT_EVM}recipient_mismatch": _RECIPIENT,
    "recipient_mismatch": _RECIPIENT,
    f"{_AUTHORIZATION}value_mismatch": _AMOUNT,
    f"{_EXACT_EVM}authorization_value": _AMOUNT,
    f"{_AUTHORIZATION}value": _AMOUNT,
    f"{_AUTHORIZATION}value_too_low": _AMOUNT,
    "invalid_payment_amount": _AMOUNT,
    f"{_AUTHORIZATION}valid_after": _EARLY,
    "invalid_payment_early": _EARLY,
    f"{_AUTHORIZATION}valid_before": _EXPIRED,
    "invalid_payment_expired": _EXPIRED,
    f"{_EXACT_EVM}transaction_simulation_failed": _WOULD_FAIL,
    "transaction_simulation": _WOULD_FAIL,
    f"{_EXACT_EVM}payload_undeployed_smart_wallet": "the paying smart wallet is not on the chain yet",
    "eip6492_factory_not_allowed": "the paying smart wallet is not on the chain yet",
}


def code_of(reason: object) -> str | None:
    """Return a facilitator's reason where it is a plain code; its free text is nobody's to keep."""
    return reason if isinstance(reason, str) and _CODE.fullmatch(reason) else None


def in_words(reason: object) -> str:
    """Return a facilitator's reason in our own words; of its own text only a plain code is let through."""
    code = code_of(reason)
    if code is None:
        return "the facilitator gave no reason"
    return _WORDS.get(code, f"the facilitator's reason is {code}")
