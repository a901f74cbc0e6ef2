"""Every operation, in the order in which the reference lists them."""

from __future__ import annotations

from typing import Any, Final

from ranking_evaluate.operations import ranking_evaluate
from ranking_evaluate.operations.operation import Operation

OPERATIONS: Final[tuple[Operation[Any], ...]] = (ranking_evaluate.OPERATION,)


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
