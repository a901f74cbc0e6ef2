"""Why and where an input is refused: the codes, the status of each, the error that carries them, its pointers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class ErrorCode(StrEnum):
    """Every reason for which an operation refuses an input; the value is the code on the wire."""

    MALFORMED_JSON = "MALFORMED_JSON"
    INPUT_LIMIT = "INPUT_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    COMPLEXITY_LIMIT = "COMPLEXITY_LIMIT"
    INVALID_UNICODE = "INVALID_UNICODE"
    INVALID_NUMBER = "INVALID_NUMBER"
    DUPLICATE_FIELD = "DUPLICATE_FIELD"
    UNSAFE_KEY = "UNSAFE_KEY"
    INVALID_INPUT = "INVALID_INPUT"
    DUPLICATE_ID = "DUPLICATE_ID"
    UNJUDGED_DOCUMENT = "UNJUDGED_DOCUMENT"
    DOCUMENT_MISSING = "DOCUMENT_MISSING"
    ACCESS_REVOKED = "ACCESS_REVOKED"
    CORPUS_CHANGED = "CORPUS_CHANGED"
    REFERENCE_VERSION_MISMATCH = "REFERENCE_VERSION_MISMATCH"
    # The answer key of first-usable-rank spells its own.
    USABLE_LABELS = "usable-labels"
    SCORE_BOUNDS = "score-bounds"


STATUS: Final[dict[ErrorCode, int]] = dict.fromkeys(ErrorCode, 422) | {
    ErrorCode.MALFORMED_JSON: 400,
    ErrorCode.INPUT_LIMIT: 413,
    ErrorCode.OUTPUT_LIMIT: 413,
}


class Violation(NamedTuple):
    """One place where an input breaks its schema."""

    pointer: str
    detail: str


class OperationError(Exception):
    """The input cannot be evaluated; nothing was computed, and nothing is charged.

    Args:
        code: The reason; `status` is looked up from it.
        detail: One sentence for the caller, which never quotes an id or a value of the input.
        pointer: RFC 6901 JSON pointer to the place, where there is one; "" is the whole input.
        violations: The broken places of the input, every one of a small input, at most 20.
    """

    def __init__(
        self, code: ErrorCode, detail: str, pointer: str | None = None, violations: tuple[Violation, ...] = ()
    ) -> None:
        super().__init__(f"{code}: {detail}" + (f" (at {pointer})" if pointer else ""))
        self.code = code
        self.detail = detail
        self.pointer = pointer
        self.violations = violations

    @property
    def status(self) -> int:
        """The HTTP status with which the service answers this refusal."""
        return STATUS[self.code]


# A pointer repeats member names of the input, so one that would fill a screen stops at the last place that fits.
_POINTER_LENGTH: Final = 400


def json_pointer(path: Iterable[str | int]) -> str:
    """Return the RFC 6901 pointer to a path of member names and positions, cut short where a name is very long."""
    pointer = ""
    for part in path:
        longer = f"{pointer}/{str(part).replace('~', '~0').replace('/', '~1')}"
        if len(longer) > _POINTER_LENGTH:
            break
        pointer = longer
    return pointer
