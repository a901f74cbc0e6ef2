"""Every refusal of the service: one class per status, one row per code, and what the caller may do next.

ServiceError
├─ RequestMalformed     400
├─ PaymentRequired      402  carries the challenge; PAYMENT_REJECTED when a credential was refused
├─ NotFound             404
├─ MethodNotAllowed     405
├─ RequestTimeout       408
├─ AttemptConflict      409
│  └─ PaymentUncertain  409  an operator decides
├─ TooLarge             413
├─ UnsupportedMedia     415
├─ InputRejected        422
├─ RateLimited          429
├─ Internal             500
└─ Unavailable          503
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from ranking_evaluate.core.errors import ErrorCode, OperationError, Violation

RETRY_AFTER: Final = 2
"""Seconds to wait before an identical resend, where a payment is being settled or something is not there at the moment.

A settlement takes about as long as a block, which is two seconds on Base; asking more often would learn nothing new.
"""


class Problem(NamedTuple):
    """What a code means to a caller.

    `retryable` says whether the identical request may succeed later; it never speaks of a new payment.
    """

    title: str
    retryable: bool
    next_step: str


_FIX_INPUT: Final = "Correct the input and send it again with the same Idempotency-Key; nothing was charged."
_FIX_REQUEST: Final = "Correct the request and send it again; nothing was charged."
_NEVER_AGAIN: Final = "Do not pay again under any key for this purchase."

PROBLEMS: Final[dict[str, Problem]] = {
    # 400
    "MALFORMED_JSON": Problem("The body is not JSON", False, _FIX_INPUT),
    "HEADER_INVALID": Problem("The request headers are refused", False, _FIX_REQUEST),
    "IDEMPOTENCY_KEY_REQUIRED": Problem(
        "An Idempotency-Key is needed",
        False,
        "Send a fresh random Idempotency-Key of 16 to 128 characters A-Z a-z 0-9 _ - and keep it for every resend.",
    ),
    "IDEMPOTENCY_KEY_INVALID": Problem(
        "The Idempotency-Key is malformed",
        False,
        "Use one line of 16 to 128 characters A-Z a-z 0-9 _ -, without quotes; nothing was charged.",
    ),
    "PAYMENT_IDENTIFIER_MISMATCH": Problem(
        "The payment does not name this purchase",
        False,
        "If the credential names another Idempotency-Key, send it with that key and the body of that purchase. If it "
        "names none, or this is a new purchase, send the request with this key and without a credential, and sign the "
        "terms of that answer: they name the key, and a client has to return the extensions that it is given.",
    ),
    "PAYMENT_PROTOCOL_MISMATCH": Problem(
        "The credential belongs to the other protocol's route",
        False,
        "Send exactly one credential, to the route of its own protocol; it was not used.",
    ),
    "PAYMENT_MALFORMED": Problem(
        "The payment credential cannot be read",
        False,
        "Let the protocol's official SDK write the header. If this key may already be paid, resend the original "
        "credential or ask GET /v1/attempts.",
    ),
    "DISCOVERY_KEY": Problem(
        "The published example key is never sold",
        False,
        "Choose a fresh random Idempotency-Key of your own; the credential was not used.",
    ),
    # 402
    "PAYMENT_REQUIRED": Problem(
        "Payment is required",
        False,
        "Answer the challenge with the protocol's official SDK, and send the identical body and Idempotency-Key with "
        "the credential.",
    ),
    "PAYMENT_REJECTED": Problem(
        "The payment was refused and did not move",
        False,
        "Nothing was charged for this credential. Mend what the detail names, then answer the new challenge.",
    ),
    # 404, 405, 408
    "NOT_FOUND": Problem("Nothing is served here", False, "Read /llms.txt for the routes."),
    "METHOD_NOT_ALLOWED": Problem("The method is not served here", False, "Use a method of the Allow header."),
    "REQUEST_TIMEOUT": Problem(
        "The request did not arrive in time", True, "Send the identical request again; it was not processed."
    ),
    # 409
    "IDEMPOTENCY_CONFLICT": Problem(
        "The Idempotency-Key stands for another purchase",
        False,
        "If this is a resend, send exactly the original body, protocol and credential. If it is a new purchase, use a "
        "fresh Idempotency-Key. GET /v1/attempts with the key tells where it stands.",
    ),
    "DUPLICATE_PROOF": Problem(
        "The payment proof was used before",
        False,
        "A proof buys one answer. Send it only with its own Idempotency-Key and body; GET /v1/attempts with that key "
        "tells where it stands.",
    ),
    "PAYMENT_IN_PROGRESS": Problem(
        "The payment is being settled",
        True,
        "Wait as long as Retry-After says, then send the identical request again. Do not sign another credential.",
    ),
    "PAYMENT_UNCERTAIN": Problem(
        "Whether the payment moved is not known",
        False,
        f"{_NEVER_AGAIN} Keep the key, the body and the credential, and ask the operator to reconcile the payment; "
        "then send the identical request again. GET /v1/attempts with the key tells when.",
    ),
    # 413, 415
    "INPUT_LIMIT": Problem("The input is too large", False, "Send less per call; nothing was charged."),
    "OUTPUT_LIMIT": Problem("The answer would be too large", False, "Send less per call; nothing was charged."),
    "UNSUPPORTED_MEDIA_TYPE": Problem("The media type is not accepted", False, "Send Content-Type: application/json."),
    "UNSUPPORTED_ENCODING": Problem("The content encoding is not accepted", False, "Send the body uncompressed."),
    # 422
    "INVALID_INPUT": Problem("The input breaks its schema", False, _FIX_INPUT),
    "COMPLEXITY_LIMIT": Problem("The input is too deep or holds too many values", False, _FIX_INPUT),
    "UNSAFE_KEY": Problem("A member name is refused", False, _FIX_INPUT),
    "INVALID_NUMBER": Problem("A number is outside binary64", False, _FIX_INPUT),
    "INVALID_UNICODE": Problem("A string is not Unicode text", False, _FIX_INPUT),
    "DUPLICATE_FIELD": Problem("A member name is repeated in an object", False, _FIX_INPUT),
    "DUPLICATE_ID": Problem("An id is repeated", False, _FIX_INPUT),
    "UNJUDGED_DOCUMENT": Problem(
        "A ranked document has no judgment",
        False,
        'Judge the document, or say "unjudged": "nonrelevant" if that is meant; nothing was charged.',
    ),
    "DOCUMENT_MISSING": Problem(
        "A named document is missing",
        False,
        "Supply every document that documentIds names, or stop naming it; nothing was charged.",
    ),
    "ACCESS_REVOKED": Problem(
        "Access to a named document is revoked",
        False,
        "Stop naming the document, or restore the access; nothing was searched or charged.",
    ),
    "CORPUS_CHANGED": Problem(
        "The corpus is not the pinned one",
        False,
        "Supply the pinned texts and dates. If the change is meant, send the pin as null: the answer states the new "
        "one. Figures over the two corpora are not comparable; nothing was charged.",
    ),
    "REFERENCE_VERSION_MISMATCH": Problem(
        "The reference is of another version",
        False,
        "Supply the reference of the version that the workflow names, or name the version that you mean; nothing was "
        "charged.",
    ),
    "usable-labels": Problem(
        "Usable labels are missing",
        False,
        "Give every query the arrays hits and usable; an empty usable says that nothing is usable, an absent one is "
        "unknown. Nothing was charged.",
    ),
    "score-bounds": Problem(
        "There are too many queries or hits", False, "Send at most 10 queries of at most 10 hits; nothing was charged."
    ),
    # 429, 500, 503
    "RATE_LIMITED": Problem(
        "Too many requests",
        True,
        "Wait as long as Retry-After says, then send the identical request with the same key and credential.",
    ),
    "INTERNAL": Problem(
        "The service failed",
        False,
        "Ask GET /v1/attempts with the key before anything else. The identical request is safe to resend; a new "
        "payment may not be.",
    ),
    "OVERLOADED": Problem("The service is busy", True, "Wait as long as Retry-After says, then send the same again."),
    "PAYMENT_UNAVAILABLE": Problem(
        "The payment provider cannot be used at the moment",
        True,
        "Nothing was charged. Wait as long as Retry-After says, then send the identical request with the same key "
        "and credential.",
    ),
    "STATE_UNAVAILABLE": Problem(
        "The record of purchases cannot be used at the moment",
        True,
        "Wait as long as Retry-After says, then send the identical request with the same key and credential; do not "
        "sign another credential.",
    ),
}


class ServiceError(Exception):
    """A refusal that leaves the service as an RFC 9457 problem.

    Args:
        code: A code of the class's row; its title and next step stand in `PROBLEMS`.
        detail: One sentence about this occurrence, without ids, bodies or credentials.
        pointer: RFC 6901 pointer into the input.
        violations: The broken places of the input, every one of a small input, at most 20.
        cause: A short word that tells apart what one code has in common.
        retry_after: Seconds, when waiting helps.
        headers: More response headers, a challenge's above all.
        members: More members of the problem; they win over the common ones.
    """

    status: ClassVar[int]
    codes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        pointer: str | None = None,
        violations: tuple[Violation, ...] = (),
        cause: str | None = None,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.pointer = pointer
        self.violations = violations
        self.cause = cause
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        self.members = dict(members or {})

    def problem(self, request_id: str) -> dict[str, object]:
        """Return the members of the problem document, in the published order."""
        row = PROBLEMS[self.code]
        document: dict[str, object] = {
            "type": f"/reference/errors.md#{self.code}",
            "title": row.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        if self.pointer is not None:
            document["pointer"] = self.pointer
        if self.violations:
            document["violations"] = [violation._asdict() for violation in self.violations]
        if self.cause is not None:
            document["cause"] = self.cause
        return document | {
            "retryable": row.retryable,
            "retryAfter": self.retry_after,
            "nextStep": row.next_step,
            "requestId": request_id,
            **self.members,
        }


class RequestMalformed(ServiceError):
    """The request itself is broken: JSON, headers, Idempotency-Key, or a credential that cannot be read."""

    status = 400
    codes = (
        "MALFORMED_JSON",
        "HEADER_INVALID",
        "IDEMPOTENCY_KEY_REQUIRED",
        "IDEMPOTENCY_KEY_INVALID",
        "PAYMENT_IDENTIFIER_MISMATCH",
        "PAYMENT_PROTOCOL_MISMATCH",
        "PAYMENT_MALFORMED",
        "DISCOVERY_KEY",
    )


class PaymentRequired(ServiceError):
    """A challenge: no credential came, or the one that came was definitely refused."""

    status = 402
    codes = ("PAYMENT_REQUIRED", "PAYMENT_REJECTED")


class NotFound(ServiceError):
    """No such route, or no such attempt."""

    status = 404
    codes = ("NOT_FOUND",)


class MethodNotAllowed(ServiceError):
    """The route has no such method."""

    status = 405
    codes = ("METHOD_NOT_ALLOWED",)


class RequestTimeout(ServiceError):
    """The body did not arrive within its deadline."""

    status = 408
    codes = ("REQUEST_TIMEOUT",)


class AttemptConflict(ServiceError):
    """The key or the proof stands for another purchase, or its own is still being settled."""

    status = 409
    codes: ClassVar[tuple[str, ...]] = ("IDEMPOTENCY_CONFLICT", "DUPLICATE_PROOF", "PAYMENT_IN_PROGRESS")


class PaymentUncertain(AttemptConflict):
    """Nobody knows whether the money moved; an operator decides."""

    codes = ("PAYMENT_UNCERTAIN",)


class TooLarge(ServiceError):
    """The input or its answer is over a published limit."""

    status = 413
    codes = ("INPUT_LIMIT", "OUTPUT_LIMIT")


class UnsupportedMedia(ServiceError):
    """The body is not uncompressed application/json."""

    status = 415
    codes = ("UNSUPPORTED_MEDIA_TYPE", "UNSUPPORTED_ENCODING")


class InputRejected(ServiceError):
    """The input breaks its schema or an operation's own rule."""

    status = 422
    codes = tuple(code for code in ErrorCode if code not in {"MALFORMED_JSON", "INPUT_LIMIT", "OUTPUT_LIMIT"})


class RateLimited(ServiceError):
    """The caller's window is full."""

    status = 429
    codes = ("RATE_LIMITED",)


class Internal(ServiceError):
    """A bug."""

    status = 500
    codes = ("INTERNAL",)


class Unavailable(ServiceError):
    """Something that the service needs is not there at the moment."""

    status = 503
    codes = ("OVERLOADED", "PAYMENT_UNAVAILABLE", "STATE_UNAVAILABLE")


def error_classes() -> Iterator[type[ServiceError]]:
    """Yield every class of the tree, base excluded."""
    waiting = list(ServiceError.__subclasses__())
    while waiting:
        found = waiting.pop(0)
        waiting += found.__subclasses__()
        yield found


_CLASS_OF_CODE: Final = {code: found for found in error_classes() for code in found.codes}


def refusal(error: OperationError) -> ServiceError:
    """Return the service's refusal of an input that an operation refused."""
    return _CLASS_OF_CODE[error.code](error.code, error.detail, pointer=error.pointer, violations=error.violations)
