"""What is published for discovery: the key that documents show, and an operation's input as a challenge carries it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple, cast

from ranking_evaluate.contract.schema import Schema, input_schema, outline
from ranking_evaluate.core import canonical
from ranking_evaluate.core.canonical import JsonValue
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation

DISCOVERY_KEY: Final = "discovery_example_never_pay_0001"
"""With it an unpaid example gets its challenge, and nothing is ever sold."""


class Announcement(NamedTuple):
    """What a challenge says of an operation: what it does, an input that works, and a schema of them all."""

    description: str
    example: Mapping[str, Any]
    schema: Schema


@cache
def announcements(operation_id: str) -> tuple[Announcement, ...]:
    """Return what a challenge may say of an operation: the fullest first, for where there is room.

    A schema that says less than the enforced one names in a comment where that stands.

    Raises:
        ValueError: There is no such operation.
    """
    operation = registry.find(operation_id)
    whole = input_schema(operation)
    elsewhere = {"$comment": f"See /reference/services/{operation.id}.json"}
    bounded, bare = ({**elsewhere, **outline(whole, bounds=bounds)} for bounds in (True, False))
    names = {**elsewhere, "properties": {name: {} for name in bare["properties"]}, "required": bare["required"]}
    short = operation.short_input or operation.example_input
    return (
        *(
            Announcement(operation.description, example, schema)
            for example in (operation.example_input, short)
            for schema in (whole, bounded, bare)
        ),
        *(Announcement(operation.name, short, schema) for schema in (bare, names, {"type": "object"})),
    )


def example_body(operation: Operation[Any]) -> bytes:
    """Return the operation's example as the body of a request."""
    return canonical.encode(cast("JsonValue", operation.example_input))
