"""Ids that must be unique: the refusal points at the second of two equal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ranking_evaluate.core.errors import ErrorCode, OperationError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def refuse_duplicate(detail: str, pointer: str, ids: Sequence[Hashable]) -> None:
    """Raise DUPLICATE_ID when an id occurs twice.

    Args:
        detail: One sentence that says what occurs twice.
        pointer: JSON pointer to an id, with `{}` in the place of its position.
        ids: What must be unique, by position.
    """
    if len(set(ids)) != len(ids):
        first = {one: position for position, one in reversed(list(enumerate(ids)))}
        second = next(position for position, one in enumerate(ids) if first[one] != position)
        raise OperationError(ErrorCode.DUPLICATE_ID, detail, pointer.format(second))


class Judgment(TypedDict):
    """How relevant one document is to the query, as on the wire."""

    id: str
    grade: float


def grades_by_id(judgments: Sequence[Judgment], pointer: str) -> dict[str, float]:
    """Return the grade of each judged document.

    Args:
        judgments: In any order.
        pointer: JSON pointer to the query that they belong to.

    Raises:
        OperationError: DUPLICATE_ID at the second judgment of a document.
    """
    grade_by_id = {judgment["id"]: judgment["grade"] for judgment in judgments}
    if len(grade_by_id) != len(judgments):
        ids = [judgment["id"] for judgment in judgments]
        refuse_duplicate("A document is judged twice for one query.", f"{pointer}/judgments/{{}}/id", ids)
    return grade_by_id
