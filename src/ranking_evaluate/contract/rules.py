"""What a result means: the shape and the conventions that an operation publishes, as one digest."""

from __future__ import annotations

from functools import cache
from typing import Any

from ranking_evaluate.contract.document import example_response
from ranking_evaluate.contract.schema import result_schema
from ranking_evaluate.core import canonical
from ranking_evaluate.operations.operation import Operation


@cache
def published_sha256(operation: Operation[Any]) -> str:
    """Return the SHA-256 of the result's schema and of its conventions as the reference publishes them.

    It is a part of a purchase's fingerprint, so that a key whose result would come out in another shape, or by another
    rule, is a conflict and never a replay that differs.
    """
    conventions = example_response(operation)["result"].get("conventions", [])
    return canonical.sha256(canonical.encode({"result": result_schema(operation), "conventions": conventions}))
