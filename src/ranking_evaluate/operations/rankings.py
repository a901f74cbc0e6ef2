"""What the operations on supplied rankings share: unique ids, grades within k, and the conventions in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ranking_evaluate.core import metrics
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations.duplicates import refuse_duplicate
from ranking_evaluate.operations.fields import Judgment


class Side(NamedTuple):
    """The rankings of all queries that stand under one member of a query."""

    member: str
    rankings: Sequence[Sequence[str]]
    # The refusal of a document that is ranked twice.
    twice: str


def grades_by_id(
    query_ids: Sequence[str], judgments: Sequence[Sequence[Judgment]], *sides: Side
) -> list[dict[str, float]]:
    """Return the grade of each judged document, query by query, once every id is known to be unique.

    Args:
        query_ids: The ids of the queries.
        judgments: The judgments of each query.
        sides: The rankings that are held against them.

    Raises:
        OperationError: DUPLICATE_ID at the second of two equal ids among the queries, in one ranking or in the
            judgments of one query.
    """
    refuse_duplicate("Two queries have the same id.", "/queries/{}/id", query_ids)
    grades = []
    for index, judged in enumerate(judgments):
        for side in sides:
            refuse_duplicate(side.twice, f"/queries/{index}/{side.member}/{{}}", side.rankings[index])
        grade_by_id = {judgment["id"]: judgment["grade"] for judgment in judged}
        if len(grade_by_id) != len(judged):
            refuse_duplicate(
                "A document is judged twice for one query.",
                f"/queries/{index}/judgments/{{}}/id",
                [judgment["id"] for judgment in judged],
            )
        grades.append(grade_by_id)
    return grades


def grades_within_k(
    rankings: Sequence[Sequence[str]], judgments: Sequence[Mapping[str, float]], k: int
) -> list[list[float | None]]:
    """Return the grade at each rank within k, ranking by ranking; None for a document without a judgment.

    Args:
        rankings: The ids of each ranking, best first.
        judgments: The grade of each judged document, for each ranking.
        k: The cutoff.
    """
    return [[*map(judgments[index].get, ranking[:k])] for index, ranking in enumerate(rankings)]


def refuse_unjudged(grades: Sequence[float | None], pointer: str) -> None:
    """Raise UNJUDGED_DOCUMENT when a document within k has no judgment.

    Documents below rank k may be unjudged in any case: no figure depends on them.

    Args:
        grades: The grade at each rank within k.
        pointer: JSON pointer to the ranking.
    """
    if None in grades:
        raise OperationError(
            ErrorCode.UNJUDGED_DOCUMENT,
            'A document within the top k has no judgment; supply one, or send "unjudged": "nonrelevant".',
            f"{pointer}/{grades.index(None)}",
        )


def conventions(gain: metrics.GainFunction) -> tuple[str, ...]:
    """Return how the figures are defined, a line each."""
    return (
        (
            "Precision denominator is k even when fewer results are supplied. Recall and truncated AP denominators use "
            "all supplied relevant judgments; reciprocal rank is truncated at k."
        ),
        (
            f"DCG uses {gain} gain and log2(rank + 1) discount. Ideal DCG uses all supplied judgments sorted by grade, "
            "truncated at k."
        ),
        (
            "No-relevant-judgment recall, reciprocal rank and AP are null; zero-ideal-gain NDCG is null. Macro "
            "averages exclude nulls and report denominators."
        ),
        (
            "Evaluation uses supplied judgments only. It does not retrieve documents, judge semantic relevance, or "
            "establish complete relevance coverage."
        ),
    )
