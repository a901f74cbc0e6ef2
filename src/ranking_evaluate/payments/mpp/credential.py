"""The MPP credential, decoded from its header: nothing in it is known to be ours yet, and nobody is asked."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import mpp

from ranking_evaluate.contract.errors import RequestMalformed
from ranking_evaluate.contract.wire import MAX_SHARED_HEADER
from ranking_evaluate.core import canonical, intake
from ranking_evaluate.core.canonical import JsonValue
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.payments.mpp.transaction import SignedTransaction, read_transaction
from ranking_evaluate.payments.mpp.wire import WIRE
from ranking_evaluate.payments.protocol import TRANSACTION, Credential, Offer, PaymentFacts, Unreadable

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}")


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
        case {"type": "hash", "hash": str(given)} if TRANSACTION.fullmatch(given):
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
