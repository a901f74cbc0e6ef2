"""Why and where a body is refused: it is read again by the standard library, which keeps what orjson drops."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import orjson

from ranking_evaluate.core import json_text
from ranking_evaluate.core.errors import ErrorCode, OperationError, json_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class _Repeating(NamedTuple):
    """The members of an object that has two of the same name, as written."""

    pairs: list[tuple[str, object]]


# A number that no binary64 value is large enough for.
_TOO_LARGE: Final = object()

_CONTAINERS: Final = (list, dict, _Repeating)


class _Place(NamedTuple):
    """A container with the way to it."""

    path: tuple[str | int, ...]
    container: list[object] | dict[str, object] | _Repeating

    @property
    def items(self) -> Iterable[tuple[str | int, object]]:
        """What it holds, by name or position."""
        match self.container:
            case _Repeating(pairs):
                return pairs
            case dict():
                return self.container.items()
            case list():
                return enumerate(self.container)

    def pointer(self, *step: str | int) -> str:
        """Return the pointer to this container, or to what it holds at `step`."""
        # The outermost step leads from the list around the root, which is not part of the body.
        return json_pointer((*self.path, *step)[1:])


def _reread(text: str, number: Callable[[str], object]) -> object:
    """Return the value with every member kept and every number as `number` makes it of any count of digits.

    What is wrong in it, orjson cannot write: half of a surrogate pair, `_TOO_LARGE` and `_Repeating`.
    """
    return json.loads(
        text, parse_int=number, parse_float=number, parse_constant=_no_constant, object_pairs_hook=_members
    )


def _members(pairs: list[tuple[str, object]]) -> dict[str, object] | _Repeating:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _Repeating(pairs)


def _binary64(text: str) -> object:
    number = float(text)
    return _TOO_LARGE if math.isinf(number) else number


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def _faulty_places(value: object) -> Iterator[_Place]:
    """Yield a list around the value, then every container within that has something wrong in it, outer ones first."""
    pending = [_Place((), [value])]
    while pending:
        place = pending.pop()
        yield place
        for step, inner in place.items:
            if isinstance(inner, _CONTAINERS):
                try:
                    orjson.dumps(inner)
                except orjson.JSONEncodeError:
                    pending.append(_Place((*place.path, step), inner))


def refuse_what_orjson_refused(body: bytes) -> NoReturn:
    """Raise what is wrong with a body that orjson cannot read.

    Raises:
        OperationError: MALFORMED_JSON, COMPLEXITY_LIMIT, INVALID_UNICODE or INVALID_NUMBER.
    """
    malformed = OperationError(ErrorCode.MALFORMED_JSON, "The request body is not one well-formed JSON text in UTF-8.")
    try:
        value = _reread(body.decode(), _binary64)
    except RecursionError:
        # It is at least hundreds deep; what never closes the brackets that it opens is no JSON at all.
        outside = json_text.without_strings(json_text.without_escapes(body))
        closed = outside.count(b"[") == outside.count(b"]") and outside.count(b"{") == outside.count(b"}")
        raise (json_text.too_deep() if closed else malformed) from None
    except ValueError:
        raise malformed from None
    # It is JSON after all, so orjson met a number or a character that cannot be represented.
    unescaped = json_text.without_escapes(body)
    json_text.refuse_many_values(unescaped)
    json_text.refuse_depth(unescaped)
    for place in _faulty_places(value):
        for step, item in place.items:
            # A name that is no text cannot stand in a pointer, so its object does.
            if isinstance(step, str) and _has_lone_surrogate(step):
                raise _invalid_unicode(place.pointer())
            if isinstance(item, str) and _has_lone_surrogate(item):
                raise _invalid_unicode(place.pointer(step))
            if item is _TOO_LARGE:
                raise OperationError(
                    ErrorCode.INVALID_NUMBER,
                    "A number is too large for an IEEE 754 binary64 value.",
                    place.pointer(step),
                )
    raise malformed


def _invalid_unicode(pointer: str) -> OperationError:
    return OperationError(
        ErrorCode.INVALID_UNICODE, "A string holds half of a surrogate pair, which is no character.", pointer
    )


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def duplicate_field(body: bytes) -> OperationError:
    """Return the refusal of a body that is known to write one member of an object twice, with the second's place."""
    # Its numbers are fine.
    for place in _faulty_places(_reread(body.decode(), str)):
        if isinstance(place.container, _Repeating):
            seen: set[str] = set()
            for name, _ in place.container.pairs:
                if name in seen:
                    return _duplicate_at(place.pointer(name))
                seen.add(name)
    return _duplicate_at(None)


def _duplicate_at(pointer: str | None) -> OperationError:
    return OperationError(ErrorCode.DUPLICATE_FIELD, "An object has two members of the same name.", pointer)
