"""What the settle call said: one pure classifier, the MPP lines of docs/lifecycle.md, section 5."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mpp import Receipt
from mpp.errors import (
    BadRequestError,
    CredentialReplayedError,
    InvalidChallengeError,
    InvalidPayloadError,
    MalformedCredentialError,
    PaymentActionRequiredError,
    PaymentError,
    PaymentExpiredError,
    PaymentInsufficientError,
    PaymentMethodUnsupportedError,
    PaymentRequiredError,
    VerificationError,
    VerificationFailedError,
)

from ranking_evaluate.payments.protocol import NotSent, Refused, Settled, Settlement, Uncertain

_PROBLEM_CLASSES: Final[tuple[type[PaymentError], ...]] = (
    BadRequestError,
    InvalidChallengeError,
    InvalidPayloadError,
    MalformedCredentialError,
    PaymentActionRequiredError,
    PaymentExpiredError,
    PaymentInsufficientError,
    PaymentMethodUnsupportedError,
    PaymentRequiredError,
    VerificationFailedError,
)


def _slug(problem: type[PaymentError]) -> str:
    return problem.type.rpartition("/")[2]


PROBLEMS: Final = {_slug(problem): problem for problem in _PROBLEM_CLASSES}
"""The paymentauth.org problem types, by the last part of their address."""

MAX_TEXT: Final = 120

_WORDS: Final = {
    CredentialReplayedError: "the transaction is bound to another challenge",
    InvalidChallengeError: "the challenge is not one for this request",
    InvalidPayloadError: "the payload has not the form of a signed transaction",
    MalformedCredentialError: "the credential cannot be read",
    PaymentExpiredError: "the challenge has expired",
    VerificationError: "the transaction does not make the payment that is asked",
}


def classify(outcome: Receipt | Exception, *, send_made: bool, transaction: str, key: str) -> Settlement:
    """Return what the end of a broadcast means.

    Args:
        outcome: The receipt, or what was raised instead.
        send_made: Whether the transaction may have left this machine.
        transaction: The hash that the receipt must bear.
        key: The idempotency key, which goes into the receipt.
    """
    if isinstance(outcome, Receipt):
        if outcome.status == "success" and outcome.reference.lower() == transaction:
            receipt = replace(outcome, external_id=key).to_payment_receipt()
            return Settled(receipt, transaction, outcome.payer)
        return Uncertain("the receipt is not one of the transaction that was sent")
    if send_made:
        return Uncertain(f"the transaction was sent, and no receipt came ({_causes(outcome)})")
    if isinstance(outcome, VerificationError | PaymentExpiredError):
        return Refused(reason_of(outcome))
    return NotSent(f"the transaction was not sent ({_causes(outcome)})")


def reason_of(error: PaymentError) -> str:
    """Return why the SDK refused a credential; of its own texts only a plain one, since others quote the credential."""
    text = str(error)
    is_plain = type(error) is VerificationError and len(text) <= MAX_TEXT and "0x" not in text and text.isprintable()
    words = text if is_plain else _WORDS.get(type(error), "the payment was refused")
    return f"{_slug(type(error))}: {words}"


def _causes(error: BaseException) -> str:
    """Return the names of an exception and of what it came from, without their texts."""
    names: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(names) < 4:
        names.append(type(cause).__name__)
        cause = cause.__cause__
    return " from ".join(names)
