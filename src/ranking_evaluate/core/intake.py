"""Bytes to a JSON value: size, syntax, depth, values, Unicode, numbers, duplicate and unsafe members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import orjson

from ranking_evaluate.core import canonical, json_text, reread
from ranking_evaluate.core.errors import ErrorCode, OperationError, json_pointer

if TYPE_CHECKING:
    from ranking_evaluate.core.canonical import JsonValue

RAW_BYTES: Final = 131_072
CANONICAL_BYTES: Final = 100_000
UNSAFE_NAMES: Final = frozenset({"__proto__", "constructor", "prototype"})

_MAY_HOLD_FLOATS: Final = (float, dict, list)


def body_of(given: object) -> bytes:
    """Return the body that an input makes, whether it is bytes or text of JSON or the object itself.

    Raises:
        OperationError: COMPLEXITY_LIMIT: an object is nested too deeply to be written.
        TypeError: It is none of these, or holds what JSON does not know.
    """
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if isinstance(given, str):
        # A lone surrogate is no UTF-8, and is refused as that.
        return given.encode(errors="surrogatepass")
    if not isinstance(given, Mapping):
        raise TypeError(f"an input is bytes or str of JSON, or a dict; this is {type(given).__name__}")
    try:
        text = json.dumps(dict(given), ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError):
        raise OperationError(ErrorCode.COMPLEXITY_LIMIT, "The input is nested too deeply, or holds itself.") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Written by its number, a lone surrogate is refused as what it is.
        return json.dumps(dict(given), separators=(",", ":")).encode()


def read(body: bytes) -> JsonValue:
    """Return the JSON value of a body, its integral numbers as integers (`10.0` and `1e1` are 10, `-0.0` is 0).

    Beyond 2**53 a float stays a float: there it no longer stands for one integer.

    Raises:
        OperationError: What `parse` and `refuse_shape` raise.
    """
    value = parse(body)
    refuse_shape(body, value)
    return value


def parse(body: bytes) -> JsonValue:
    """Return what `read` returns, without a look at its shape: that is left to `refuse_shape`, or to a schema.

    Raises:
        OperationError: MALFORMED_JSON, INPUT_LIMIT, COMPLEXITY_LIMIT, INVALID_UNICODE, INVALID_NUMBER or
            DUPLICATE_FIELD. A body with several faults may be refused for any of them.
    """
    if len(body) > RAW_BYTES:
        raise OperationError(ErrorCode.INPUT_LIMIT, f"The request body is larger than {RAW_BYTES:,} bytes.")
    try:
        value: JsonValue = orjson.loads(body)
    except orjson.JSONDecodeError:
        reread.refuse_what_orjson_refused(body)
    unescaped = json_text.without_escapes(body)
    json_text.refuse_many_values(unescaped)
    compact = canonical.plain(value)
    if compact is None:
        # What follows calls itself once for each level.
        json_text.refuse_depth(unescaped)
        value = _with_integers(value)
        compact = canonical.encode(value)
    _refuse_duplicate_names(body, unescaped, compact)
    if len(compact) > CANONICAL_BYTES:
        raise OperationError(
            ErrorCode.INPUT_LIMIT,
            f"The input is larger than {CANONICAL_BYTES:,} bytes, counted compactly and without white space.",
        )
    return value


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


def _refuse_duplicate_names(body: bytes, unescaped: bytes, compact: bytes) -> None:
    """Raise DUPLICATE_FIELD when an object has two members of the same name.

    orjson keeps only the last of them. The quotes of the others are in the body and not in the compact form, so
    counting finds them: reading the body again with every member kept, the free path takes 28 % longer at the typical
    and 31 % at the large size.
    """
    if unescaped.count(b'"') != json_text.without_escapes(compact).count(b'"'):
        json_text.refuse_depth(unescaped)
        raise reread.duplicate_field(body)


def refuse_shape(body: bytes, value: JsonValue) -> None:
    """Raise what is wrong with the depth and the member names of a value, whatever it is to be.

    Args:
        body: The text.
        value: What `parse` returned for it.

    Raises:
        OperationError: COMPLEXITY_LIMIT or UNSAFE_KEY, whose pointer is to the object that has the member.
    """
    json_text.refuse_depth(json_text.without_escapes(body))
    _refuse_unsafe_names(value, ())


def _refuse_unsafe_names(value: JsonValue, path: tuple[str | int, ...]) -> None:
    if isinstance(value, dict):
        if not UNSAFE_NAMES.isdisjoint(value):
            raise OperationError(
                ErrorCode.UNSAFE_KEY,
                "An object has a member named __proto__, constructor or prototype, which is never accepted.",
                json_pointer(path),
            )
        for name, member in value.items():
            _refuse_unsafe_names(member, (*path, name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _refuse_unsafe_names(item, (*path, position))
