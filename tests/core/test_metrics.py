from __future__ import annotations

import math

import pytest

from ranking_evaluate.core import metrics


def test_precision_divides_by_k_even_when_fewer_documents_were_retrieved() -> None:
    assert metrics.precision(1, 5) == 0.2


def test_recall_is_undefined_without_a_relevant_document() -> None:
    assert metrics.recall(0, 0) is None
    assert metrics.recall(1, 4) == 0.25


@pytest.mark.parametrize(
    ("relevant", "count", "k", "expected"),
    [
        ([False, False, True], 1, 3, 1 / 3),
        ([False, False, True], 1, 2, 0.0),
        ([], 1, 10, 0.0),
        ([False], 0, 10, None),
        ([True, True], 2, 10, 1.0),
    ],
)
def test_reciprocal_rank_is_zero_beyond_k_and_undefined_without_a_relevant_document(
    relevant: list[bool], count: int, k: int, expected: float | None
) -> None:
    assert metrics.reciprocal_rank(relevant, count, k) == expected


def test_dcg_discounts_by_log2_of_rank_plus_one() -> None:
    assert metrics.dcg([3, 2, 1]) == 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    assert metrics.dcg([3, 2, 1], metrics.DISCOUNTS[:1]) == 3.0
    assert metrics.dcg([]) == 0.0


def test_ideal_dcg_goes_to_k_over_all_judgments() -> None:
    assert metrics.ideal_dcg([1, 3, 2], 2) == 3 / math.log2(2) + 2 / math.log2(3)


def test_ndcg_is_undefined_without_gain_and_never_clamped() -> None:
    assert metrics.ndcg(0.0, 0.0) is None
    assert metrics.ndcg(3.0, 2.0) == 1.5


def test_gains_are_zero_for_the_unjudged() -> None:
    assert metrics.linear_gains([None, 0, 2.5]) == [0, 0, 2.5]
    assert metrics.exponential_gains([None, 0, 3, 0.5]) == [0, 0, 7, math.sqrt(2) - 1]


def test_an_exponential_gain_may_underflow_to_nothing() -> None:
    assert metrics.exponential_gains([1e-320]) == [0.0]


def test_sums_run_left_to_right_without_compensation() -> None:
    # fsum, and sum() since Python 3.12, give 0.6 here.
    assert metrics.mean([0.1, 0.2, 0.3]) == (0.6000000000000001 / 3, 3)
    assert metrics.dcg([1e16, 1.0 * math.log2(3), 1.0 * 2]) == 1e16


def test_the_mean_leaves_out_what_is_undefined() -> None:
    assert metrics.mean([None, 1.0, 0.0]) == (0.5, 2)
    assert metrics.mean([None]) == (None, 0)
    assert metrics.mean([]) == (None, 0)
