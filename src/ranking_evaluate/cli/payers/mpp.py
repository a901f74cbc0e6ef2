"""Paying over MPP with the official client."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

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
from ranking_evaluate.payments.mpp.wire import WIRE

# Tempo takes a transaction whose end is at most 30 s ahead; the rest is for the way there.
SIGNED_AHEAD_SECONDS: Final = 24

TOKEN_DECIMALS: Final = 6
"""Those of every token that Tempo moves (TIP-20), whatever it is worth."""


def sign(challenge: httpx.Response, mandate: Mandate) -> Signed:
    """Answer a 402's WWW-Authenticate: Payment header with the official client, within the mandate.

    The client may pay exactly one offer: a Tempo charge by a transaction that the service broadcasts (pull mode). A
    mandate without an asset takes the dollars that the SDK knows for the chain, and on a local chain any currency.

    Raises:
        PayError: There is no offer that the mandate allows, or the node cannot be asked; nothing was signed.
    """
    import asyncio
    from dataclasses import replace

    from mpp import Challenge, Credential
    from mpp.methods.tempo import TempoAccount
    from mpp.methods.tempo import client as tempo
    from mpp.runtime import CredentialParams

    offered = _payment_challenges(challenge, Challenge)
    if not offered:
        raise PayError("The 402 carries no MPP offer that can be read. Nothing was paid.")
    reasons = [_why_not(offer, mandate) for offer in offered]
    offers = [offer for offer, reason in zip(offered, reasons, strict=True) if reason is None]
    if not offers:
        raise nothing_payable(
            [f"{offer.method} {offer.intent}: {reason}" for offer, reason in zip(offered, reasons, strict=True)]
        )
    offer = min(offers, key=lambda each: int(each.request["amount"]))
    cost = Decimal(offer.request["amount"]).scaleb(-TOKEN_DECIMALS)
    check_price(cost, mandate)
    until = _signed_until(offer.expires)
    chain_id, currency = offer.request["methodDetails"]["chainId"], offer.request["currency"]
    account = account_of(TempoAccount.from_key, mandate)
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
        terms=visible(
            f"{cost.normalize():f} of {currency} on eip155:{chain_id} from {account.address} "
            f"to {offer.request['recipient']}"
        ),
    )


def _payment_challenges(challenge: httpx.Response, kind: Any) -> list[Any]:  # noqa: ANN401 - imported with the SDK.
    """Return the Payment challenges of a 402, of which a line may hold several; one of another scheme is none."""
    from mpp.client.transport import _payment_challenges as challenges_in

    found = []
    for line in challenge.headers.get_list("www-authenticate"):
        for value in challenges_in(line):
            with contextlib.suppress(Exception):
                found.append(kind.from_www_authenticate(value))
    return found


def _why_not(offer: Any, mandate: Mandate) -> str | None:  # noqa: ANN401 - the SDK's challenge.
    """Return why an offer is not paid, or None."""
    if (offer.method, offer.intent) != ("tempo", "charge"):
        return "only Tempo charges are paid"
    if (offer.opaque or {}).get("idempotencyKey") != mandate.key:
        return (
            "the offer is not tied to this idempotency key (opaque.idempotencyKey), so an answer that is lost could "
            "not be asked for again"
        )
    request, details = offer.request, offer.request.get("methodDetails")
    currency = request.get("currency")
    if not (
        isinstance(details, dict)
        and isinstance(details.get("chainId"), int)
        and re.fullmatch(r"[0-9]{1,40}", str(request.get("amount"))) is not None
        and isinstance(request.get("recipient"), str)
        and isinstance(currency, str)
    ):
        return "its chain, amount, currency or recipient cannot be read"
    return _why_not_this_way(details) or _why_not_in(details["chainId"], currency, mandate)


def _why_not_this_way(details: Mapping[str, Any]) -> str | None:
    """Return why a charge with these details is not paid, or None."""
    if details.get("feePayer"):
        return "somebody else is to pay its fee"
    if details.get("splits"):
        return "it pays several recipients"
    modes = details.get("supportedModes", ["pull"])
    is_pulled = isinstance(modes, list) and "pull" in modes
    return None if is_pulled else "the server does not broadcast the payment itself (pull mode)"


def _why_not_in(chain_id: int, currency: str, mandate: Mandate) -> str | None:
    """Return why there is no paying in this currency on this chain, or None."""
    if mandate.network is not None and mandate.network != f"eip155:{chain_id}":
        return f"it is on eip155:{chain_id}, another network than --network {mandate.network}"
    if mandate.asset is not None:
        is_named = currency.lower() == mandate.asset.lower()
        return None if is_named else f"it is in {currency}, another asset than --asset {mandate.asset}"
    if _is_known_dollar(chain_id, currency):
        return None
    return (
        f"without --asset only dollars that the SDK knows are paid, and {currency} on eip155:{chain_id} is none of them"
    )


def _is_known_dollar(chain_id: int, currency: str) -> bool:
    from mpp.methods import tempo

    if chain_id in LOCAL_CHAINS:
        return True
    # For a chain that it does not know the SDK names a dollar all the same.
    if chain_id not in {tempo.CHAIN_ID, tempo.TESTNET_CHAIN_ID}:
        return False
    known = (*tempo.default_currencies_for_chain(chain_id), *tempo.fee_tokens_for_chain(chain_id))
    return currency.lower() in {each.lower() for each in known}


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


def facts(receipt: Mapping[str, Any]) -> ReceiptFacts:
    """Return what a Payment-Receipt says; it names the key, but no chain, payer or amount."""
    return ReceiptFacts(
        success=receipt.get("status") == "success",
        transaction=str(receipt.get("reference") or ""),
        network=None,
        payer=None,
        amount=None,
        key=str(receipt.get("externalId", "")),
    )


PAYER: Final = Payer(wire=WIRE, sign=sign, facts=facts)
