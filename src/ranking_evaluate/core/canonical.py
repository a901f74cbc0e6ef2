"""A JSON value as bytes, with every number written as ECMAScript (RFC 8785) writes it, and the SHA-256 of bytes."""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from typing import Final, TypeAlias

import orjson

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Number: TypeAlias = "int | float | orjson.Fragment"

# Below this magnitude an integral double and the integer it stands for are one value with one decimal spelling.
EXACT_INTEGERS: Final = 2**53

# What a number that orjson spells differently leaves in its output: `1.0`, `1e-6` or `1e+16`. A comma or a closing
# bracket follows every number within a container, so an id such as "page.0" rarely looks like one.
_INTEGRAL_FLOATS: Final = (b".0,", b".0]", b".0}")
_SIX_DECIMALS: Final = b"e-6"


def ecmascript(x: float) -> str:
    """Return a finite double as ECMAScript's Number::toString writes it.

    Python's `repr` finds the same shortest digits; only where the point and the exponent go differs.
    """
    if not math.isfinite(x):
        raise ValueError("JSON has no spelling for NaN or infinity")
    if x == 0:
        return "0"
    shortest = repr(x)
    # The one decade within reach of grades and figures that `repr` writes with an exponent, ECMAScript without.
    if shortest.endswith("e-06"):
        digits = shortest[:-4].replace(".", "")
        return f"-0.00000{digits[1:]}" if x < 0 else f"0.00000{digits}"
    negative, figures, exponent = Decimal(shortest).as_tuple()
    written = "".join(map(str, figures))
    digits = written.rstrip("0")
    # The value is 0.digits times ten to this power.
    point = len(written) + int(exponent)
    sign = "-" if negative else ""
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def number(x: float | None) -> Number | None:
    """Return what orjson must be given so that it writes the finite number `x` as ECMAScript does; None stays None."""
    if type(x) is float:
        # Most figures are neither whole nor tiny.
        if not x.is_integer():
            # orjson writes one decade with an exponent, ECMAScript without.
            return orjson.Fragment(ecmascript(x)) if x < 1e-5 and 1e-6 <= abs(x) < 1e-5 else x
        return int(x) if -EXACT_INTEGERS < x < EXACT_INTEGERS else orjson.Fragment(ecmascript(x))
    if x is None or -EXACT_INTEGERS <= x <= EXACT_INTEGERS:
        return x
    return orjson.Fragment(ecmascript(float(x)))


def spelled(value: JsonValue) -> object:
    """Return the value with each of its numbers as `number` returns it."""
    if type(value) is float:
        return number(value)
    if isinstance(value, list):
        return [spelled(item) for item in value]
    if isinstance(value, dict):
        return {name: spelled(member) for name, member in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return value


def plain(value: JsonValue) -> bytes | None:
    """Return the canonical form of a value whose every number orjson spells right, or None when one might need care.

    Spelling every number ourselves, the free path takes 90 % longer at the typical and 130 % at the large size.
    """
    if isinstance(value, int | float):
        return None
    try:
        written = orjson.dumps(value, option=orjson.OPT_STRICT_INTEGER | orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # An integer beyond 2**53 is not written exactly by ECMAScript.
        return None
    # Looking for a single byte is nearly free; without these two looks the free path takes 18 % longer at the typical
    # and 16 % at the large size.
    if b"+" in written and b"e+" in written:
        return None
    if b"." in written and any(mark in written for mark in _INTEGRAL_FLOATS):
        return None
    return None if _SIX_DECIMALS in written else written


def encode(value: JsonValue) -> bytes:
    """Return the canonical form: compact, members sorted by name (by code point), numbers as ECMAScript writes them."""
    written = plain(value)
    return orjson.dumps(spelled(value), option=orjson.OPT_SORT_KEYS) if written is None else written


def dump(result: object) -> bytes:
    """Return a result compactly, members in their declared order; its floats have been through `number`."""
    return orjson.dumps(result)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` in lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()
