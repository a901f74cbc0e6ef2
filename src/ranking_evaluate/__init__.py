"""Scores ranked document ids against supplied judgments, with the same bytes that the paid service sells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.measure import measure
from ranking_evaluate.release import VERSION as __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OperationError", "__version__", "evaluate", "measure"]


def evaluate(operation_id: str, body: bytes | bytearray | memoryview | str | Mapping[str, object]) -> bytes:
    """Return the response body that the service would sell for this request body.

    Args:
        operation_id: Which operation.
        body: The input as bytes or text of JSON, or as the object itself.

    Raises:
        OperationError: The input is refused; its `code`, `status`, `pointer` and `detail` say why and where.
        ValueError: No operation has that id; the message lists those there are.
        TypeError: The body is none of these.
    """
    # The operations take a quarter of a second to import, which every command would wait for.
    from ranking_evaluate.contract.answer import answer
    from ranking_evaluate.core.intake import body_of
    from ranking_evaluate.operations import registry

    return answer(registry.find(operation_id), body_of(body)).body
