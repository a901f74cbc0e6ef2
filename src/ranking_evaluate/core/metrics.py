"""The graded metrics of one query at a cutoff, and their mean over queries; every sum runs left to right.

The order of additions is part of the definition: compensated or pairwise summation would change last bits.
"""

from __future__ import annotations

import math
from itertools import compress
from operator import truediv
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The cutoff k never exceeds this, so these hold every rank and its discount.
MAXIMUM_K: Final = 100
RANKS: Final = range(1, MAXIMUM_K + 1)
DISCOUNTS: Final = tuple(math.log2(rank + 1) for rank in RANKS)
# The same by rank itself; nothing stands at rank 0.
DISCOUNT_AT: Final = (math.nan, *DISCOUNTS)


def precision(hits: int, k: int) -> float:
    """Return the share of the `k` ranks that hold a relevant document; a short ranking still divides by `k`."""
    return hits / k


def recall(hits: int, relevant_count: int) -> float | None:
    """Return the share of the relevant documents that were retrieved within k, or None when nothing is relevant."""
    return hits / relevant_count if relevant_count else None


def reciprocal_rank(relevant: Sequence[bool], relevant_count: int, k: int) -> float | None:
    """Return 1 / rank of the first relevant document within `k`, or None when nothing is relevant.

    A query whose relevant documents all lie beyond `k` scores 0.0; one without any is undefined.

    Args:
        relevant: Whether each retrieved document is relevant, by rank.
        relevant_count: Relevant judgments for the query, retrieved or not.
        k: The cutoff.
    """
    if not relevant_count:
        return None
    for rank in compress(RANKS, relevant[:k]):
        return 1 / rank
    return 0.0


def linear_gains(grades: Iterable[float | None]) -> list[float]:
    """Return each grade as its gain, 0 for an unjudged document (None)."""
    return [grade or 0.0 for grade in grades]


def exponential_gains(grades: Iterable[float | None]) -> list[float]:
    """Return 2 to the power of each grade, less 1, in binary64; 0 for an unjudged document (None)."""
    return [2.0**grade - 1.0 if grade else 0.0 for grade in grades]


def dcg(gains: Iterable[float], discounts: Iterable[float] = DISCOUNTS) -> float:
    """Return the sum over the ranks of gain / log2(rank + 1), as far as both the gains and the discounts go.

    Args:
        gains: By rank.
        discounts: `DISCOUNTS`, or as many of them as count.
    """
    total = 0.0
    for discounted in map(truediv, gains, discounts):
        total += discounted
    return total


def ideal_dcg(judged_gains: Iterable[float], k: int) -> float:
    """Return the DCG of all judgments by falling gain, cut at `k`, however few documents were retrieved."""
    return dcg(sorted(judged_gains, reverse=True), DISCOUNTS[:k])


def ndcg(gained: float, ideal: float) -> float | None:
    """Return DCG / ideal DCG, not clamped, or None when no judgment has a gain."""
    return gained / ideal if ideal else None


def mean(values: Iterable[float | None]) -> tuple[float | None, int]:
    """Return the mean of the values that are defined, None when none is, and how many are."""
    total = 0.0
    count = 0
    for value in values:
        if value is not None:
            total += value
            count += 1
    return (total / count if count else None), count
