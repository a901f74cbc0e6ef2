"""Paying over x402 with the official client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import httpx

from ranking_evaluate.cli.payers.payer import (
    LOCAL_CHAINS,
    Mandate,
    Payer,
    PayError,
    ReceiptFacts,
    Signed,
    account_of,
    check_price,
    nothing_payable,
)
from ranking_evaluate.core.visible import visible
from ranking_evaluate.payments.x402.wire import WIRE

if TYPE_CHECKING:
    from x402.schemas import PaymentRequirements

# A signature that lives longer than this is more than one purchase needs.
LONGEST_AUTHORIZATION_SECONDS: Final = 900

LOCAL_DECIMALS: Final = 6
"""Those of a token on a chain of one's own, such as the sandbox's."""


def sign(challenge: httpx.Response, mandate: Mandate) -> Signed:
    """Answer a 402's PAYMENT-REQUIRED header with the official client, within the mandate.

    The client may pay exactly one offer: an EIP-3009 transfer ("exact", on an EVM chain) of the mandate's asset. A
    mandate without one takes the dollars that the SDK knows for the chain, and on a local chain whatever is offered.

    Raises:
        PayError: There is no offer that the mandate allows; nothing was signed.
    """
    from eth_account import Account
    from x402 import x402ClientSync
    from x402.extensions.payment_identifier import (
        PAYMENT_IDENTIFIER,
        append_payment_identifier_to_extensions,
        is_payment_identifier_extension,
    )
    from x402.http import x402HTTPClientSync
    from x402.mechanisms.evm.default_assets import DEFAULT_ASSETS
    from x402.mechanisms.evm.exact import register_exact_evm_client
    from x402.schemas import PaymentCreationContext, PaymentRequired

    client = x402ClientSync()
    wire = x402HTTPClientSync(client)
    try:
        required = wire.get_payment_required_response(challenge.headers.get, challenge.content)
    except Exception as error:
        # The SDK expects an object; a header may hold anything.
        raise PayError("The 402 carries no x402 offer that can be read. Nothing was paid.") from error
    if not isinstance(required, PaymentRequired):
        raise PayError("The offer is of x402 version 1; version 2 is paid here. Nothing was paid.")
    # A declaration of another form gets no identifier from the SDK, and the payment would go out without one.
    if not is_payment_identifier_extension((required.extensions or {}).get(PAYMENT_IDENTIFIER)):
        raise PayError(
            "The offer is not tied to an idempotency key (the server declares no payment-identifier), so an answer "
            "that is lost could not be asked for again. Nothing was paid."
        )
    if not required.accepts:
        raise PayError("The 402 offers nothing. Nothing was paid.")

    prices: list[tuple[Decimal, PaymentRequirements]] = []
    reasons = []
    for offer in required.accepts:
        known = {entry["asset"].lower(): entry["decimals"] for entry in DEFAULT_ASSETS.get(offer.network, [])}
        decimals = _decimals(offer.network, offer.asset, known, mandate)
        reason = _why_not(offer.scheme, offer.extra or {}, offer.amount) or _why_not_in(
            offer.network, offer.asset, decimals, mandate
        )
        if reason is not None:
            reasons.append(f"{offer.scheme} of {offer.asset} on {offer.network}: {reason}")
        elif decimals is not None:
            prices.append((Decimal(offer.amount).scaleb(-decimals), offer))
    if not prices:
        raise nothing_payable(reasons)
    cost, offer = min(prices, key=lambda pair: pair[0])
    check_price(cost, mandate)
    if not 0 < offer.max_timeout_seconds <= LONGEST_AUTHORIZATION_SECONDS:
        raise PayError(f"The offer asks for a signature valid for {offer.max_timeout_seconds} s. Nothing was paid.")

    def add_identifier(context: PaymentCreationContext) -> None:
        if isinstance(context.payment_required, PaymentRequired) and context.payment_required.extensions is not None:
            append_payment_identifier_to_extensions(context.payment_required.extensions, mandate.key)

    client.on_before_payment_creation(add_identifier)
    client.set_spend_controls(
        {
            "allowed_assets": [
                {"network": offer.network, "asset": offer.asset, "max_amount_per_payment": offer.amount},
            ]
        }
    )
    account = account_of(Account.from_key, mandate)
    register_exact_evm_client(client, account, networks=offer.network)
    try:
        payload = client.create_payment_payload(required.model_copy(update={"accepts": [offer]}))
        ((header, value),) = wire.encode_payment_signature_header(payload).items()
    except Exception as error:
        # An offer may hold anything in its other members; nothing has been sent to anybody who could spend it.
        raise PayError(f"The offer cannot be signed ({type(error).__name__}). Nothing was paid.") from error
    return Signed(
        header=header,
        value=value,
        expires_at=int(payload.payload["authorization"]["validBefore"]),
        terms=visible(
            f"{cost.normalize():f} of {offer.asset} on {offer.network} from {account.address} to {offer.pay_to}"
        ),
    )


def _why_not(scheme: str, extra: Mapping[str, Any], amount: str) -> str | None:
    """Return why this kind of payment is not made, or None."""
    if scheme != "exact":
        return "only the scheme exact is paid"
    method = extra.get("assetTransferMethod", "eip3009")
    if method != "eip3009":
        return f"only EIP-3009 transfers are signed, not {method}"
    return None if re.fullmatch(r"[0-9]{1,40}", amount) else "its amount is not a whole number of base units"


def _why_not_in(network: str, asset: str, decimals: int | None, mandate: Mandate) -> str | None:
    """Return why there is no paying in this asset on this network, or None."""
    if mandate.network is not None and network != mandate.network:
        return f"another network than --network {mandate.network}"
    if re.fullmatch(r"eip155:[1-9][0-9]*", network) is None:
        return "no EVM network"
    if mandate.asset is not None and asset.lower() != mandate.asset.lower():
        return f"another asset than --asset {mandate.asset}"
    if decimals is not None:
        return None
    if mandate.asset is not None:
        return "the SDK does not know how many decimals this token has; name them with --decimals"
    return "the SDK knows no dollar of this address there; to pay with it all the same, name --asset and its --decimals"


def _decimals(network: str, asset: str, known: Mapping[str, int], mandate: Mandate) -> int | None:
    """Return the decimals of an asset that may be paid with, None for another one.

    Args:
        network: The chain of the offer.
        asset: The asset of the offer.
        known: The decimals of each dollar that the SDK knows on that chain.
        mandate: What may be paid with.
    """
    if mandate.asset is not None and asset.lower() != mandate.asset.lower():
        return None
    if asset.lower() in known:
        return known[asset.lower()]
    if network in {f"eip155:{number}" for number in LOCAL_CHAINS}:
        return LOCAL_DECIMALS if mandate.decimals is None else mandate.decimals
    return mandate.decimals if mandate.asset is not None and network.startswith("eip155:") else None


def facts(receipt: Mapping[str, Any]) -> ReceiptFacts:
    """Return what a PAYMENT-RESPONSE says."""
    return ReceiptFacts(
        success=receipt.get("success") is True,
        transaction=str(receipt.get("transaction") or ""),
        network=str(receipt.get("network", "")),
        payer=str(receipt.get("payer", "")),
        amount=receipt.get("amount"),
        key=None,
    )


PAYER: Final = Payer(wire=WIRE, sign=sign, facts=facts)
