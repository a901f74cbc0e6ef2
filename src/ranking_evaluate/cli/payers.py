"""Signing payments: one function for each protocol, within a mandate."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar

import httpx

Account = TypeVar("Account")

# What an asset counts its base units in when nothing is known about it: all dollars of this trade have six decimals.
ASSUMED_DECIMALS: Final = 6
# A signature that lives longer than this is more than one purchase needs.
LONGEST_AUTHORIZATION_SECONDS: Final = 900
# Tempo takes a transaction whose end is at most 30 s ahead; the rest is for the way there.
SIGNED_AHEAD_SECONDS: Final = 24

NOT_CHARGED: Final = 1
UNCLEAR: Final = 3


class Protocol(StrEnum):
    """The payment protocols that the service speaks."""

    X402 = "x402"
    MPP = "mpp"


RECEIPT_HEADERS: Final[Mapping[Protocol, str]] = {
    Protocol.X402: "PAYMENT-RESPONSE",
    Protocol.MPP: "Payment-Receipt",
}


class PayError(Exception):
    """The purchase did not come to an answer; the text says why and what to do next.

    Attributes:
        exit_code: NOT_CHARGED when nothing was paid by this run, UNCLEAR when money may have moved.
    """

    def __init__(self, text: str, exit_code: int = NOT_CHARGED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """What may be signed, and what is needed to sign it.

    Attributes:
        wallet_key: The private key.
        key: The idempotency key of the purchase.
        max_amount: The most that may be paid, in whole units of the asset.
        asset: The one asset to pay with; None leaves the choice to each protocol, see its function.
        rpc_url: The node of the chain, where signing needs one; None takes the one that the SDK knows.
    """

    wallet_key: str = field(repr=False)
    key: str
    max_amount: Decimal
    asset: str | None = None
    rpc_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A signed payment: its request header, the epoch second it expires at, and what it pays, for people."""

    header: str
    value: str = field(repr=False)
    expires_at: int
    terms: str


def sign_x402(challenge: httpx.Response, mandate: Mandate) -> Signed:
    """Answer a 402's PAYMENT-REQUIRED header with the official client, within the mandate.

    The client may pay exactly one offer: an EIP-3009 transfer ("exact", on an EVM chain) of the mandate's asset. A
    mandate without one takes the dollar that the SDK knows for the chain; on a chain that it does not know, such as a
    local one, whatever asset is offered.

    Raises:
        PayError: There is no offer that the mandate allows; nothing was signed.
    """
    from eth_account import Account
    from x402 import x402ClientSync
    from x402.extensions.payment_identifier import PAYMENT_IDENTIFIER, append_payment_identifier_to_extensions
    from x402.http import x402HTTPClientSync
    from x402.mechanisms.evm.default_assets import DEFAULT_ASSETS
    from x402.mechanisms.evm.exact import register_exact_evm_client
    from x402.schemas import PaymentCreationContext, PaymentRequired, PaymentRequirements

    client = x402ClientSync()
    wire = x402HTTPClientSync(client)
    try:
        required = wire.get_payment_required_response(challenge.headers.get)
    except ValueError as error:
        raise PayError("The 402 carries no x402 offer that can be read. Nothing was paid.") from error
    if not isinstance(required, PaymentRequired) or PAYMENT_IDENTIFIER not in (required.extensions or {}):
        raise PayError("The offer does not tie a payment to an idempotency key (x402 v2). Nothing was paid.")

    def price(offer: PaymentRequirements) -> Decimal | None:
        """Return what the offer costs in whole units, or None when the mandate does not cover this kind of payment."""
        known = {entry["asset"].lower(): entry["decimals"] for entry in DEFAULT_ASSETS.get(offer.network, [])}
        asset = offer.asset.lower()
        wanted = asset == mandate.asset.lower() if mandate.asset else not known or asset in known
        is_plain = (
            offer.scheme == "exact"
            and offer.network.startswith("eip155:")
            and (offer.extra or {}).get("assetTransferMethod", "eip3009") == "eip3009"
            and re.fullmatch(r"[0-9]{1,40}", offer.amount) is not None
        )
        return Decimal(offer.amount).scaleb(-known.get(asset, ASSUMED_DECIMALS)) if wanted and is_plain else None

    prices = [(cost, offer) for offer in required.accepts if (cost := price(offer)) is not None]
    if not prices:
        raise PayError(
            "No offer is in an asset that may be paid with. Name the asset with --asset. Nothing was paid."
            if required.accepts
            else "The 402 offers nothing. Nothing was paid."
        )
    cost, offer = min(prices, key=lambda pair: pair[0])
    _check_price(cost, mandate)
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
    account = _account(Account.from_key, mandate)
    register_exact_evm_client(client, account, networks=offer.network)
    payload = client.create_payment_payload(required.model_copy(update={"accepts": [offer]}))
    ((header, value),) = wire.encode_payment_signature_header(payload).items()
    return Signed(
        header=header,
        value=value,
        expires_at=int(payload.payload["authorization"]["validBefore"]),
        terms=f"{cost.normalize():f} of {offer.asset} on {offer.network} from {account.address} to {offer.pay_to}",
    )


