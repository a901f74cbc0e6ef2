"""One supplied ranking held against its judgments, and the macro averages over queries, as on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypedDict

from ranking_evaluate.core import metrics
from ranking_evaluate.core.canonical import Number, number
from ranking_evaluate.core.errors import ErrorCode, OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Gains = Callable[[Iterable[float | None]], list[float]]

_GAINS: Final[Mapping[str, Gains]] = {"linear": metrics.linear_gains, "exponential": metrics.exponential_gains}

# The averaged metrics: their names on the wire, in order, are those of the first fields of `metrics.Scores`.
METRICS: Final = ("precisionAtK", "recallAtK", "reciprocalRankAtK", "averagePrecisionAtK", "ndcgAtK")


class Rules(TypedDict):
    """By which conventions rankings are scored, as on the wire."""

    k: int
    relevantAtLeast: float
    gain: Literal["linear", "exponential"]
    unjudged: Literal["error", "nonrelevant"]


class Scored(NamedTuple):
    """What stands within k, by rank, and what the ranking scores."""

    ids: Sequence[str]
    grades: list[float | None]
    relevant: list[bool]
    unjudged_count: int
    relevant_ids: list[str]
    scores: metrics.Scores


def score(rules: Rules, retrieved: Sequence[str], grade_by_id: Mapping[str, float], pointer: str) -> Scored:
    """Return one ranking with its grades and its scores.

    What stands below rank k is not looked at: no figure depends on it, so it may be unjudged.

    Args:
        rules: By which conventions.
        retrieved: Distinct ids, best first.
        grade_by_id: Every judgment of the query, retrieved or not.
        pointer: JSON pointer to the ranking, for the refusal.

    Raises:
        OperationError: UNJUDGED_DOCUMENT within k, unless those count as non-relevant.
    """
    k, threshold, to_gains = rules["k"], rules["relevantAtLeast"], _GAINS[rules["gain"]]
    within = retrieved[:k]
    grades = [grade_by_id.get(document) for document in within]
    unjudged_count = grades.count(None)
    if unjudged_count and rules["unjudged"] == "error":
        raise OperationError(
            ErrorCode.UNJUDGED_DOCUMENT,
            'A document within the top k has no judgment; supply one, or send "unjudged": "nonrelevant".',
            f"{pointer}/{grades.index(None)}",
        )
    relevant = [grade is not None and grade >= threshold for grade in grades]
    relevant_ids = [document for document, grade in grade_by_id.items() if grade >= threshold]
    scores = metrics.score(relevant, len(relevant_ids), to_gains(grades), to_gains(grade_by_id.values()), k)
    return Scored(within, grades, relevant, unjudged_count, relevant_ids, scores)


def averages(scored: Sequence[metrics.Scores]) -> tuple[dict[str, Number | None], dict[str, int]]:
    """Return the macro average of each metric, None where it is defined for no query, and for how many it is."""
    means = [metrics.mean(scores[position] for scores in scored) for position in range(len(METRICS))]
    return (
        {name: optional(mean) for name, (mean, _) in zip(METRICS, means, strict=True)},
        {name: count for name, (_, count) in zip(METRICS, means, strict=True)},
    )


def optional(value: float | None) -> Number | None:
    """Return a figure as the result holds it."""
    return None if value is None else number(value)


def conventions(gain: str) -> tuple[str, ...]:
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
