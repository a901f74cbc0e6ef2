"""Every refusal of the service: one class per status; the words of each code stand in problems.py.

ServiceError
├─ RequestMalformed     400
├─ PaymentRequired      402  carries the challenge; PAYMENT_REJECTED when a credential was refused
├─ NotFound             404
├─ MethodNotAllowed     405
├─ RequestTimeout       408
├─ AttemptConflict      409
│  └─ PaymentUncertain  409  the chain or an operator decides
├─ TooLarge             413
├─ UnsupportedMedia     415
├─ InputRejected        422
├─ RateLimited          429
├─ Internal             500
└─ Unavailable          503
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from ranking_evaluate.contract.problems import problem_of
from ranking_evaluate.core.errors import ErrorCode, OperationError, Violation

RETRY_AFTER: Final = 2
"""Seconds to wait before an identical resend, where a payment is being settled or something is not there at the moment.

A settlement takes about as long as a block, which is two seconds on Base; asking more often would learn nothing new.
"""


class ServiceError(Exception):
    """A refusal that leaves the service as an RFC 9457 problem.

    Args:
        code: A code of the class's row; its title and next step stand in problems.py.
        detail: One sentence about this occurrence, without ids, bodies or credentials.
        pointer: RFC 6901 pointer into the input.
        violations: The broken places of the input, every one of a small input, at most 20.
        cause: A short word that tells apart what one code has in common, and what to do then.
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

    def problem(self, request_id: str, *, paid: bool = True) -> dict[str, object]:
        """Return the members of the problem document, in the published order.

        Args:
            request_id: The id under which the request is answered and logged.
            paid: Whether it was sent to a paid route: a free one speaks neither of keys nor of charging.
        """
        row = problem_of(self.code, self.cause)
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
            "nextStep": row.next_step if paid else row.advice,
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
    codes = ("NOT_FOUND", "ATTEMPT_UNKNOWN")


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
    """The money may have moved, and nobody knows; the chain or an operator decides."""

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


ANSWER_KEY_CODES: Final = (ErrorCode.USABLE_LABELS, ErrorCode.SCORE_BOUNDS)
"""The codes for which the answer key of first-usable-rank has a form of its own: the member `error`."""


def refusal(error: OperationError) -> ServiceError:
    """Return the service's refusal of an input that an operation refused."""
    return _CLASS_OF_CODE[error.code](
        error.code,
        error.detail,
        pointer=error.pointer,
        violations=error.violations,
        members={"error": error.code.value} if error.code in ANSWER_KEY_CODES else None,
    )
