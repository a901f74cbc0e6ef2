"""Inputs made from a published schema: valid ones at random, and each way of breaking one of its constraints."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # It has stubs only beside itself.

Schema = dict[str, Any]

# One value of each JSON type.
SAMPLES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "number": 1.5,
    "string": "text",
    "array": [],
    "object": {},
}


class Broken(NamedTuple):
    """An input with one fault: which constraint, where it shows, and the input."""

    constraint: str
    pointer: str
    value: Any


def is_valid(schema: Schema, value: Any) -> bool:
    return bool(Draft202012Validator(schema).is_valid(value))


def validate(value: Any, schema: Schema) -> None:
    """Raise AssertionError, which says where, unless the value meets the schema."""
    fault = next(Draft202012Validator(schema).iter_errors(value), None)
    assert fault is None, f"{fault.json_path}: {fault.message[:200]}"


def check_schema(schema: Schema) -> None:
    """Raise unless it is a schema."""
    Draft202012Validator.check_schema(schema)


def valid(schema: Schema) -> st.SearchStrategy[Any]:
    """Return valid values; what the keywords cannot be built from is filtered."""
    kinds: Any = schema.get("type")
    if isinstance(kinds, list):
        return st.one_of(*(valid({**schema, "type": kind}) for kind in kinds))
    if "anyOf" in schema:
        return st.one_of(*(valid(part) for part in schema["anyOf"]))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match kinds:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "number":
            return _numbers(schema)
        case "string" if "pattern" in schema:
            return st.from_regex(str(schema["pattern"]), fullmatch=True).map(_without_newline)
        case "string":
            return st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 20), 20))
        case "array":
            return st.lists(
                valid(schema["items"]),
                min_size=schema.get("minItems", 0),
                max_size=min(schema.get("maxItems", 4), 4),
                unique_by=repr if schema.get("uniqueItems") else None,
            )
        case "object":
            return _objects(schema)
        case _:
            raise NotImplementedError(schema)


def _without_newline(text: str) -> str:
    # A dollar sign in Python matches before a last newline too, and in JSON Schema it does not.
    return text.removesuffix("\n")


def _numbers(schema: Any) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1_000_000))
    high = schema.get("maximum", schema.get("exclusiveMaximum", 1_000_000))
    open_below, open_above = "exclusiveMinimum" in schema, "exclusiveMaximum" in schema
    floats: st.SearchStrategy[Any] = st.floats(low, high, exclude_min=open_below, exclude_max=open_above)
    first, last = int(low) + open_below, int(high) - open_above
    return floats | st.integers(first, last) if first <= last else floats


def _objects(schema: Schema) -> st.SearchStrategy[Any]:
    members = {name: valid(member) for name, member in schema["properties"].items()}
    required = {name: members.pop(name) for name in schema.get("required", ())}
    made: st.SearchStrategy[Any] = st.fixed_dictionaries(required, optional=members)
    if {"if", "dependentRequired"} & schema.keys():
        made = made.filter(lambda value: is_valid(schema, value))
    return made


def broken(schema: Schema, value: Any) -> Iterator[Broken]:
    """Yield the valid value with one constraint broken, for each constraint and each place in it."""
    yield from _broken(schema, value, "")


def _broken(schema: Schema, value: Any, pointer: str) -> Iterator[Broken]:
    yield from (Broken(name, pointer + where, changed) for name, where, changed in _here(schema, value))
    if isinstance(value, dict):
        for name, member in schema.get("properties", {}).items():
            if name in value:
                for fault in _broken(member, value[name], f"{pointer}/{name}"):
                    yield fault._replace(value={**value, name: fault.value})
    if isinstance(value, list) and "items" in schema:
        for position, item in enumerate(value):
            for fault in _broken(schema["items"], item, f"{pointer}/{position}"):
                yield fault._replace(value=[*value[:position], fault.value, *value[position + 1 :]])


def _here(schema: Schema, value: Any) -> Iterator[tuple[str, str, Any]]:
    kinds = schema.get("type", [])
    allowed = {kinds} if isinstance(kinds, str) else set(kinds)
    for kind, sample in SAMPLES.items():
        if kind not in allowed and not (kind == "number" and "integer" in allowed):
            yield f"type {kind}", "", sample
    if "integer" in allowed:
        yield "type number", "", 1.5
    match value:
        case bool():
            pass
        case int() | float():
            yield from _numbers_out_of_bounds(schema)
        case str():
            yield from _strings_out_of_bounds(schema)
        case list():
            yield from _lists_out_of_bounds(schema, value)
        case dict():
            yield from _objects_out_of_bounds(schema, value)
        case _:
            pass


def _numbers_out_of_bounds(schema: Schema) -> Iterator[tuple[str, str, Any]]:
    if "minimum" in schema:
        yield "minimum", "", schema["minimum"] - 1
    if "exclusiveMinimum" in schema:
        yield "exclusiveMinimum", "", schema["exclusiveMinimum"]
    if "maximum" in schema:
        yield "maximum", "", schema["maximum"] + 1
    if "exclusiveMaximum" in schema:
        yield "exclusiveMaximum", "", schema["exclusiveMaximum"]


def _strings_out_of_bounds(schema: Schema) -> Iterator[tuple[str, str, Any]]:
    if {"enum", "const", "pattern"} & schema.keys():
        yield "enum, const or pattern", "", "something else"
    if "minLength" in schema:
        yield "minLength", "", "x" * (schema["minLength"] - 1)
    if "maxLength" in schema:
        # Code points are counted, so a character outside the basic plane is one.
        yield "maxLength", "", "\U0001f50d" * (schema["maxLength"] + 1)


def _lists_out_of_bounds(schema: Schema, value: list[Any]) -> Iterator[tuple[str, str, Any]]:
    if schema.get("minItems"):
        yield "minItems", "", value[: schema["minItems"] - 1]
    if "maxItems" in schema and value and not schema.get("uniqueItems"):
        yield "maxItems", "", [copy.deepcopy(value[0]) for _ in range(schema["maxItems"] + 1)]
    if schema.get("uniqueItems") and value:
        yield "uniqueItems", "/1", [value[0], value[0]]


def _objects_out_of_bounds(schema: Schema, value: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name in schema.get("required", ()):
        yield "required", f"/{name}", {member: value[member] for member in value if member != name}
    if schema.get("additionalProperties") is False:
        yield "additionalProperties", "/unexpected", {**value, "unexpected": 1}
    for name, needed in schema.get("dependentRequired", {}).items():
        without = {member: value[member] for member in value if member not in needed}
        yield "dependentRequired", f"/{name}", {**without, name: "text"}
    if "if" in schema:
        # The one condition there is: without labels no population is complete.
        [(first, when)] = schema["if"]["properties"].items()
        [(second, then)] = schema["then"]["properties"].items()
        yield "then", f"/{second}", {**value, first: SAMPLES[when["type"]], second: not then["const"]}
