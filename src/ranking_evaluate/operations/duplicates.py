"""Ids that must be unique: the refusal points at the second of two equal ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ranking_evaluate.core.errors import ErrorCode, OperationError


def refuse_duplicate(detail: str, pointer: str, ids: Sequence[Hashable]) -> None:
    """Raise DUPLICATE_ID when an id occurs twice.

    Args:
        detail: One sentence that says what occurs twice.
        pointer: JSON pointer to an id, with `{}` in the place of its position.
        ids: What must be unique, by position.
    """
    # Most ids are unique, and for them a set that is made at once tells it sooner.
    if len(set(ids)) == len(ids):
        return
    seen: set[Hashable] = set()
    for position, one in enumerate(ids):
        if one in seen:
            raise OperationError(ErrorCode.DUPLICATE_ID, detail, pointer.format(position))
        seen.add(one)
