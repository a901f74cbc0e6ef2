"""Scores ranked document ids against supplied judgments, with the same bytes that the paid service sells."""

from ranking_evaluate.contract.answer import answer
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.operations import registry
from ranking_evaluate.release import VERSION as __version__

__all__ = ["OperationError", "__version__", "evaluate"]


def evaluate(operation_id: str, body: bytes) -> bytes:
    """Return the response body that the service would sell for this request body.

    Raises:
        OperationError: The input is refused; its `code`, `status`, `pointer` and `detail` say why and where.
        ValueError: No operation has that id; the message lists those there are.
    """
    return answer(registry.find(operation_id), body).body
