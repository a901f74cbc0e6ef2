"""Bytes to a JSON value: size, syntax, depth, values, Unicode, numbers, duplicate and unsafe members."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import orjson

from ranking_evaluate.core import canonical
from ranking_evaluate.core.errors import ErrorCode, OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ranking_evaluate.core.canonical import JsonValue

RAW_BYTES: Final = 131_072
CANONICAL_BYTES: Final = 100_000
VALUES: Final = 12_000
DEPTH: Final = 20
UNSAFE_NAMES: Final = frozenset({"__proto__", "constructor", "prototype"})

# A pointer repeats member names of the input, so one that would fill a screen stops at the last place that fits.
_POINTER_LENGTH: Final = 400

_MAY_HOLD_FLOATS: Final = (float, dict, list)

_SPACE: Final = b" \t\r\n"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_BRACKETS_OR_QUOTES: Final = bytes(set(range(256)) - set(b'[]{}"'))
_ONE_KIND_OF_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_UNSAFE_MEMBERS: Final = tuple(f'"{name}":'.encode() for name in sorted(UNSAFE_NAMES))
# Without a quote, which JSON is full of, the search leaps.
_UNSAFE_LETTERS: Final = (b"proto", b"constructor")


class Read(NamedTuple):
    """A JSON value, and its canonical form where it is known to be accepted: nothing else is sorted."""

    value: JsonValue
    canonical: bytes | None


def read(body: bytes) -> JsonValue:
    """Return the JSON value of a body, its integral numbers as integers (`10.0` and `1e1` are 10, `-0.0` is 0).

    Beyond 2**53 a float stays a float: there it no longer stands for one integer.

    Raises:
        OperationError: As `read_with`.
    """
    return read_with({}, body).value


def _unknown(_: JsonValue) -> bool:
    return False


def read_with(defaults: Mapping[str, JsonValue], body: bytes, accepts: Callable[[JsonValue], bool] = _unknown) -> Read:
    """Return the JSON value of a body as `read` does; an object is completed by the defaults for absent members.

    The limits are on what was sent, without the defaults.

    Args:
        defaults: The values of absent members.
        body: What was sent.
        accepts: Says True only of values with a shape that allows for neither depth nor unsafe names, which then need
            not be looked for.

    Raises:
        OperationError: MALFORMED_JSON, INPUT_LIMIT, COMPLEXITY_LIMIT, INVALID_UNICODE, INVALID_NUMBER, DUPLICATE_FIELD
            or UNSAFE_KEY. A body with several faults may be refused for any of them.
    """
    if len(body) > RAW_BYTES:
        raise OperationError(ErrorCode.INPUT_LIMIT, f"The request body is larger than {RAW_BYTES:,} bytes.")
    try:
        value: JsonValue = orjson.loads(body)
    except orjson.JSONDecodeError:
        _refuse_what_orjson_refused(body)
    unescaped = _without_escapes(body)
    _refuse_many_values(unescaped)

    added = b""
    if defaults and isinstance(value, dict):
        absent = {name: default for name, default in defaults.items() if name not in value}
        if absent:
            added = orjson.dumps(absent)
            value.update(absent)
    is_accepted = accepts(value)
    if not is_accepted:
        _refuse_depth(unescaped)

    encoded = canonical.plain(value, is_sorted=is_accepted)
    if encoded is None:
        value = _with_integers(value)
        is_accepted = is_accepted or accepts(value)
        encoded = canonical.encode(value)

    # orjson keeps the last of equal names, so a duplicate is a member that was written and did not arrive: its quotes
    # and its colon are missing. Colons are fewer, but an escape can write one too.
    mark = b'"' if b"\\" in body else b":"
    if unescaped.count(mark) != _without_escapes(encoded).count(mark) - _without_escapes(added).count(mark):
        # What did not arrive could be as deep as it liked.
        _refuse_depth(unescaped)
        raise _duplicate_field(body)
    if not is_accepted:
        _refuse_unsafe_names(value, encoded)
    # What was added stands there without its braces, and with a comma before it.
    if len(encoded) - max(0, len(added) - 1) > CANONICAL_BYTES:
        raise OperationError(
            ErrorCode.INPUT_LIMIT,
            f"The input is larger than {CANONICAL_BYTES:,} bytes, counted compactly and without white space.",
        )
    return Read(value, encoded if is_accepted else None)


def json_pointer(path: Iterable[str | int]) -> str:
    """Return the RFC 6901 pointer to a path of member names and positions, cut short where a name is very long."""
    pointer = ""
    for part in path:
        longer = f"{pointer}/{str(part).replace('~', '~0').replace('/', '~1')}"
        if len(longer) > _POINTER_LENGTH:
            break
        pointer = longer
    return pointer


def _with_integers(value: JsonValue) -> JsonValue:
    """Return the value with its integral floats below 2**53 as integers; containers are changed in place."""
    if isinstance(value, float):
        return int(value) if abs(value) < canonical.EXACT_INTEGERS and value.is_integer() else value
    if isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, _MAY_HOLD_FLOATS):
                value[name] = _with_integers(member)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, _MAY_HOLD_FLOATS):
                value[position] = _with_integers(item)
    return value


# What the text alone tells: depth and values are exact without a walk, because bytes methods run at memory speed.


def _without_escapes(text: bytes) -> bytes:
    """Return JSON text without escaped backslashes and quotes, so that every quote left opens or closes a string."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def _without_strings(unescaped: bytes) -> bytes:
    """Return JSON text with one quote in the place of each string."""
    return b'"'.join(unescaped.split(b'"')[::2])


