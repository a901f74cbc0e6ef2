"""The schemas that are enforced, in the form in which they are published: self-contained, without pydantic's titles."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias, cast

from pydantic import TypeAdapter

from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.release import VERSION

Schema: TypeAlias = "dict[str, Any]"

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

# The order of the contract; keywords that it does not have follow in the order in which pydantic writes them.
_ORDER: Final = {
    keyword: position
    for position, keyword in enumerate(
        (
            *("default", "minItems", "maxItems", "uniqueItems", "type", "minLength", "maxLength", "minimum"),
            *("exclusiveMinimum", "maximum", "exclusiveMaximum", "enum", "const", "items", "properties", "required"),
            "additionalProperties",
        )
    )
}
# Their values hold schemas by name; everything else that is an object is a schema itself.
_BY_NAME: Final = frozenset({"properties", "dependentRequired"})
# Python's names and docstrings are written for the readers of the code.
_UNPUBLISHED: Final = frozenset({"title", "description", "$defs"})


@cache
def input_schema(operation: Operation[Any]) -> Schema:
    """Return the schema that every input is held against."""
    return {"$schema": DIALECT, **_published(operation.adapter.json_schema())}


@cache
def result_schema(operation: Operation[Any]) -> Schema:
    """Return the schema of the result, which the tests hold every answer against."""
    return {"$schema": DIALECT, **_published(TypeAdapter(operation.result_type).json_schema())}


@cache
def answer_schema(operation: Operation[Any]) -> Schema:
    """Return the schema of a whole answer: the result in its envelope."""
    digest = {"type": "string", "pattern": "^[a-f0-9]{64}$"}
    return {
        "type": "object",
        "required": ["operation", "version", "result", "provenance"],
        "properties": {
            "operation": {"const": operation.id, "type": "string"},
            "version": {"const": VERSION, "type": "string"},
            "result": result_schema(operation),
            "provenance": {
                "type": "object",
                "required": ["inputSha256", "outputSha256", "deterministic", "externalRequests"],
                "properties": {
                    "inputSha256": digest,
                    "outputSha256": digest,
                    "deterministic": {"const": True},
                    "externalRequests": {"const": 0},
                },
            },
        },
        "additionalProperties": False,
    }


def outline(schema: Schema, *, bounds: bool = True) -> Schema:
    """Return the schema of the top-level members alone, with or without their bounds, for where no more fits."""
    kept = {"type"}
    if bounds:
        kept |= {
            "default",
            "minimum",
            "exclusiveMinimum",
            "maximum",
            "exclusiveMaximum",
            "enum",
            "minItems",
            "maxItems",
        }
    return {
        "type": "object",
        "properties": {
            name: {keyword: member[keyword] for keyword in member if keyword in kept}
            for name, member in schema["properties"].items()
        },
        "required": schema["required"],
        "additionalProperties": False,
    }


def _published(schema: Schema) -> Schema:
    definitions: dict[str, Schema] = schema.get("$defs", {})

    def publish(part: Schema) -> Schema:
        if "$ref" in part:
            return publish({**definitions[part["$ref"].removeprefix("#/$defs/")], **_without_ref(part)})
        written = {
            keyword: publish_value(keyword, value) for keyword, value in part.items() if keyword not in _UNPUBLISHED
        }
        return _in_order(_nullable(written))

    def publish_value(keyword: str, value: object) -> object:
        if keyword == "default":
            return value
        if isinstance(value, dict):
            if keyword in _BY_NAME:
                return {
                    name: publish(cast("Schema", member)) if isinstance(member, dict) else member
                    for name, member in value.items()
                }
            return publish(value)
        if isinstance(value, list):
            return [publish(item) if isinstance(item, dict) else item for item in value]
        return value

    return publish(schema)


def _without_ref(part: Schema) -> Schema:
    return {keyword: value for keyword, value in part.items() if keyword != "$ref"}


def _nullable(schema: Schema) -> Schema:
    """Return `anyOf` a type or null as the contract writes it: two types, the keywords of the first beside them."""
    match schema.get("anyOf"):
        case [{"type": str(kind)} as first, {"type": "null"}] if not {"enum", "const"} & first.keys():
            rest = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
            return {**rest, **first, "type": [kind, "null"]}
    return schema


def _in_order(schema: Schema) -> Schema:
    return dict(sorted(schema.items(), key=lambda item: _ORDER.get(item[0], len(_ORDER))))
