from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.core import metrics
from ranking_evaluate.core.metrics import GainFunction, Judged, Rules, Scores

GRADES = st.one_of(st.integers(0, 10), st.floats(0, 10, allow_subnormal=True))


def written_out(ranking: list[float | None], judgments: list[float], rules: Rules) -> Scores:
    """Return the definitions, each written out by itself."""
    k, least, gain = rules
    window = ranking[:k]
    relevant = [grade is not None and grade >= least for grade in window]
    count = sum(grade >= least for grade in judgments)

    def gained(grades: Sequence[float | None]) -> float:
        total = 0.0
        for rank, grade in enumerate(grades, 1):
            total += ((grade or 0.0) if gain == "linear" else 2.0 ** (grade or 0.0) - 1.0) / math.log2(rank + 1)
        return total

    precisions = 0.0
    for rank, is_relevant in enumerate(relevant, 1):
        if is_relevant:
            precisions += relevant[:rank].count(True) / rank
    dcg, ideal = gained(window), gained([*sorted(judgments, reverse=True)][:k])
    return Scores(
        precision=[relevant.count(True) / k],
        recall=[relevant.count(True) / count if count else None],
        reciprocal_rank=[(1 / (relevant.index(True) + 1) if any(relevant) else 0.0) if count else None],
        average_precision=[precisions / count if count else None],
        ndcg=[dcg / ideal if ideal else None],
        dcg=[dcg],
        hits=[relevant.count(True)],
    )


@given(
    st.lists(st.one_of(st.none(), GRADES), max_size=30),
    st.lists(GRADES, max_size=30),
    st.integers(1, 100),
    st.sampled_from((0.5, 1, 2, 10)),
    st.sampled_from(("linear", "exponential")),
)
def test_one_pass_gives_each_definition_to_the_last_bit(
    ranking: list[float | None], judgments: list[float], k: int, relevant_at_least: float, gain: GainFunction
) -> None:
    rules = Rules(k, relevant_at_least, gain)
    # Documents of a ranking are judged or unjudged, and its judgments are among those of the query.
    judgments += [grade for grade in ranking if grade is not None]
    judged = metrics.judge(judgments, rules)
    assert metrics.score([ranking[:k]], [judged], rules) == written_out(ranking, judgments, rules)


@pytest.mark.parametrize(
    ("ranking", "judgments", "k", "expected"),
    [
        # A relevant document at ranks 1 and 3 of the three within k, of three in all.
        ([2, 0, 1, 5], [2, 0, 1, 5], 3, (2 / 3, 2 / 3, 1.0, (1 + 2 / 3) / 3)),
        # A short ranking still divides by k.
        ([1], [1], 5, (1 / 5, 1.0, 1.0, 1.0)),
        # The only relevant document stands below k.
        ([0, None, 1], [0, 1], 2, (0.0, 0.0, 0.0, 0.0)),
        ([], [1], 10, (0.0, 0.0, 0.0, 0.0)),
        # Nothing is relevant.
        ([0, None], [0], 2, (0.0, None, None, None)),
    ],
)
def test_figures_worked_by_hand(
    ranking: list[float | None], judgments: list[float], k: int, expected: tuple[float | None, ...]
) -> None:
    rules = Rules(k, 1)
    scores = metrics.score([ranking[:k]], [metrics.judge(judgments, rules)], rules)
    assert tuple(values[0] for values in scores[:4]) == expected


def test_dcg_discounts_by_log2_of_rank_plus_one() -> None:
    assert metrics.dcg([3, 2, 1]) == 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    assert metrics.dcg([]) == 0.0


def test_the_ideal_goes_to_k_over_all_judgments() -> None:
    assert metrics.judge([1, 3, 0, 2], Rules(2, 2)) == Judged(2, 3 / math.log2(2) + 2 / math.log2(3))
    assert metrics.judge([], Rules(2, 2)) == Judged(0, 0.0)


def test_ndcg_is_undefined_without_gain_and_never_clamped() -> None:
    judged = [Judged(1, 0.0), Judged(1, 2.0)]
    assert metrics.score([[3], [3]], judged, Rules(1, 1)).ndcg == [None, 1.5]


def test_an_exponential_gain_is_0_for_the_unjudged_and_may_underflow() -> None:
    assert metrics.exponential_gains([None, 0, 3, 0.5, 1e-320]) == [0, 0, 7, math.sqrt(2) - 1, 0]


def test_sums_run_left_to_right_without_compensation() -> None:
    # fsum, and sum() since Python 3.12, give 0.6 here.
    assert metrics.mean([0.1, 0.2, 0.3]) == (0.6000000000000001 / 3, 3)
    gains = [1e16, 1.0 * math.log2(3), 1.0 * 2]
    assert metrics.dcg(gains) == 1e16
    assert metrics.score([gains], [Judged(3, 1.0)], Rules(3, 1)).dcg == [1e16]


def test_the_mean_leaves_out_what_is_undefined() -> None:
    assert metrics.mean([None, 1.0, 0.0]) == (0.5, 2)
    assert metrics.mean([None]) == (None, 0)
    assert metrics.mean([]) == (None, 0)