def _refuse_many_values(unescaped: bytes) -> None:
    """Raise COMPLEXITY_LIMIT when well-formed JSON holds too many values."""
    # Between two values of at least one byte there is another byte, and so many do not fit into a small body.
    if len(unescaped) <= 2 * VALUES:
        return
    # Every value follows a comma or is the first of its container. Counting a first value for empty containers too, and
    # what stands within strings, gives the upper bound that nearly every body meets; only above it the exact count.
    if _values_at_most(unescaped) > VALUES:
        outside = _without_strings(unescaped).translate(None, _SPACE)
        if _values_at_most(outside) - outside.count(b"[]") - outside.count(b"{}") > VALUES:
            raise OperationError(ErrorCode.COMPLEXITY_LIMIT, f"The input holds more than {VALUES:,} JSON values.")


def _values_at_most(text: bytes) -> int:
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def _refuse_depth(unescaped: bytes) -> None:
    """Raise COMPLEXITY_LIMIT when well-formed JSON is nested too deeply."""
    # A bracket within a string has an odd number of quotes before it, and taking out pairs of quotes keeps it odd:
    # when no quote is left, no string holds a bracket.
    brackets = unescaped.translate(None, _NOT_BRACKETS_OR_QUOTES).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _without_strings(unescaped).translate(None, _NOT_BRACKETS)
    brackets = brackets.translate(_ONE_KIND_OF_BRACKET)

    # Each pass takes out the innermost containers, so it lowers the depth by exactly one.
    for _ in range(DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise _too_deep()


def _too_deep() -> OperationError:
    return OperationError(ErrorCode.COMPLEXITY_LIMIT, f"The input is nested deeper than {DEPTH} levels.")


# The slow path: a body that is refused anyway is read again by the standard library, to say why and where.


class _Repeating(NamedTuple):
    """The members of an object that has two of the same name, as written."""

    pairs: list[tuple[str, object]]


# A number that no binary64 value is large enough for.
_TOO_LARGE: Final = object()

_CONTAINERS: Final = (list, dict, _Repeating)


class _Place(NamedTuple):
    """A container with the way to it."""

    parent: _Place | None
    step: str | int
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
        steps = list(step)
        place = self
        while place.parent is not None:
            steps.append(place.step)
            place = place.parent
        # The outermost step leads from the list around the root, which is not part of the body.
        return json_pointer(reversed(steps[:-1]))


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
    pending = [_Place(None, "", [value])]
    while pending:
        place = pending.pop()
        yield place
        for step, inner in place.items:
            if isinstance(inner, _CONTAINERS):
                try:
                    orjson.dumps(inner)
                except orjson.JSONEncodeError:
                    pending.append(_Place(place, step, inner))


def _refuse_what_orjson_refused(body: bytes) -> NoReturn:
    malformed = OperationError(ErrorCode.MALFORMED_JSON, "The request body is not one well-formed JSON text in UTF-8.")
    try:
        value = _reread(body.decode(), _binary64)
    except RecursionError:
        # It is at least hundreds deep; what never closes the brackets that it opens is no JSON at all.
        outside = _without_strings(_without_escapes(body))
        closed = outside.count(b"[") == outside.count(b"]") and outside.count(b"{") == outside.count(b"}")
        raise (_too_deep() if closed else malformed) from None
    except ValueError:
        raise malformed from None
    # It is JSON after all, so orjson met a number or a character that cannot be represented.
    unescaped = _without_escapes(body)
    _refuse_many_values(unescaped)
    _refuse_depth(unescaped)
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


def _duplicate_field(body: bytes) -> OperationError:
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


def _refuse_unsafe_names(value: JsonValue, encoded: bytes) -> None:
    """Raise UNSAFE_KEY when a member name is one that JavaScript objects reserve; the pointer is to its object."""
    if any(letters in encoded for letters in _UNSAFE_LETTERS) and any(name in encoded for name in _UNSAFE_MEMBERS):
        _look_for_unsafe_names(value, ())


def _look_for_unsafe_names(value: JsonValue, path: tuple[str | int, ...]) -> None:
    if isinstance(value, dict):
        if not UNSAFE_NAMES.isdisjoint(value):
            raise OperationError(
                ErrorCode.UNSAFE_KEY,
                "An object has a member named __proto__, constructor or prototype, which is never accepted.",
                json_pointer(path),
            )
        for name, member in value.items():
            _look_for_unsafe_names(member, (*path, name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _look_for_unsafe_names(item, (*path, position))
