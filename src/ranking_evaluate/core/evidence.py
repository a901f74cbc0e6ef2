"""The figures that the evidence about one observation supports; a figure without its evidence is unavailable, not 0."""

from __future__ import annotations

from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from ranking_evaluate.core import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

RELEVANT_GAIN: Final = 1

MetricName: TypeAlias = Literal["precision", "recall", "ndcg", "reciprocalRank"]
METRICS: Final[tuple[MetricName, ...]] = get_args(MetricName)


class Reason(StrEnum):
    """Why a metric is unavailable, in the order in which reasons are listed."""

    PARTIAL_SCAN = "PARTIAL_SCAN"
    PERMISSION_VIOLATION = "PERMISSION_VIOLATION"
    MISSING_REFERENCE_SET = "MISSING_REFERENCE_SET"
    CORPUS_CHANGED = "CORPUS_CHANGED"
    REFERENCE_VERSION_MISMATCH = "REFERENCE_VERSION_MISMATCH"
    PROTOCOL_MISMATCH = "PROTOCOL_MISMATCH"
    UNLABELED_RETURNED_UNIT = "UNLABELED_RETURNED_UNIT"
    INCOMPLETE_POPULATION = "INCOMPLETE_POPULATION"
    NO_RELEVANT_POPULATION = "NO_RELEVANT_POPULATION"
    # Only tie bounds are unavailable for this reason.
    TIES_CUT = "TIES_CUT"


# A metric's value, or every reason why there is none.
Measured: TypeAlias = "float | tuple[Reason, ...]"
Figures: TypeAlias = "dict[MetricName, Measured]"


class Known(NamedTuple):
    """The evidence about one observation that does not depend on the order of what was returned."""

    rules: metrics.Rules
    rank_ends_at_k: bool
    """Whether reciprocal rank ends at k too, and does not look at the whole returned list."""
    judged: metrics.Judged
    reasons: tuple[Reason, ...]
    """Each of these makes every metric unavailable."""
    is_labeled: bool
    """Whether there is a reference set."""
    is_complete: bool
    """Whether the reference set holds every relevant unit."""


def figures(known: Known, gains: Sequence[int | None]) -> Figures:
    """Return each metric of one order of the returned units.

    Args:
        known: The evidence.
        gains: What each position contributes, None where that is unknown.
    """
    window = gains[: known.rules.k]
    scores = metrics.score([window], [known.judged], known.rules)
    listed, reciprocal_rank = window, scores.reciprocal_rank[0]
    if not known.rank_ends_at_k and len(gains) > len(window):
        listed = gains
        rules = known.rules._replace(k=len(gains))
        reciprocal_rank = metrics.score([gains], [known.judged], rules).reciprocal_rank[0]
    relevant_count = known.judged.relevant_count

    unlabeled: tuple[Reason, ...] = ()
    unlabeled_before: tuple[Reason, ...] = ()
    population: tuple[Reason, ...] = ()
    # Without a reference set that is the reason, and these would only repeat it.
    if known.is_labeled:
        if None in window:
            unlabeled = (Reason.UNLABELED_RETURNED_UNIT,)
        if None in _until_relevant(listed):
            unlabeled_before = (Reason.UNLABELED_RETURNED_UNIT,)
        if not known.is_complete:
            population = (Reason.INCOMPLETE_POPULATION,)
        elif not relevant_count:
            population = (Reason.NO_RELEVANT_POPULATION,)
    # One known relevant unit is enough for a reciprocal rank, however incomplete the population is.
    none_relevant = () if relevant_count else population
    return {
        "precision": _measured(known.reasons + unlabeled, scores.precision[0]),
        "recall": _measured(known.reasons + unlabeled + population, scores.recall[0]),
        "ndcg": _measured(known.reasons + unlabeled + population, scores.ndcg[0]),
        "reciprocalRank": _measured(known.reasons + unlabeled_before + none_relevant, reciprocal_rank),
    }


def tie_bounds(known: Known, gains: Sequence[int | None], scores: Sequence[float]) -> tuple[Figures, Figures]:
    """Return the least and the greatest figures over every order that equal scores allow.

    Within a group of equal scores, falling gains are best for every metric at once. Rising gains with the unlabeled
    units first are worst, both for the value and for whether it is available: wherever a unit without a label can come
    before what a metric needs, it does. Both orders go through the same sums as the supplied one, and orders that
    differ in their gains differ by far more than rounding, so the supplied value lies between the two.

    Args:
        known: The evidence.
        gains: As for `figures`, in the supplied order.
        scores: As many, and not rising.
    """
    worst: list[int | None] = []
    best: list[int | None] = []
    # Scores are binary64, so integers that are the same double tie.
    for _, group in groupby(zip(scores, gains, strict=True), key=lambda scored: float(scored[0])):
        rising = sorted((gain for _, gain in group), key=lambda gain: -1 if gain is None else gain)
        worst += rising
        best += reversed(rising)
    return figures(known, worst), figures(known, best)


def _until_relevant(listed: Sequence[int | None]) -> Sequence[int | None]:
    """Return what stands before the first relevant unit: everything when there is none."""
    for position, gain in enumerate(listed):
        if gain is not None and gain >= RELEVANT_GAIN:
            return listed[:position]
    return listed


def _measured(reasons: tuple[Reason, ...], value: float | None) -> Measured:
    """Return the value, or the reasons why there is none; a value is undefined only where there is a reason."""
    return reasons if reasons or value is None else value
