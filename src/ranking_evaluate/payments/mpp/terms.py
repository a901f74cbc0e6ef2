"""Our own terms, and why a credential does not meet them: everything a challenge binds is compared, nobody is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import mpp
from mpp import BodyDigest

from ranking_evaluate.core.instants import written
from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.payments.mpp.credential import Content
from ranking_evaluate.payments.mpp.transaction import SignedTransaction
from ranking_evaluate.payments.mpp.wire import INTENT, METHOD
from ranking_evaluate.payments.protocol import Offer

SUPPORTED_MODES: Final = ("pull",)

EXPIRING_NONCE: Final = 2**256 - 1
"""The nonce key of transactions that stand alone and end by themselves; mppx and pympp sign no others."""

MIN_SECONDS_LEFT: Final = 5
"""How long a transaction must still be valid when we take it.

x402's ten seconds would be too many: mppx signs 25 s ahead, and the credential has yet to travel. Verifying takes well
under a second and a block half of one, so five seconds let an honest payment land; one that misses them never lands,
which a final block then shows.
"""

LAST_SECONDS: Final = 2
"""The same when it is about to be sent: fewer, or what was just in time to be taken would be refused after all."""

OF_ANOTHER_RELEASE: Final = "invalid-challenge: it was issued for another release"


def meta_of(offer: Offer) -> dict[str, str]:
    """Return what a challenge for this offer binds besides the body and the price."""
    return {"idempotencyKey": offer.key, "operation": offer.operation, "release": offer.release}


def check(
    content: Content, config: MppConfig, offer: Offer, now: float, seconds_left: int = MIN_SECONDS_LEFT
) -> str | None:
    """Return why a credential does not meet our own current terms, or None when it does.

    A reason begins with the paymentauth.org problem type that it belongs to.
    """
    transaction = content.transaction
    if transaction is None:
        # The one refusal after which money may have moved, past us.
        return (
            "invalid-payload: only a signed transaction is taken (pull mode), not the hash of one that was sent; if "
            "you sent it, it may have paid: ask the operator, who can refund it"
        )
    return _check_challenge(content.challenge, config, offer, now) or _check_transaction(
        transaction, content.challenge, config, now, seconds_left
    )


def remark(reason: str, now: float) -> str | None:
    """Return what helps to mend a refusal: of another release's challenge, or for the credential's own times.

    Of those it is the time by our clock, since the payer's may be off.
    """
    if reason.startswith(OF_ANOTHER_RELEASE):
        return "Its transaction was not sent: the service was renewed, and the new challenge replaces that one."
    of_its_times = reason.startswith("payment-expired") or reason.endswith("not valid yet")
    return f"It is {written(now)} here, and a clock may be wrong." if of_its_times else None


def secret_of(challenge: mpp.Challenge, config: MppConfig) -> str | None:
    """Return the secret under which we made this challenge, or None when we did not make it."""
    for secret in (config.secret_key, config.previous_secret_key):
        try:
            if secret is not None and challenge.verify(secret, config.realm):
                return secret
        except (ValueError, RecursionError):
            # What has no canonical form was never signed by us.
            return None
    return None


def _check_challenge(challenge: mpp.Challenge, config: MppConfig, offer: Offer, now: float) -> str | None:
    if challenge.realm != config.realm or secret_of(challenge, config) is None:
        return "invalid-challenge: it was not issued by this service"
    if (challenge.method, challenge.intent) != (METHOD, INTENT):
        return "method-unsupported: only the Tempo charge is taken"
    request, meta = challenge.request, challenge.opaque or {}
    details = request.get("methodDetails")
    if request.get("amount") != str(offer.amount):
        return "invalid-challenge: it was issued for another amount"
    if request.get("currency") not in config.currencies:
        return "invalid-challenge: it was issued for another currency"
    if request.get("recipient") != config.recipient:
        return "invalid-challenge: it was issued for another recipient"
    if details != {"chainId": config.chain_id, "supportedModes": list(SUPPORTED_MODES)}:
        return "invalid-challenge: it was issued for another chain"
    if request.get("externalId") != offer.key or meta.get("idempotencyKey") != offer.key:
        return "invalid-challenge: it was issued for another Idempotency-Key"
    if meta.get("operation") != offer.operation:
        return "invalid-challenge: it was issued for another operation"
    if meta.get("release") != offer.release:
        return f"{OF_ANOTHER_RELEASE}: {meta.get('release')}, and this is {offer.release}"
    if challenge.digest is None or not BodyDigest.verify(challenge.digest, offer.body):
        return "invalid-challenge: it was issued for another body"
    expires = _expiry(challenge)
    if expires is None or expires <= now:
        return "payment-expired: the challenge has expired"
    return None


def _check_transaction(
    transaction: SignedTransaction, challenge: mpp.Challenge, config: MppConfig, now: float, seconds_left: int
) -> str | None:
    expires, valid_before = _expiry(challenge), transaction.valid_before
    if transaction.chain_id != config.chain_id:
        return "verification-failed: the transaction is for another chain"
    reason = _check_form(transaction)
    if reason is not None:
        return f"verification-failed: {reason}"
    if not transaction.bears_memo_of(challenge.id, config.realm):
        return "verification-failed: the transaction does not bear the memo of this challenge"
    if not transaction.pays(challenge.request["currency"], config.recipient, int(challenge.request["amount"])):
        # Before the node is asked whether it knows the transaction: one that does not pay us decides nothing.
        return "verification-failed: the transaction does not make the payment that is asked"
    if transaction.nonce_key != EXPIRING_NONCE:
        # A nonce that counts can be used up by another transaction between verifying and sending.
        return (
            "verification-failed: the transaction does not use an expiring nonce: sign it with the nonce key "
            "2**256 - 1, nonce 0 and a valid_before"
        )
    if valid_before is None:
        # Without an end an uncertain payment could stay uncertain for ever.
        return "verification-failed: the transaction has no valid_before"
    # The bound is exclusive and in whole seconds: the first second after the challenge's own end is still within it.
    if expires is None or valid_before > int(expires) + 1:
        return "verification-failed: the transaction is valid for longer than its challenge"
    if valid_before < now + seconds_left:
        return "payment-expired: the transaction has expired or is about to"
    if transaction.valid_after is not None and transaction.valid_after > now:
        return "verification-failed: the transaction is not valid yet"
    signer, new_key = transaction.signer, transaction.new_key
    if signer is not None and new_key is not None:
        reason = new_key.objection(signer, chain_id=config.chain_id, valid_before=valid_before)
        if reason is not None:
            return f"verification-failed: the key authorization cannot be used: {reason}"
    return None


def _check_form(transaction: SignedTransaction) -> str | None:
    """Return why a transaction is of no form that is taken, whatever it pays."""
    if transaction.signer is None:
        return "a sponsored transaction is not taken: the payer pays the gas, in the token or in another"
    if transaction.has_extras:
        return "a transaction with an access list, or with authorizations of accounts, is not taken"
    if transaction.signer.is_access_key and len(transaction.calls) != 1:
        # What a key may do is asked for the payment alone.
        return "an access key's transaction must hold the payment alone"
    return None


def _expiry(challenge: mpp.Challenge) -> float | None:
    try:
        moment = datetime.fromisoformat(challenge.expires or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()
