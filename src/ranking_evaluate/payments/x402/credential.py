"""The x402 credential: decoded from its header, then compared with our own terms; nothing here asks anybody."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from x402.extensions.payment_identifier import (
    PAYMENT_IDENTIFIER,
    extract_payment_identifier,
    is_payment_identifier_extension,
)
from x402.schemas import PaymentPayload, PaymentRequirements

from ranking_evaluate.contract.errors import RequestMalformed
from ranking_evaluate.contract.wire import X402_VERSION
from ranking_evaluate.core import canonical, intake
from ranking_evaluate.core.canonical import JsonValue
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.payments.config import X402Config
from ranking_evaluate.payments.protocol import Credential, PaymentFacts

MIN_SECONDS_LEFT: Final = 10
"""An authorization that expires sooner could run out between verify and settle."""

MAX_SECONDS_BEYOND: Final = 60
"""How far past maxTimeoutSeconds an authorization may reach: a client's clock may be ahead of ours."""

_PAYLOAD_MEMBERS: Final = frozenset({"authorization", "signature"})
_AUTHORIZATION_MEMBERS: Final = frozenset({"from", "to", "value", "validAfter", "validBefore", "nonce"})

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_NONCE: Final = re.compile(r"0x[0-9a-fA-F]{64}")
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,77}")
_SIGNATURE: Final = re.compile(r"0x(?:[0-9a-fA-F]{2}){64,8192}")


@dataclass(frozen=True, slots=True)
class Content:
    """An x402 credential as this adapter needs it: the SDK's payload and the authorization's members as sent."""

    payload: PaymentPayload
    authorization: Mapping[str, object]
    signature: object


def read_credential(header: str, key: str) -> Credential:
    """Return the credential of a PAYMENT-SIGNATURE header, parsed only.

    Raises:
        RequestMalformed: PAYMENT_MALFORMED, or PAYMENT_IDENTIFIER_MISMATCH when it names another key.
    """
    document = _decode(header)
    try:
        payload = PaymentPayload.model_validate(document)
        identifier = _identifier(payload)
    except (ValidationError, RecursionError) as error:
        raise _malformed("it is not an x402 v2 payment payload") from error
    if identifier is None:
        raise RequestMalformed(
            "PAYMENT_IDENTIFIER_MISMATCH",
            "The credential has no payment-identifier: its client left out the extensions of the 402 that it signed, "
            "or signed one that names no purchase, such as a GET's.",
            cause="missing",
        )
    if identifier != key:
        raise RequestMalformed(
            "PAYMENT_IDENTIFIER_MISMATCH",
            "The credential's payment-identifier is not the Idempotency-Key of this request.",
            cause="different",
        )
    inner = payload.payload.get("authorization")
    authorization = inner if isinstance(inner, dict) else {}
    facts = _facts(payload.accepted, authorization)
    return Credential(
        digest=canonical.sha256(canonical.encode(document)),
        proofs=(_proof(facts),) if facts.payer and facts.payment_id else (),
        facts=facts,
        content=Content(payload, authorization, payload.payload.get("signature")),
    )


def _facts(accepted: PaymentRequirements, authorization: Mapping[str, object]) -> PaymentFacts:
    valid_before = _text(authorization, "validBefore")
    return PaymentFacts(
        network=accepted.network.lower(),
        asset=accepted.asset.lower(),
        amount=int(accepted.amount) if _DECIMAL.fullmatch(accepted.amount) else 0,
        pay_to=accepted.pay_to.lower(),
        payer=_text(authorization, "from").lower() or None,
        payment_id=_text(authorization, "nonce").lower(),
        valid_before=int(valid_before) if _DECIMAL.fullmatch(valid_before) else None,
    )


def objection(content: Content, required: PaymentRequirements | None, config: X402Config, now: float) -> str | None:
    """Return why a credential does not meet our terms, by its text alone, or None when it does.

    Args:
        content: What was signed.
        required: What we ask for, None while there are no terms to meet.
        config: Whom payments go to, and for how long they may be valid.
        now: Epoch seconds.
    """
    if required is None or content.payload.accepted != required:
        return "what it accepts is not what is asked: amount, asset, network, recipient and timeout must be equal"
    authorization = content.authorization
    # A facilitator takes another member, such as a Permit2 authorization, for the payment: none may ride along
    # whose nonce is not the proof.
    if set(content.payload.payload) != _PAYLOAD_MEMBERS or set(authorization) != _AUTHORIZATION_MEMBERS:
        return "it is not exactly one EIP-3009 authorization and its signature"
    value, payee = _text(authorization, "value"), _text(authorization, "to")
    not_before, not_after = _text(authorization, "validAfter"), _text(authorization, "validBefore")
    if not _ADDRESS.fullmatch(_text(authorization, "from")) or not _NONCE.fullmatch(_text(authorization, "nonce")):
        return "it is not an EIP-3009 authorization with a payer and a 32-byte nonce"
    if not isinstance(content.signature, str) or not _SIGNATURE.fullmatch(content.signature):
        return "its signature is not hexadecimal"
    if value != required.amount:
        return "the authorization is for another amount; it must be exactly the price, in decimal base units"
    if payee.lower() != config.pay_to.lower():
        return "the authorization pays somebody else"
    if not _DECIMAL.fullmatch(not_before) or not _DECIMAL.fullmatch(not_after):
        return "its validity window is not written in decimal seconds"
    if int(not_before) > now:
        return "the authorization is not valid yet"
    if int(not_after) < now + MIN_SECONDS_LEFT:
        return "the authorization has expired or is about to"
    if int(not_after) > now + config.max_timeout + MAX_SECONDS_BEYOND:
        return "the authorization is valid for longer than maxTimeoutSeconds allows"
    return None


def _decode(header: str) -> dict[str, Any]:
    try:
        document = intake.read(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError) as error:
        raise _malformed("it is not base64") from error
    except OperationError as error:
        raise _malformed(f"its JSON is refused ({error.code})") from error
    if not isinstance(document, dict) or document.get("x402Version") != X402_VERSION:
        raise _malformed("it is not an object of x402 version 2")
    return document


def _identifier(payload: PaymentPayload) -> str | None:
    """Return the payment-identifier extension's id.

    The SDK's validation would also run the schema that the credential itself carries: for milliseconds, with the
    sender's regular expressions, and fetching what its references point to. Of an id that must equal the key it adds
    nothing.
    """
    extension = (payload.extensions or {}).get(PAYMENT_IDENTIFIER)
    return extract_payment_identifier(payload) if is_payment_identifier_extension(extension) else None


def _malformed(why: str) -> RequestMalformed:
    return RequestMalformed("PAYMENT_MALFORMED", f"The PAYMENT-SIGNATURE header cannot be read: {why}.")


def content_of(credential: Credential) -> Content:
    """Return what `read_credential` put into a credential."""
    if not isinstance(credential.content, Content):
        raise TypeError("a credential of another protocol reached the x402 adapter")
    return credential.content


def _text(members: Mapping[str, object], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _proof(facts: PaymentFacts) -> bytes:
    """Return the digest of the authorization itself: not of its signature, and not of the header around it."""
    named: list[JsonValue] = ["x402", facts.network, facts.asset, facts.payer, facts.payment_id]
    return hashlib.sha256(canonical.encode(named)).digest()
