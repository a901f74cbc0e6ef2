"""The reason codes that facilitators publish for exact payments on EVM chains, and what each becomes here.

A code at /settle is REFUSED only if it is given before any broadcast **and** stays true if a first copy of the call has
landed meanwhile; anything else is UNCERTAIN. At /verify nothing is sent, so that a code is REJECTED (a 402) unless a
payment by this very authorization could have brought it about: SPENT says that it did; ASK_CHAIN says that the chain is
asked where there is a node, and that the code is REJECTED where it shows no use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

REFUSED, UNCERTAIN = "Refused", "Uncertain"
REJECTED, ASK_CHAIN, SPENT = "Rejected", "Rejected, if the chain shows no use", "Spent"

PYTHON: Final = "x402 2.25 (PyPI), mechanisms/evm/constants.py"
TYPESCRIPT: Final = "@x402/evm 2.27 (npm), exact/facilitator"
GO: Final = "x402-foundation/x402, go/mechanisms/evm/exact/facilitator/errors.go"
RUST: Final = "x402-rs/x402-rs, ErrorReason of its types"
CDP: Final = "cdp-sdk 1.51 (PyPI), X402SettleErrorReason and X402VerifyInvalidReason"

STATIC: Final = "compares what was sent with what is asked; no chain changes that"
SIGNATURE: Final = "checks the signature before a broadcast; a landed copy changes no signature"
EARLY: Final = "the chain takes no copy before its time either"
WALLET: Final = "refuses the kind of wallet before a broadcast"
ASSET: Final = "reads what the token is before a broadcast"
BALANCE: Final = "a landed copy empties a wallet, and a facilitator without gas says it too"
SIMULATION: Final = "a landed copy makes every later simulation fail"
NONCE: Final = "says itself that the authorization was used"
EXPIRED: Final = "a first copy may have landed before the end"
BROADCAST: Final = "is said after a broadcast, or may be"
READ: Final = "a question to a node failed; the same words cover questions after a broadcast"
SCREENED: Final = "screening may judge two copies of a call differently"
BARE: Final = "a bare word, which another facilitator may give another sense"
GENERIC: Final = "wraps any failure"
PARSED: Final = "parses the payload; not on the list, since nobody was seen to say it after a good /verify"


class Reason(NamedTuple):
    """One published code: who publishes it, what it becomes at /settle and at /verify, and why."""

    source: str
    code: str
    settle: str
    verify: str
    why: str


_E: Final = "invalid_exact_evm_"
_A: Final = f"{_E}payload_authorization_"

_EVERYONE: Final = (
    (f"{_E}insufficient_balance", UNCERTAIN, ASK_CHAIN, BALANCE),
    (f"{_E}nonce_already_used", UNCERTAIN, SPENT, NONCE),
    (f"{_A}valid_after", REFUSED, REJECTED, EARLY),
    (f"{_A}valid_before", UNCERTAIN, REJECTED, EXPIRED),
    (f"{_E}payload_undeployed_smart_wallet", REFUSED, REJECTED, WALLET),
    ("smart_wallet_deployment_failed", UNCERTAIN, REJECTED, BROADCAST),
)
_TOKENS: Final = (
    (f"{_E}token_name_mismatch", REFUSED, REJECTED, ASSET),
    (f"{_E}token_version_mismatch", REFUSED, REJECTED, ASSET),
    (f"{_E}eip3009_not_supported", REFUSED, REJECTED, ASSET),
    (f"{_E}transaction_simulation_failed", UNCERTAIN, ASK_CHAIN, SIMULATION),
)
_LATER: Final = (
    (f"{_E}transfer_event_mismatch", UNCERTAIN, REJECTED, BROADCAST),
    ("settlement_pending", UNCERTAIN, REJECTED, BROADCAST),
    ("asset_not_deployed_contract", REFUSED, REJECTED, ASSET),
    ("eip6492_factory_not_allowed", REFUSED, REJECTED, WALLET),
)
_TYPESCRIPT_AND_GO: Final = (
    (f"{_E}signature", REFUSED, REJECTED, SIGNATURE),
    (f"{_E}recipient_mismatch", REFUSED, REJECTED, STATIC),
    (f"{_E}network_mismatch", REFUSED, REJECTED, STATIC),
    (f"{_E}scheme", REFUSED, REJECTED, STATIC),
    (f"{_E}authorization_value", REFUSED, REJECTED, STATIC),
    (f"{_E}failed_to_parse_signature", UNCERTAIN, REJECTED, PARSED),
    (f"{_E}transaction_failed", UNCERTAIN, REJECTED, BROADCAST),
    ("unsupported_payload_type", UNCERTAIN, REJECTED, PARSED),
)
_GO_AND_CDP: Final = (
    (f"{_E}payload", UNCERTAIN, REJECTED, PARSED),
    (f"{_E}payload_missing_signature", UNCERTAIN, REJECTED, PARSED),
    (f"{_E}failed_to_get_network_config", UNCERTAIN, REJECTED, READ),
    (f"{_E}required_amount", UNCERTAIN, REJECTED, PARSED),
    (f"{_E}failed_to_check_nonce", UNCERTAIN, REJECTED, READ),
    (f"{_E}failed_to_get_balance", UNCERTAIN, REJECTED, READ),
    (f"{_E}signature_format", UNCERTAIN, REJECTED, PARSED),
    (f"{_E}failed_to_verify_signature", UNCERTAIN, REJECTED, READ),
    (f"{_E}verification_failed", UNCERTAIN, REJECTED, GENERIC),
    (f"{_E}failed_to_check_deployment", UNCERTAIN, REJECTED, READ),
    (f"{_E}failed_to_execute_transfer", UNCERTAIN, REJECTED, BROADCAST),
    (f"{_E}failed_to_get_receipt", UNCERTAIN, REJECTED, BROADCAST),
)

_BY_SOURCE: Final = {
    PYTHON: (
        *_EVERYONE,
        *_TOKENS,
        *_LATER,
        (f"{_A}value_mismatch", REFUSED, REJECTED, STATIC),
        (f"{_E}payload_signature", REFUSED, REJECTED, SIGNATURE),
        (f"{_E}payload_recipient_mismatch", REFUSED, REJECTED, STATIC),
        ("network_mismatch", REFUSED, REJECTED, STATIC),
        ("unsupported_scheme", REFUSED, REJECTED, STATIC),
        ("missing_eip712_domain", REFUSED, REJECTED, STATIC),
        ("transaction_failed", UNCERTAIN, REJECTED, "the payer was seen debited beside it"),
        (f"{_E}failed_to_get_network_config", UNCERTAIN, REJECTED, READ),
        (f"{_E}failed_to_get_asset_info", UNCERTAIN, REJECTED, READ),
        (f"{_E}failed_to_verify_signature", UNCERTAIN, REJECTED, READ),
    ),
    TYPESCRIPT: (
        *(row for row in _EVERYONE if row[0] != f"{_E}payload_undeployed_smart_wallet"),
        *_TOKENS,
        *_LATER,
        *_TYPESCRIPT_AND_GO,
        (f"{_A}value_mismatch", REFUSED, REJECTED, STATIC),
        (f"{_E}missing_eip712_domain", REFUSED, REJECTED, STATIC),
        ("invalid_transaction_state", UNCERTAIN, REJECTED, BROADCAST),
    ),
    GO: (
        *_EVERYONE,
        *_TYPESCRIPT_AND_GO,
        *_GO_AND_CDP,
        (f"{_E}missing_eip712_domain", REFUSED, REJECTED, STATIC),
        (f"{_E}failed_to_get_asset_info", UNCERTAIN, REJECTED, READ),
        (f"{_E}insufficient_amount", UNCERTAIN, REJECTED, PARSED),
    ),
    RUST: (
        ("unsupported_scheme", REFUSED, REJECTED, STATIC),
        ("invalid_format", UNCERTAIN, REJECTED, BARE),
        ("invalid_payment_amount", UNCERTAIN, REJECTED, BARE),
        ("invalid_payment_early", UNCERTAIN, REJECTED, BARE),
        ("invalid_payment_expired", UNCERTAIN, REJECTED, EXPIRED),
        ("chain_id_mismatch", UNCERTAIN, REJECTED, BARE),
        ("recipient_mismatch", UNCERTAIN, REJECTED, BARE),
        ("asset_mismatch", UNCERTAIN, REJECTED, BARE),
        ("accepted_requirements_mismatch", UNCERTAIN, REJECTED, BARE),
        ("invalid_signature", UNCERTAIN, REJECTED, BARE),
        ("unsupported_chain", UNCERTAIN, REJECTED, BARE),
        ("transaction_simulation", UNCERTAIN, ASK_CHAIN, SIMULATION),
        ("insufficient_funds", UNCERTAIN, ASK_CHAIN, "reads the balance before the nonce; " + BALANCE),
        ("nonce_already_used", UNCERTAIN, SPENT, NONCE),
        ("unexpected_error", UNCERTAIN, REJECTED, GENERIC),
    ),
    CDP: (
        *_EVERYONE,
        *_TOKENS,
        *_TYPESCRIPT_AND_GO,
        *_GO_AND_CDP,
        (f"{_A}value_mismatch", REFUSED, REJECTED, STATIC),
        (f"{_E}missing_eip712_domain", REFUSED, REJECTED, STATIC),
        (f"{_E}payload_signature", REFUSED, REJECTED, SIGNATURE),
        (f"{_E}payload_recipient_mismatch", REFUSED, REJECTED, STATIC),
        ("invalid_scheme", REFUSED, REJECTED, STATIC),
        ("invalid_network", REFUSED, REJECTED, STATIC),
        ("invalid_x402_version", REFUSED, REJECTED, STATIC),
        ("invalid_payment_requirements", REFUSED, REJECTED, STATIC),
        ("invalid_payload", REFUSED, REJECTED, STATIC),
        ("invalid_amount", REFUSED, REJECTED, STATIC),
        ("amount_too_low", REFUSED, REJECTED, STATIC),
        ("self_send_not_allowed", REFUSED, REJECTED, STATIC),
        ("invalid_bazaar_extension", REFUSED, REJECTED, STATIC),
        (f"{_A}value", REFUSED, REJECTED, STATIC),
        (f"{_A}value_too_low", REFUSED, REJECTED, STATIC),
        (f"{_A}typed_data_message", REFUSED, REJECTED, SIGNATURE),
        (f"{_E}payload_signature_address", UNCERTAIN, REJECTED, PARSED),
        (f"{_E}unsupported_scheme", UNCERTAIN, REJECTED, PARSED),
        (f"{_E}extra_field", UNCERTAIN, REJECTED, PARSED),
        (f"{_E}insufficient_funds", UNCERTAIN, ASK_CHAIN, BALANCE),
        ("insufficient_funds", UNCERTAIN, ASK_CHAIN, BALANCE),
        (f"{_E}transaction_state", UNCERTAIN, REJECTED, BROADCAST),
        (f"{_A}from_address_kyt", UNCERTAIN, REJECTED, SCREENED),
        (f"{_A}to_address_kyt", UNCERTAIN, REJECTED, SCREENED),
        ("kyt_risk_detected", UNCERTAIN, REJECTED, SCREENED),
        ("request_blocked_by_location", UNCERTAIN, REJECTED, SCREENED),
        ("preflight_validation_failed", UNCERTAIN, ASK_CHAIN, SIMULATION),
        ("settle_exact_evm_transaction_confirmation_timed_out", UNCERTAIN, REJECTED, BROADCAST),
        ("settle_exact_node_failure", UNCERTAIN, REJECTED, "came with the hash of a payment that had landed"),
        ("settle_exact_failed_onchain", UNCERTAIN, REJECTED, BROADCAST),
        ("settlement_pending", UNCERTAIN, REJECTED, BROADCAST),
        ("duplicate_settlement", UNCERTAIN, REJECTED, "says that a first copy is under way"),
        ("node_failure", UNCERTAIN, REJECTED, READ),
        ("unknown_error", UNCERTAIN, REJECTED, GENERIC),
    ),
}

PUBLISHED: Final = tuple(Reason(source, *row) for source, rows in _BY_SOURCE.items() for row in rows)


def codes(source: str) -> set[str]:
    """Return the codes that a source publishes."""
    return {reason.code for reason in PUBLISHED if reason.source == source}
