"""Every operation, in the order in which the reference lists them."""

from __future__ import annotations

from typing import Any, Final

from ranking_evaluate.operations import (
    first_usable_rank,
    lexical_retrieval,
    ranking_compare,
    ranking_evaluate,
    retrieval_measure,
)
from ranking_evaluate.operations.operation import Operation

OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    ranking_evaluate.OPERATION,
    retrieval_measure.OPERATION,
    lexical_retrieval.OPERATION,
    first_usable_rank.OPERATION,
    ranking_compare.OPERATION,
)


def find(operation_id: str) -> Operation[Any]:
    """Return the operation of that id.

    Raises:
        ValueError: There is none; the message lists those there are.
    """
    for operation in OPERATIONS:
        if operation.id == operation_id:
            return operation
    known = ", ".join(operation.id for operation in OPERATIONS)
    raise ValueError(f"no operation is called {operation_id!r}; there are: {known}")
