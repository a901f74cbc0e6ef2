"""Ids that must be unique: the refusal points at the second of two equal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ranking_evaluate.core.errors import ErrorCode, OperationError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence


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


class Query(TypedDict):
    """A query and its judgments in any order, as on the wire, where its rankings stand beside them."""

    id: str
    judgments: list[Judgment]


class Rankings(NamedTuple):
    """The ranked ids of every query, under the name of their member on the wire."""

    member: str
    ids: Sequence[Sequence[str]]
    # One sentence for a document that is ranked twice.
    twice: str


def grades_by_id(queries: Sequence[Query], *sides: Rankings) -> list[dict[str, float]]:
    """Return the grade of each judged document, query by query.

    Args:
        queries: Whose judgments they are.
        sides: Their rankings, which are looked at too.

    Raises:
        OperationError: DUPLICATE_ID at the second of two equal ids among the queries, in one ranking or its judgments.
    """
    by_query = [{judgment["id"]: judgment["grade"] for judgment in query["judgments"]} for query in queries]
    groups = [[query["id"] for query in queries], *(ids for side in sides for ids in side.ids)]
    # Counted for all at once, since duplicates are rare, and looked for one by one only where there are some.
    if [*map(len, map(set, groups))] != [*map(len, groups)] or [*map(len, by_query)] != [
        len(query["judgments"]) for query in queries
    ]:
        _refuse_the_first(queries, sides)
    return by_query


def _refuse_the_first(queries: Sequence[Query], sides: Iterable[Rankings]) -> None:
    """Raise DUPLICATE_ID at the second of two equal ids: among the queries, else in the first query that has such."""
    refuse_duplicate("Two queries have the same id.", "/queries/{}/id", [query["id"] for query in queries])
    for index, query in enumerate(queries):
        for side in sides:
            refuse_duplicate(side.twice, f"/queries/{index}/{side.member}/{{}}", side.ids[index])
        judged = [judgment["id"] for judgment in query["judgments"]]
        refuse_duplicate("A document is judged twice for one query.", f"/queries/{index}/judgments/{{}}/id", judged)
