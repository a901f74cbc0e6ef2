"""Whether a response is what this release answers to an input, and if not, exactly where it differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
from pydantic import TypeAdapter, ValidationError

from ranking_evaluate.contract.answer import answer
from ranking_evaluate.core import canonical
from ranking_evaluate.core.errors import json_pointer
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation

_SHOWN_LENGTH: Final = 100


class Unusable(Exception):
    """What was given is not a response that could be verified; the text says why."""


class Difference(NamedTuple):
    """One place where a response is not what this release answers; the pointer "" is the whole response."""

    pointer: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was recomputed here, and every difference from it; none means that the response holds."""

    operation: str
    version: str
    input_sha256: str
    output_sha256: str
    differences: tuple[Difference, ...]


def verify(response: bytes, body: bytes) -> Verification:
    """Return how a response compares with the one computed here from the input `body`.

    White space around the response is overlooked: editors and terminals add it, and no digest covers it. Within the
    response every byte counts.

    Raises:
        Unusable: This is not a response, or its operation is not known here.
        OperationError: The operation refuses the input, so there is nothing to compare with.
    """
    text, given = _read(response)
    operation = _operation(given)

    own = answer(operation, body)
    own_text, expected = _read(own.body)
    differences = [*_compare((), expected, given), *_broken_seal(text, given)]
    if not differences and text != own_text:
        differences.append(_other_bytes(own.body, text.encode()))
    return Verification(
        operation=operation.id,
        version=str(expected["version"]),
        input_sha256=own.input_sha256,
        output_sha256=own.output_sha256,
        differences=tuple(differences),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A response without its input: what it says, the digests that it states, and the one that its result has."""

    operation: Operation[Any]
    version: str
    result: Any
    input_sha256: str
    output_sha256: str
    actual_output_sha256: str


def read_sealed(response: bytes) -> Sealed:
    """Return a response whose result has the members that its operation answers with; its figures may be anybody's.

    Raises:
        Unusable: This is not a response, or its operation is not known here.
    """
    text, given = _read(response)
    operation = _operation(given)
    raw = _raw_member(text, "result").encode()
    version, provenance = given.get("version"), given.get("provenance")
    digests = provenance if isinstance(provenance, dict) else {}
    stated = [digests.get(name) for name in ("inputSha256", "outputSha256")]
    try:
        result = orjson.loads(raw)
        TypeAdapter(operation.result_type).validate_python(result, strict=True)
    except (orjson.JSONDecodeError, ValidationError):
        raise Unusable(f"This is not a response: its result is none that {operation.id} can have.") from None
    if not isinstance(version, str) or isinstance(version, _Number) or not all(map(_is_digest, stated)):
        raise Unusable("This is not a response: it does not state its release and both digests.")
    return Sealed(
        operation=operation,
        version=version,
        result=result,
        input_sha256=str(stated[0]),
        output_sha256=str(stated[1]),
        actual_output_sha256=canonical.sha256(raw),
    )


def _operation(given: dict[str, _Value]) -> Operation[Any]:
    operation_id = given.get("operation")
    if type(operation_id) is not str or "result" not in given:
        hint = ", but a problem: the input was refused" if "code" in given and "status" in given else ""
        raise Unusable(f"This is not a response{hint}.")
    try:
        return registry.find(operation_id)
    except ValueError:
        known = ", ".join(one.id for one in registry.OPERATIONS)
        raise Unusable(f"The response names an operation that is not known here; there are: {known}.") from None


def _is_digest(value: _Value) -> bool:
    return type(value) is str and re.fullmatch("[0-9a-f]{64}", value) is not None


# Reading: a number keeps its spelling, and a repeated member is an error.


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


_Value: TypeAlias = "bool | str | list[_Value] | dict[str, _Value] | None"
_Path: TypeAlias = tuple[str | int, ...]

_SPACE: Final = " \t\r\n"
_AFTER_SPACE: Final = re.compile(rf"[{_SPACE}]*")


def _unique(pairs: list[tuple[str, _Value]]) -> dict[str, _Value]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Unusable("This is not a response: one of its objects names a member twice.")
    return members


def _no_constant(name: str) -> _Value:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(
    parse_int=_Number, parse_float=_Number, parse_constant=_no_constant, object_pairs_hook=_unique
)


def _read(response: bytes) -> tuple[str, dict[str, _Value]]:
    """Return the text of a JSON object without the white space around it, and its members."""
    try:
        text = response.decode().strip(_SPACE)
        value: _Value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise Unusable("This is not a response: it is not JSON.") from None
    if not isinstance(value, dict):
        raise Unusable("This is not a response: it is not a JSON object.")
    return text, value


def _raw_member(text: str, name: str) -> str:
    """Return the text of one member's value, as it stands in the text of an object that has this member."""
    at = 1
    while True:
        found, at = _DECODER.raw_decode(text, _skip_space(text, at))
        start = _skip_space(text, _skip_space(text, at) + len(":"))
        _, end = _DECODER.raw_decode(text, start)
        if found == name:
            return text[start:end]
        at = _skip_space(text, end) + len(",")


def _skip_space(text: str, at: int) -> int:
    found = _AFTER_SPACE.match(text, at)
    return found.end() if found else at


# Comparing.


def _compare(path: _Path, expected: _Value, given: _Value) -> Iterator[Difference]:
    """Yield every place below `path` where the given value is not the expected one, or is not spelled like it."""
    if isinstance(expected, dict) and isinstance(given, dict):
        yield from _compare_members(path, expected, given)
    elif isinstance(expected, list) and isinstance(given, list):
        if len(expected) != len(given):
            yield _difference(path, f"holds {len(given)} values, expected {len(expected)}")
        for position, (one, other) in enumerate(zip(expected, given, strict=False)):
            yield from _compare((*path, position), one, other)
    elif type(expected) is not type(given) or expected != given:
        if isinstance(expected, _Number) and isinstance(given, _Number) and float(expected) == float(given):
            yield _difference(path, f"is the right number, but spelled {_shown(given)}, expected {_shown(expected)}")
        else:
            yield _difference(path, f"is {_shown(given)}, expected {_shown(expected)}")


def _compare_members(path: _Path, expected: dict[str, _Value], given: dict[str, _Value]) -> Iterator[Difference]:
    for name, value in expected.items():
        if name in given:
            yield from _compare((*path, name), value, given[name])
        else:
            yield _difference((*path, name), f"is missing, expected {_shown(value)}")
    for name, value in given.items():
        if name not in expected:
            yield _difference((*path, name), f"is {_shown(value)}, expected no such member")
    if [name for name in expected if name in given] != [name for name in given if name in expected]:
        yield _difference(path, f"has its members in the order {_names(given)}, expected {_names(expected)}")


def _broken_seal(text: str, given: dict[str, _Value]) -> Iterator[Difference]:
    """Yield a difference when the bytes of the given result have not the digest that the response states for them."""
    provenance = given.get("provenance")
    stated = provenance.get("outputSha256") if isinstance(provenance, dict) else None
    actual = canonical.sha256(_raw_member(text, "result").encode())
    if stated is not None and stated != actual:
        yield Difference("/result", f"has the SHA-256 {actual} as given, the response states {_shown(stated)}")


def _other_bytes(expected: bytes, given: bytes) -> Difference:
    # A text that only goes on differs at the end of the shorter one.
    pairs = enumerate(zip(expected, given, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(expected), len(given)))
    return Difference("", f"has the right values, but other white space or string escapes, first at byte {at}")


def _difference(path: _Path, text: str) -> Difference:
    pointer = json_pointer(path)
    return Difference(pointer if pointer.isprintable() else ascii(pointer)[1:-1], text)


def _names(members: dict[str, _Value]) -> str:
    return _cut(", ".join(members))


def _shown(value: _Value) -> str:
    """Return a value as a person should see it: on one line, and safe to print on a terminal."""
    if isinstance(value, _Number):
        return _cut(value)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    safe = text if text.isprintable() else ascii(text)[1:-1]
    return safe if len(safe) <= _SHOWN_LENGTH else f"{safe[:_SHOWN_LENGTH]}..."