def sign_mpp(challenge: httpx.Response, mandate: Mandate) -> Signed:
    """Answer a 402's WWW-Authenticate: Payment header with the official client, within the mandate.

    The client may pay exactly one offer: a Tempo charge by a transaction that the service broadcasts (pull mode). A
    mandate without an asset takes any currency of the chain; all of them have six decimals.

    Raises:
        PayError: There is no offer that the mandate allows, or the node cannot be asked; nothing was signed.
    """
    import asyncio
    from dataclasses import replace

    from mpp import Challenge, Credential
    from mpp.methods.tempo import TempoAccount
    from mpp.methods.tempo import client as tempo
    from mpp.runtime import CredentialParams

    offers = [offer for offer in _payment_challenges(challenge, Challenge) if _is_plain_charge(offer, mandate)]
    if not offers:
        raise PayError("The 402 has no Tempo charge that may be paid. Nothing was paid.")
    offer = min(offers, key=lambda each: int(each.request["amount"]))
    cost = Decimal(offer.request["amount"]).scaleb(-ASSUMED_DECIMALS)
    _check_price(cost, mandate)
    until = _signed_until(offer.expires)
    chain_id, currency = offer.request["methodDetails"]["chainId"], offer.request["currency"]
    account = _account(TempoAccount.from_key, mandate)
    # The client signs for as long as the challenge lives, and the chain takes less: it is shown a nearer end, and the
    # answer repeats the challenge as it was.
    nearer = CredentialParams(challenge=replace(offer, expires=until.isoformat()))

    async def sign() -> str:
        method = tempo.charge(
            account=account,
            chain_id=chain_id,
            rpc_url=mandate.rpc_url,
            currencies=[currency],
            allowed_chain_ids=[chain_id],
            max_atomic_amount=int(offer.request["amount"]),
            expected_recipients=[offer.request["recipient"]],
        )
        return await method.create_credential(nearer)

    try:
        signed = Credential.from_authorization(asyncio.run(sign()))
    except Exception as error:
        # Nothing has been sent to anybody who could spend it, whatever the client stumbled over.
        raise PayError(
            f"The payment cannot be signed ({type(error).__name__}): can a node of the chain eip155:{chain_id} be "
            "reached? Name it with --rpc-url. Nothing was paid."
        ) from error
    return Signed(
        header="Authorization",
        value=replace(signed, challenge=offer.to_echo()).to_authorization(),
        expires_at=int(until.timestamp()) + 1,
        terms=f"{cost.normalize():f} of {currency} on eip155:{chain_id} from {account.address} "
        f"to {offer.request['recipient']}",
    )


def _payment_challenges(challenge: httpx.Response, kind: Any) -> list[Any]:  # noqa: ANN401 - imported with the SDK.
    """Return the Payment challenges of a 402; a challenge of another scheme is none."""
    found = []
    for value in challenge.headers.get_list("www-authenticate"):
        with contextlib.suppress(Exception):
            found.append(kind.from_www_authenticate(value))
    return found


def _is_plain_charge(offer: Any, mandate: Mandate) -> bool:  # noqa: ANN401 - the SDK's challenge.
    request, details = offer.request, offer.request.get("methodDetails")
    currency, modes = request.get("currency"), "supportedModes"
    return (
        (offer.method, offer.intent) == ("tempo", "charge")
        and (offer.opaque or {}).get("idempotencyKey") == mandate.key
        and isinstance(details, dict)
        and isinstance(details.get("chainId"), int)
        and not details.get("feePayer")
        and not details.get("splits")
        and (modes not in details or (isinstance(details[modes], list) and "pull" in details[modes]))
        and re.fullmatch(r"[0-9]{1,40}", str(request.get("amount"))) is not None
        and isinstance(request.get("recipient"), str)
        and isinstance(currency, str)
        and (mandate.asset is None or currency.lower() == mandate.asset.lower())
    )


def _signed_until(expires: str | None) -> datetime:
    """Return when a payment is to end that answers a challenge of this expiry."""
    now = datetime.now(UTC)
    until = now + timedelta(seconds=SIGNED_AHEAD_SECONDS)
    if expires is None:
        return until
    try:
        until = min(until, datetime.fromisoformat(expires))
    except (ValueError, TypeError) as error:
        raise PayError("The offer's expiry cannot be read. Nothing was paid.") from error
    if until <= now:
        raise PayError("The offer has expired; is this machine's clock right? Nothing was paid.")
    return until


def _check_price(cost: Decimal, mandate: Mandate) -> None:
    if cost > mandate.max_amount:
        raise PayError(
            f"The price is {cost.normalize():f}, more than the {mandate.max_amount:f} allowed. Nothing was paid."
        )


def _account(from_key: Callable[[str], Account], mandate: Mandate) -> Account:
    try:
        return from_key(mandate.wallet_key)
    except Exception as error:
        # The library's own message may quote the key.
        raise PayError("The wallet key is not a private key of 32 bytes in hex. Nothing was paid.") from error


PAYERS: Final[Mapping[Protocol, Callable[[httpx.Response, Mandate], Signed]]] = {
    Protocol.X402: sign_x402,
    Protocol.MPP: sign_mpp,
}
