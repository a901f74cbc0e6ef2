"""What the text of well-formed JSON tells without a walk: depth and values, exactly, since bytes methods are fast."""

from __future__ import annotations

from typing import Final

from ranking_evaluate.core.errors import ErrorCode, OperationError

VALUES: Final = 12_000
DEPTH: Final = 20

_SPACE: Final = b" \t\r\n"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_BRACKETS_OR_QUOTES: Final = bytes(set(range(256)) - set(b'[]{}"'))
_ONE_KIND_OF_BRACKET: Final = bytes.maketrans(b"{}", b"[]")


def without_escapes(text: bytes) -> bytes:
    """Return JSON text without escaped backslashes and quotes, so that every quote left opens or closes a string."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def without_strings(unescaped: bytes) -> bytes:
    """Return JSON text with one quote in the place of each string."""
    return b'"'.join(unescaped.split(b'"')[::2])


def refuse_many_values(unescaped: bytes) -> None:
    """Raise COMPLEXITY_LIMIT when well-formed JSON holds too many values."""
    # Between two values of at least one byte there is another byte, and so many do not fit into a small body.
    if len(unescaped) <= 2 * VALUES:
        return
    # Every value follows a comma or is the first of its container. Counting a first value for empty containers too, and
    # what stands within strings, gives the upper bound that nearly every body meets; only above it the exact count.
    if _values_at_most(unescaped) > VALUES:
        outside = without_strings(unescaped).translate(None, _SPACE)
        if _values_at_most(outside) - outside.count(b"[]") - outside.count(b"{}") > VALUES:
            raise OperationError(ErrorCode.COMPLEXITY_LIMIT, f"The input holds more than {VALUES:,} JSON values.")


def _values_at_most(text: bytes) -> int:
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def refuse_depth(unescaped: bytes) -> None:
    """Raise COMPLEXITY_LIMIT when well-formed JSON is nested too deeply."""
    # A bracket within a string has an odd number of quotes before it, and taking out pairs of quotes keeps it odd:
    # when no quote is left, no string holds a bracket.
    brackets = unescaped.translate(None, _NOT_BRACKETS_OR_QUOTES).replace(b'""', b"")
    if b'"' in brackets:
        brackets = without_strings(unescaped).translate(None, _NOT_BRACKETS)
    brackets = brackets.translate(_ONE_KIND_OF_BRACKET)

    # Each pass takes out the innermost containers, so it lowers the depth by exactly one.
    for _ in range(DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise too_deep()


def too_deep() -> OperationError:
    """Return the refusal of what is nested too deeply."""
    return OperationError(ErrorCode.COMPLEXITY_LIMIT, f"The input is nested deeper than {DEPTH} levels.")
