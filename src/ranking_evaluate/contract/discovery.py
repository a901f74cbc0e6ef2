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


class Input(NamedTuple):
    """An input that works, and schemas of all inputs: the fullest first, for where there is room."""

    example: Mapping[str, Any]
    schemas: tuple[Schema, ...]


@cache
def input_of(operation_id: str) -> Input:
    """Return the input that a challenge announces for an operation; raises ValueError for an unknown one."""
    operation = registry.find(operation_id)
    whole = input_schema(operation)
    return Input(operation.example_input, (whole, outline(whole), outline(whole, bounds=False), {"type": "object"}))


def example_body(operation: Operation[Any]) -> bytes:
    """Return the operation's example as the body of a request."""
    return canonical.encode(cast("JsonValue", operation.example_input))
