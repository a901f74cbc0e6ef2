"""The words of every refusal: a row for each code, and one for each cause where what to do depends on it.

Agents do exactly what `nextStep` says. `tests/test_next_steps.py` plays one that acts on every sentence of this page,
and must neither pay twice nor go on for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple


class Problem(NamedTuple):
    """What a refusal means to a caller.

    Attributes:
        title: The same for every occurrence.
        retryable: Whether the identical request may succeed later; it never speaks of a new payment.
        advice: What to do next, on every route; it speaks neither of keys nor of charging.
        paid: What a paid route adds.
    """

    title: str
    retryable: bool
    advice: str
    paid: str = ""

    @property
    def next_step(self) -> str:
        """What to do next on a paid route: all that there is to say."""
        return f"{self.advice} {self.paid}".rstrip()


_CORRECT: Final = "Correct the input and send it again."
_NOT_CHARGED: Final = "Keep the Idempotency-Key: this request was not charged."
_RESEND: Final = "Wait as long as Retry-After says, then send the identical request again, for ten minutes at most."
_READYZ: Final = "GET /readyz says whether the service is ready."
_KEEP: Final = "Keep the key and the credential, and do not sign another."
_NEVER_AGAIN: Final = "Do not pay again under any key for this purchase."
_WHERE: Final = "GET /v1/attempts with the key tells where the purchase stands."

PROBLEMS: Final[dict[str, Problem]] = {
    # 400
    "MALFORMED_JSON": Problem("The body is not JSON", False, _CORRECT, _NOT_CHARGED),
    "HEADER_INVALID": Problem(
        "The request headers are refused", False, "Correct the headers and send the request again.", _NOT_CHARGED
    ),
    "IDEMPOTENCY_KEY_REQUIRED": Problem(
        "An Idempotency-Key is needed",
        False,
        "Send the Idempotency-Key of the purchase.",
        "A new purchase takes a fresh random one of 16 to 128 characters A-Z a-z 0-9 _ -, kept for every resend.",
    ),
    "IDEMPOTENCY_KEY_INVALID": Problem(
        "The Idempotency-Key is malformed",
        False,
        "Send the key on one line of 16 to 128 characters A-Z a-z 0-9 _ -, without quotes.",
        "A key of another form was never taken: make a fresh random one.",
    ),
    "PAYMENT_IDENTIFIER_MISMATCH": Problem(
        "The payment does not name this purchase",
        False,
        "If the credential names another Idempotency-Key, send it with that key and the body of that purchase. If it "
        "names none, or this is a new purchase, send the request with this key and without a credential, and sign the "
        "terms of that answer, once: they name the key, and a client has to return the extensions that it is given.",
    ),
    "PAYMENT_PROTOCOL_MISMATCH": Problem(
        "The credential belongs to the other protocol's route",
        False,
        "Send exactly one credential, to the route of its own protocol. It was not used.",
    ),
    "PAYMENT_MALFORMED": Problem(
        "The payment credential cannot be read",
        False,
        "Send the credential exactly as the protocol's official SDK wrote it; if that is refused again, stop. Before "
        "you sign another, look at GET /v1/attempts with the key: sign only if it says that nothing was charged.",
    ),
    "DISCOVERY_KEY": Problem(
        "The published example key is never sold",
        False,
        "Choose a fresh random Idempotency-Key of your own, and begin without a credential. This one was not used.",
    ),
    # 402
    "PAYMENT_REQUIRED": Problem(
        "Payment is required",
        False,
        "If this request had a credential, it did not arrive: sign nothing, and find out what removed it. Otherwise "
        "let the protocol's official SDK answer the challenge, once, and save the credential before you send it. Then "
        "send the identical body and Idempotency-Key with the credential.",
    ),
    "PAYMENT_REJECTED": Problem(
        "The payment was refused",
        False,
        "Before you sign again, look at GET /v1/attempts with the key and at your wallet. If either shows a payment, "
        "stop and ask the operator. If neither does, mend what the detail names and answer the new challenge, once; if "
        "that is refused too, stop.",
    ),
    # 404, 405, 408
    "NOT_FOUND": Problem("Nothing is served here", False, "Read /llms.txt for the routes."),
    "ATTEMPT_UNKNOWN": Problem(
        "No purchase is recorded under this key",
        False,
        "Nothing was charged here under this key. A credential for it that was not refused may be sent again; without "
        "one, a challenge under this key may be answered.",
    ),
    "METHOD_NOT_ALLOWED": Problem("The method is not served here", False, "Use a method of the Allow header."),
    "REQUEST_TIMEOUT": Problem(
        "The request did not arrive in time",
        True,
        "It was not processed: send the identical request again, ten times at most.",
        _KEEP,
    ),
    # 409
    "IDEMPOTENCY_CONFLICT": Problem(
        "The Idempotency-Key stands for another purchase", False, f"{_NEVER_AGAIN} {_WHERE}"
    ),
    "DUPLICATE_PROOF": Problem(
        "The payment proof was used before",
        False,
        "Send this payment only with the key, the body and the credential that it was first sent with. If that is what "
        f"you sent, do not send it again. {_WHERE}",
    ),
    "PAYMENT_IN_PROGRESS": Problem("The payment is being settled", True, f"{_RESEND} Do not sign another credential."),
    "PAYMENT_UNCERTAIN": Problem(
        "The payment may have been made; its outcome is not known",
        False,
        f"{_NEVER_AGAIN} Keep the key, the body and the credential, and ask the operator to reconcile the payment. GET "
        "/v1/attempts with the key tells when that is done; then send the identical request again.",
    ),
    # 413, 415
    "INPUT_LIMIT": Problem("The input is too large", False, "Send less per call.", _NOT_CHARGED),
    "OUTPUT_LIMIT": Problem("The answer would be too large", False, "Send less per call.", _NOT_CHARGED),
    "UNSUPPORTED_MEDIA_TYPE": Problem(
        "The media type is not accepted", False, "Send Content-Type: application/json.", _NOT_CHARGED
    ),
    "UNSUPPORTED_ENCODING": Problem(
        "The content encoding is not accepted", False, "Send the body uncompressed.", _NOT_CHARGED
    ),
    # 422
    "INVALID_INPUT": Problem("The input breaks its schema", False, _CORRECT, _NOT_CHARGED),
    "COMPLEXITY_LIMIT": Problem("The input is too deep or holds too many values", False, _CORRECT, _NOT_CHARGED),
    "UNSAFE_KEY": Problem("A member name is refused", False, _CORRECT, _NOT_CHARGED),
    "INVALID_NUMBER": Problem("A number is outside binary64", False, _CORRECT, _NOT_CHARGED),
    "INVALID_UNICODE": Problem("A string is not Unicode text", False, _CORRECT, _NOT_CHARGED),
    "DUPLICATE_FIELD": Problem("A member name is repeated in an object", False, _CORRECT, _NOT_CHARGED),
    "DUPLICATE_ID": Problem("An id is repeated", False, _CORRECT, _NOT_CHARGED),
    "UNJUDGED_DOCUMENT": Problem(
        "A ranked document has no judgment",
        False,
        'Judge the document, or say "unjudged": "nonrelevant" if that is meant.',
        _NOT_CHARGED,
    ),
    "DOCUMENT_MISSING": Problem(
        "A named document is missing",
        False,
        "Supply every document that documentIds names, or stop naming it.",
        _NOT_CHARGED,
    ),
    "ACCESS_REVOKED": Problem(
        "Access to a named document is revoked",
        False,
        "Stop naming the document, or restore the access; nothing was searched.",
        _NOT_CHARGED,
    ),
    "CORPUS_CHANGED": Problem(
        "The corpus is not the pinned one",
        False,
        "Supply the pinned texts and dates. If the change is meant, send the pin as null: the answer states the new "
        "one. Figures over the two corpora are not comparable.",
        _NOT_CHARGED,
    ),
    "REFERENCE_VERSION_MISMATCH": Problem(
        "The reference is of another version",
        False,
        "Supply the reference of the version that the workflow names, or name the version that you mean.",
        _NOT_CHARGED,
    ),
    "usable-labels": Problem(
        "Usable labels are missing",
        False,
        "Give every query the arrays hits and usable; an empty usable says that nothing is usable, an absent one is "
        "unknown.",
        _NOT_CHARGED,
    ),
    "score-bounds": Problem(
        "There are too many queries or hits", False, "Send at most 10 queries of at most 10 hits.", _NOT_CHARGED
    ),
    # 429, 500, 503
    "RATE_LIMITED": Problem(
        "Too many requests",
        True,
        "Wait as long as Retry-After says, then send the identical request again, ten times at most.",
        _KEEP,
    ),
    "INTERNAL": Problem(
        "The service failed",
        False,
        "Send the identical request again, once; if that fails too, give the operator the requestId.",
        "Do not sign another credential before GET /v1/attempts with the key says that nothing was charged.",
    ),
    "OVERLOADED": Problem("The service is busy", True, f"{_RESEND} {_READYZ}", _KEEP),
    "PAYMENT_UNAVAILABLE": Problem(
        "The payment provider cannot be used at the moment", True, f"{_RESEND} {_READYZ}", _KEEP
    ),
    "STATE_UNAVAILABLE": Problem(
        "The record of purchases cannot be used at the moment", True, f"{_RESEND} {_READYZ}", _KEEP
    ),
}
"""What a code means, whatever its cause."""

HEALING_WORDS: Final = "The service asks the chain by itself, and will know by {time} at the latest."
"""How it is told that nobody need be asked about an uncertain payment."""

CAUSES: Final[dict[str, dict[str, Problem]]] = {
    "PAYMENT_REQUIRED": {
        "terms": Problem(
            "Payment is required",
            False,
            "POST the input to this path without a credential, under the Idempotency-Key of the purchase, which for a "
            "new one is fresh and random. Answer the challenge that then comes back, not this one.",
        ),
        "version": Problem(
            "Payment is required",
            False,
            "Pay with an SDK of x402 version 2, which sends PAYMENT-SIGNATURE; sign nothing more with version 1. What "
            "X-PAYMENT held was not used.",
        ),
    },
    "IDEMPOTENCY_CONFLICT": {
        "body": Problem(
            "The Idempotency-Key stands for another purchase",
            False,
            "Send exactly the body, path and credential that this key was first used with; if that is what you sent, "
            f"stop. Do not pay again for that purchase. {_WHERE}",
        ),
        "release": Problem(
            "The Idempotency-Key was used under another release",
            False,
            f"Keep the key, the body and the credential. {_NEVER_AGAIN} If the detail names an address, send the "
            "identical request there. If not, the operator can have it answered by the release that the detail names.",
        ),
        "credential": Problem(
            "Another credential is being settled under this key",
            False,
            f"Send the credential that was first sent under this key, and do not sign another. {_WHERE}",
        ),
        "paid": Problem(
            "The Idempotency-Key is already paid",
            False,
            "Send the saved credential that paid, with the identical body: without it the answer that you bought is "
            "lost. Do not pay again; if this was that credential, ask the operator.",
        ),
        "expired": Problem(
            "The Idempotency-Key was paid, and its replay window is over",
            False,
            "Stop: the answer is no longer delivered, and nothing more comes under this key.",
        ),
    },
    "DUPLICATE_PROOF": {
        "key-authorization": Problem(
            "Another payment carries the same key authorization",
            False,
            "Nothing was charged for this payment. When the first payment with this key authorization is settled, send "
            "the request without a credential, and answer the challenge that comes back by a transaction without the "
            "authorization, once.",
        ),
    },
    "PAYMENT_UNCERTAIN": {
        "chain": Problem(
            "The payment may have been made; the chain will tell",
            False,
            f"{_NEVER_AGAIN} Keep the key, the body and the credential, and ask GET /v1/attempts with the key once a "
            "minute. When it says settled, send the identical request again: it gets the answer. When it says "
            "anything else, do what it says next.",
        ),
    },
    "PAYMENT_UNAVAILABLE": {
        "unconfigured": Problem(
            "This protocol is not sold here",
            False,
            "GET /readyz names what is sold here; use the other path with a new key.",
        ),
        "ended": Problem(
            "Sales have ended here",
            False,
            "Nothing is sold here any more: stop.",
            "This request was not charged, and what was bought is still delivered to the identical request.",
        ),
    },
}
"""What a code means for one cause, where that changes what to do."""


def problem_of(code: str, cause: str | None = None) -> Problem:
    """Return what a code means, for this cause where it has a row of its own."""
    return CAUSES.get(code, {}).get(cause or "", PROBLEMS[code])


def rows_of(code: str) -> Iterator[tuple[str | None, Problem]]:
    """Yield every row of a code with its cause, the one for any cause first."""
    yield None, PROBLEMS[code]
    yield from CAUSES.get(code, {}).items()
