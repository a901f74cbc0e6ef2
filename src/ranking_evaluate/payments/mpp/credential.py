"""The MPP credential: decoded from its header, then compared with our own terms; nothing here asks anybody."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NoReturn

import mpp
from mpp import BodyDigest

from ranking_evaluate.contract.errors import RequestMalformed
from ranking_evaluate.contract.wire import MAX_SHARED_HEADER
from ranking_evaluate.core import canonical, intake
from ranking_evaluate.core.canonical import JsonValue
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.core.instants import written
from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.payments.mpp.transaction import SignedTransaction, read_transaction
from ranking_evaluate.payments.mpp.wire import INTENT, METHOD, WIRE
from ranking_evaluate.payments.protocol import Credential, Offer, PaymentFacts, Unreadable

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

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_TRANSACTION_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Content:
    """A credential as this adapter needs it.

    Attributes:
        parsed: The SDK's form of it.
        challenge: The challenge that it answers, as the client repeats it: not yet known to be ours.
        transaction: What the client signed; None for a credential that gives the hash of a transaction it sent itself.
    """

    parsed: mpp.Credential
    challenge: mpp.Challenge
    transaction: SignedTransaction | None


class _UnreadableError(Exception):
    """Carries the reason of an `Unreadable` out of the parsing."""


def content_of(credential: Credential) -> Content:
    """Return this adapter's own form of a credential."""
    if not isinstance(credential.content, Content):
        raise TypeError("a credential of another protocol reached the MPP adapter")
    return credential.content


def meta_of(offer: Offer) -> dict[str, str]:
    """Return what a challenge for this offer binds besides the body and the price."""
    return {"idempotencyKey": offer.key, "operation": offer.operation, "release": offer.release}


def read(headers: Mapping[str, str], config: MppConfig, offer: Offer) -> Credential | Unreadable | None:
    """Return the Payment credential of the Authorization header, parsed only.

    Raises:
        RequestMalformed: PAYMENT_IDENTIFIER_MISMATCH when its challenge names another key than the offer's, or none.
    """
    found = WIRE.credentials(headers)
    if not found:
        return None
    try:
        if len(headers[WIRE.credential_header.lower()]) > MAX_SHARED_HEADER:
            _refuse("it is too large")
        if len(found) > 1:
            # Which of them was meant to pay is not for us to choose.
            _refuse("the header holds several Payment credentials")
        return _read_token(found[0], config, offer)
    except _UnreadableError as error:
        return Unreadable(f"malformed-credential: {error}")
    except RecursionError:
        return Unreadable("malformed-credential: it is nested too deeply")


def _read_token(token: str, config: MppConfig, offer: Offer) -> Credential:
    document = _with_encoded_opaque(_decode(token, "it"))
    payload = document.get("payload")
    if not isinstance(payload, dict):
        _refuse("it has no payload")
    encoded = canonical.encode(document)
    try:
        parsed = mpp.Credential.from_authorization(f"Payment {_base64url(encoded)}")
    except Exception as error:
        # Whatever the SDK makes of a stranger's bytes, it is not a credential.
        raise _UnreadableError("it is not a Payment credential") from error
    challenge = _challenge(parsed.challenge)
    key = (challenge.opaque or {}).get("idempotencyKey")
    if key is None:
        raise RequestMalformed(
            "PAYMENT_IDENTIFIER_MISMATCH",
            "The credential answers a challenge that names no purchase.",
            cause="missing",
        )
    if key != offer.key:
        raise RequestMalformed(
            "PAYMENT_IDENTIFIER_MISMATCH",
            "The credential answers a challenge for another Idempotency-Key than this request's.",
            cause="different",
        )
    transaction, transaction_hash = _payment(payload)
    chain_id = config.chain_id if transaction is None else transaction.chain_id
    currency = str(challenge.request.get("currency")).lower()
    new_key_proof = _new_key_proof(transaction)
    return Credential(
        digest=canonical.sha256(encoded),
        proofs=(
            _proof("challenge", challenge.id),
            _proof("transaction", str(chain_id), transaction_hash),
            *((new_key_proof,) if new_key_proof else ()),
        ),
        new_key_proof=new_key_proof,
        facts=PaymentFacts(
            network=f"eip155:{chain_id}",
            # Another currency than ours is refused before anything is recorded.
            asset=currency if currency in config.currency_names else config.currencies[0].lower(),
            amount=offer.amount,
            pay_to=config.recipient.lower(),
            payer=None if transaction is None else transaction.sender,
            payment_id=challenge.id,
            valid_before=None if transaction is None else transaction.valid_before,
            transaction=transaction_hash,
        ),
        content=Content(parsed, challenge, transaction),
    )


def _with_encoded_opaque(document: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a credential whose opaque data is as we sent it; mppx before 0.6.4 repeats it decoded, as an object.

    The challenge's HMAC is over the encoded form, so it decides as ever whether these are our data.
    """
    challenge = document.get("challenge")
    opaque = challenge.get("opaque") if isinstance(challenge, dict) else None
    if not isinstance(challenge, dict) or not isinstance(opaque, dict):
        return document
    if not all(isinstance(value, str) for value in opaque.values()):
        _refuse("its challenge's opaque data are not strings")
    return {**document, "challenge": {**challenge, "opaque": _base64url(canonical.encode(opaque))}}


def _challenge(echo: mpp.ChallengeEcho) -> mpp.Challenge:
    """Return the challenge that a credential repeats, its encoded parts decoded."""
    return mpp.Challenge(
        id=echo.id,
        method=echo.method,
        intent=echo.intent,
        request=_decode(echo.request, "its challenge's request"),
        realm=echo.realm,
        request_b64=echo.request,
        digest=echo.digest,
        expires=echo.expires,
        # The declared type is narrower than what a stranger may send; nothing is read from it without a comparison.
        opaque=_decode(echo.opaque, "its challenge's opaque data") if echo.opaque else None,  # type: ignore[arg-type]
        header=echo.header,
    )


def _payment(payload: Mapping[str, JsonValue]) -> tuple[SignedTransaction | None, str]:
    """Return the signed transaction of a payload and its hash, or None and the hash that the client gives."""
    match payload:
        case {"type": "transaction", "signature": str(raw)}:
            try:
                transaction = read_transaction(raw)
            except ValueError as error:
                raise _UnreadableError(str(error)) from error
            return transaction, transaction.hash
        case {"type": "hash", "hash": str(given)} if _TRANSACTION_HASH.fullmatch(given):
            return None, given.lower()
    raise _UnreadableError("its payload is not a signed transaction")


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str, what: str) -> dict[str, JsonValue]:
    if not _BASE64URL.fullmatch(text):
        _refuse(f"{what} is not base64url")
    try:
        value = intake.read(base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _UnreadableError(f"{what} is not base64url") from error
    except OperationError as error:
        raise _UnreadableError(f"{what} is not JSON that is taken here ({error.code})") from error
    if not isinstance(value, dict):
        _refuse(f"{what} is not a JSON object")
    return value


def _refuse(why: str) -> NoReturn:
    raise _UnreadableError(why)


def _new_key_proof(transaction: SignedTransaction | None) -> bytes | None:
    """Return the proof of a first payment: of two with one authorization only one can land."""
    if transaction is None or transaction.new_key is None or transaction.signer is None:
        return None
    return _proof("new-key", str(transaction.chain_id), transaction.signer.account, transaction.new_key.key)


def _proof(*named: str) -> bytes:
    return bytes.fromhex(canonical.sha256(canonical.encode(["mpp", *named])))


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
