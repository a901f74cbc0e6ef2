"""The figures of supplied rankings as they are listed: names on the wire, names for people, types, and averages.

A new figure is defined in `core/metrics.py` and listed here; answers, schemas, tables, reports and merging follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from pydantic import with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import metrics
from ranking_evaluate.core.canonical import Number, number
from ranking_evaluate.core.metrics import Scores
from ranking_evaluate.operations.results import CLOSED, Count

Metric: TypeAlias = Literal["precisionAtK", "recallAtK", "reciprocalRankAtK", "averagePrecisionAtK", "ndcgAtK"]

# In the order of every result.
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)

# In the order in which they are shown to people.
LABELS: Final[Mapping[Metric, str]] = {
    "ndcgAtK": "NDCG",
    "averagePrecisionAtK": "AP",
    "reciprocalRankAtK": "RR",
    "precisionAtK": "Precision",
    "recallAtK": "Recall",
}


@with_config(CLOSED)
class QueryFigures(TypedDict):
    """The figures of one ranking, null where the query does not define one."""

    precisionAtK: float
    recallAtK: float | None
    reciprocalRankAtK: float | None
    averagePrecisionAtK: float | None
    ndcgAtK: float | None


@with_config(CLOSED)
class Averages(TypedDict):
    """The macro average of each metric of supplied rankings, null where it is defined for no query."""

    precisionAtK: float | None
    recallAtK: float | None
    reciprocalRankAtK: float | None
    averagePrecisionAtK: float | None
    ndcgAtK: float | None


@with_config(CLOSED)
class DefinedQueryCounts(TypedDict):
    """Over how many queries each macro average is taken."""

    precisionAtK: Count
    recallAtK: Count
    reciprocalRankAtK: Count
    averagePrecisionAtK: Count
    ndcgAtK: Count


def by_metric(scores: Scores) -> dict[Metric, Sequence[float | None]]:
    """Return the averaged figures of every ranking under their names on the wire."""
    return {
        "precisionAtK": scores.precision,
        "recallAtK": scores.recall,
        "reciprocalRankAtK": scores.reciprocal_rank,
        "averagePrecisionAtK": scores.average_precision,
        "ndcgAtK": scores.ndcg,
    }


def averages(figures: Mapping[Metric, Sequence[float | None]]) -> tuple[dict[Metric, Number | None], dict[Metric, int]]:
    """Return the macro average of each metric, None where no query defines it, and how many queries define it."""
    means = {name: metrics.mean(values) for name, values in figures.items()}
    return (
        {name: number(mean) for name, (mean, _) in means.items()},
        {name: count for name, (_, count) in means.items()},
    )
