"""The one definition of every figure: what a ranking scores at a cutoff k, and the mean over queries.

Sums are plain additions from left to right. The order is part of each definition, because compensated or pairwise
summation changes the last bits. With linear gain the figures are trec_eval's, bit for bit, in versions 9
and 10; tests/oracles compares them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

GainFunction: TypeAlias = Literal["linear", "exponential"]

# The largest cutoff of an input that is sold; a collection that is measured locally may have any.
MAXIMUM_K: Final = 100


class Rules(NamedTuple):
    """The conventions of a score: a grade of `relevant_at_least` (above 0) or more is relevant."""

    k: int
    relevant_at_least: float
    gain: GainFunction = "linear"


class Judged(NamedTuple):
    """What the judgments of one query say by themselves, whatever was retrieved."""

    relevant_count: int
    ideal_dcg: float
    """The DCG of all judgments by falling grade, cut at k, however few documents were retrieved."""


class Scores(NamedTuple):
    """The figures of several rankings: a list for each figure, with an entry for each ranking."""

    precision: list[float]
    """Relevant documents within k / k.

    trec_eval's P_k. A ranking of fewer than k documents still divides by k.
    """

    recall: list[float | None]
    """Relevant documents within k / relevant judgments.

    trec_eval's recall_k. Undefined when nothing is relevant.
    """

    reciprocal_rank: list[float | None]
    """1 / rank of the first relevant document within k.

    Voorhees, TREC-8 (1999); trec_eval's recip_rank of a ranking that is cut at k. A query whose relevant documents all
    lie beyond k scores 0.0. Undefined when nothing is relevant.
    """

    average_precision: list[float | None]
    """Sum of the precision at the rank of each relevant document within k / relevant judgments.

    trec_eval's map_cut_k. The precision at a rank is the number of relevant documents up to there / rank. The
    denominator counts all relevant judgments, even if there are more than k. Undefined when nothing is relevant.
    """

    ndcg: list[float | None]
    """DCG / ideal DCG.

    Järvelin and Kekäläinen, ACM TOIS 20 (2002); trec_eval's ndcg_cut_k when gain is linear. Not clamped. Undefined
    when no judgment has a gain.
    """

    dcg: list[float]
    """Sum over the ranks within k of gain / log2(rank + 1).

    The gain of a document is its grade (linear) or 2^grade - 1 (exponential; Burges et al., ICML 2005), and 0 without
    a judgment.
    """

    hits: list[int]
    """Relevant documents within k."""


def judge(grades: Collection[float], rules: Rules) -> Judged:
    """Return what the grades of all judgments of one query, in any order, say by themselves."""
    gains = exponential_gains(grades) if rules.gain == "exponential" else grades
    return Judged(
        relevant_count=len([grade for grade in grades if grade >= rules.relevant_at_least]),
        ideal_dcg=dcg(sorted(gains, reverse=True)[: rules.k]),
    )


def score(rankings: Sequence[Sequence[float | None]], judged: Sequence[Judged], rules: Rules) -> Scores:
    """Return every figure of each ranking, as `Scores` defines them.

    One pass takes all figures of a ranking: a function for each takes 100 % longer at the typical and 55 % at the
    large size.

    Args:
        rankings: The grade at each rank within k, None for a document without a judgment.
        judged: What each of the rankings is held against.
        rules: The conventions.
    """
    k, relevant_at_least, gain = rules
    scores = Scores([], [], [], [], [], [], [])
    # Not of k, which may be far beyond any ranking.
    divisors = discounts(max(map(len, rankings), default=0))
    precision, recall, reciprocal_rank, average_precision, ndcg, dcgs, hits = scores
    for index, grades in enumerate(rankings):
        relevant_count, ideal_dcg = judged[index]
        rank = found = 0
        gained = reciprocal = precisions = 0.0
        for grade in grades:
            # With `enumerate` the typical job takes 5 % longer, which is longer than pytrec_eval takes.
            rank += 1  # noqa: SIM113
            # Neither an unjudged document nor grade 0 adds to any sum.
            if grade:
                gained += grade / divisors[rank]
                if grade >= relevant_at_least:
                    if not found:
                        reciprocal = 1 / rank
                    found += 1
                    precisions += found / rank
        if gain == "exponential":
            gained = dcg(exponential_gains(grades))
        precision.append(found / k)
        if relevant_count:
            recall.append(found / relevant_count)
            reciprocal_rank.append(reciprocal)
            average_precision.append(precisions / relevant_count)
        else:
            recall.append(None)
            reciprocal_rank.append(None)
            average_precision.append(None)
        ndcg.append(gained / ideal_dcg if ideal_dcg else None)
        dcgs.append(gained)
        hits.append(found)
    return scores


def success(hits: int) -> float:
    """Return 1.0 when any document within k is relevant, else 0.0, also where nothing is relevant.

    trec_eval's success_k; others call its mean the hit rate.

    Args:
        hits: Relevant documents within k.
    """
    return 1.0 if hits else 0.0


def judged_share(grades: Sequence[float | None]) -> float | None:
    """Return the share of the documents within k that have a judgment, None when nothing was retrieved.

    It divides by the documents that there are: a ranking of fewer than k is not blamed for its length.

    Args:
        grades: The grade at each rank within k, None for a document without a judgment.
    """
    return (len(grades) - grades.count(None)) / len(grades) if grades else None


def dcg(gains: Sequence[float]) -> float:
    """Return the sum of gain / log2(rank + 1) over gains by rank."""
    total = 0.0
    divisors = discounts(len(gains))
    for rank, gain in enumerate(gains, 1):
        total += gain / divisors[rank]
    return total


def discounts(k: int) -> Sequence[float]:
    """Return what the gain at each rank up to k, and of some beyond, is divided by: log2(rank + 1); no rank is 0."""
    return _DISCOUNTS if k <= MAXIMUM_K else _more_discounts(1 << k.bit_length())


@cache
def _more_discounts(count: int) -> Sequence[float]:
    return (math.nan, *(math.log2(rank + 1) for rank in range(1, count)))


_DISCOUNTS: Final = _more_discounts(MAXIMUM_K + 1)


def exponential_gains(grades: Iterable[float | None]) -> list[float]:
    """Return 2^grade - 1 in binary64 for each grade, 0 for a document without a judgment."""
    return [2.0**grade - 1.0 if grade else 0.0 for grade in grades]


def mean(values: Iterable[float | None]) -> tuple[float | None, int]:
    """Return the mean of the values that are defined, None when none is, and how many are."""
    total = 0.0
    count = 0
    for value in values:
        if value is not None:
            total += value
            count += 1
    return (total / count if count else None), count
