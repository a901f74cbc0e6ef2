"""Comparing runs: p-values of scipy and of brute force, Holm's correction by hand, and equal runs that say so."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from ranking_evaluate.core import paired
from ranking_evaluate.measure import sampling, table
from ranking_evaluate.measure.collection import measure_given
from ranking_evaluate.measure.compare import COMPARED, Comparison, compare
from ranking_evaluate.measure.figures import Scorer
from ranking_evaluate.measure.qrels import given_qrels
from ranking_evaluate.measure.results import Result
from ranking_evaluate.measure.rules import Rules
from ranking_evaluate.measure.sampling import Differences


def found_tests(values: Sequence[int]) -> dict[str, sampling.Test]:
    """Return the tests of differences, of which some may be zero."""
    by_position = {position: value for position, value in enumerate(values) if value}
    [found] = sampling.tests_of([Differences(len(values), len(values), by_position)])
    return found


def differences(seed: int, count: int, *, digits: int = 9) -> list[int]:
    """Return differences in units of 10^-12, none of them zero; with few digits many are equal."""
    chance = random.Random(seed)
    return [int(round(chance.gauss(0.1, 1), digits) * 10**12) or 1 for _ in range(count)]


def results(count: int, topics: int, seed: int = 1, **rules: Any) -> list[Result]:
    """Return the results of runs that rank ten documents each at random."""
    chance = random.Random(seed)
    documents = [f"d{number}" for number in range(20)]
    qrels = given_qrels(
        {f"t{number}": {one: chance.choice([0, 1, 2]) for one in documents} for number in range(topics)}, Rules()
    )
    chosen = Rules(**rules)
    scorer = Scorer(qrels, chosen)
    return [
        Result(
            f"run{number}",
            qrels,
            chosen,
            measure_given(
                {
                    topic.decode(): {one: chance.random() for one in chance.sample(documents, 10)}
                    for topic in qrels.grades
                },
                scorer,
            ),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 7, 12, 16])
def test_up_to_16_differing_topics_randomization_is_every_sign_pattern(count: int) -> None:
    values = differences(count, count)
    reached = abs(sum(values)) - count
    patterns = [abs(sum(map(int.__mul__, values, signs))) >= reached for signs in product((1, -1), repeat=count)]

    found = found_tests([*values, 0, 0])["randomization"]
    assert (found.p, found.method) == (sum(patterns) / len(patterns), "exact")


@pytest.mark.parametrize("count", [17, 60, 251, pytest.param(1000, marks=pytest.mark.beyond_unit)])
def test_up_to_1000_pairs_wilcoxon_is_scipys_exact_test(count: int) -> None:
    values = differences(count, count)
    found = sampling.wilcoxon(values)

    assert found.method == "exact"
    assert found.p == pytest.approx(stats.wilcoxon(values, method="exact").pvalue, rel=1e-9)


@pytest.mark.parametrize("count", [10, 14])
def test_wilcoxon_with_shared_ranks_is_brute_force(count: int) -> None:
    values = [value * sign for value, sign in zip([1, 1, 2, 2, 2, 3, 4, 4, 5, 5, 5, 6, 7, 7], [1, -1] * 7, strict=True)]
    ranks = stats.rankdata(np.abs(values[:count]))
    observed = sum(rank for rank, value in zip(ranks, values, strict=False) if value > 0)
    sums = [sum(rank for rank, one in zip(ranks, signs, strict=True) if one) for signs in product((0, 1), repeat=count)]
    low, high = (sum(one <= observed for one in sums), sum(one >= observed for one in sums))

    assert sampling.wilcoxon(values[:count]).p == min(1, 2 * min(low, high) / len(sums))


def test_beyond_250_pairs_binary64_agrees_with_integers() -> None:
    values = differences(9, 260, digits=1)
    assert sampling.wilcoxon(values).p == pytest.approx(paired.wilcoxon(values).p_value, rel=1e-12)


@pytest.mark.parametrize("digits", [9, 1])
def test_beyond_1000_pairs_wilcoxon_is_scipys_normal_approximation(digits: int) -> None:
    values = differences(3, 1001, digits=digits)
    found = sampling.wilcoxon(values)

    assert found.method == "normal approximation"
    expected = stats.wilcoxon(np.array(values, dtype=float), method="asymptotic", correction=False).pvalue
    assert found.p == pytest.approx(expected, rel=1e-12)


def test_the_t_test_is_scipys_over_all_topics_ties_too() -> None:
    values = [*differences(5, 40), *[0] * 9]
    found = found_tests(values)["t"]

    assert found.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-12)
    assert found.method == "paired t-test with 48 degrees of freedom"
    assert found_tests([10**11] * 20)["t"] == sampling.Test(None, "all differences are equal")


def test_a_drawn_randomization_test_states_its_seed_and_error_and_holds_to_the_exact_one() -> None:
    values = differences(8, 20)
    sums = np.array([0])
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    exact = float((np.abs(sums) >= abs(sum(values)) - len(values)).mean())

    found = found_tests(values)["randomization"]
    assert found.method == f"100,000 random draws, seed {sampling.SEED}"
    assert found.standard_error == pytest.approx((exact * (1 - exact) / 100_000) ** 0.5, rel=0.1)
    assert found.p is not None
    assert found.standard_error is not None
    assert abs(found.p - exact) < 4 * found.standard_error
    assert found_tests(values)["randomization"] == found


def test_a_p_value_does_not_depend_on_what_else_is_compared() -> None:
    baseline, one, other = results(3, 40)
    alone, together = compare(baseline, [one]), compare(baseline, [one, other])

    assert [found.tests["randomization"].p for found in alone] == [
        found.tests["randomization"].p for found in together[: len(alone)]
    ]


def test_holm_by_hand() -> None:
    # 4 x 0.005, 3 x 0.01 = 0.03, 2 x 0.03 = 0.06, then 0.04 itself would be less than the one before.
    assert paired.holm([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]
    assert paired.holm([0.5, 0.9]) == [1.0, 1.0]
    assert paired.holm([]) == []


def test_each_test_is_corrected_for_all_runs_figures_and_cutoffs() -> None:
    baseline, *others = results(3, 12, cutoffs=(2, 5))
    found = compare(baseline, others)

    assert len(found) == 2 * 2 * len(COMPARED)
    available = [one.tests["sign"] for one in found if one.tests["sign"].p is not None]
    smallest = min(available, key=lambda one: one.p or 0)
    assert smallest.holm == min(1.0, len(available) * (smallest.p or 0))


def test_wins_ties_and_losses_are_of_differences_beyond_rounding() -> None:
    # 0.3 - 0.2, 1 - 0.9 and 0.1 are three different doubles.
    assert paired.scaled(0.3 - 0.2) == paired.scaled(1 - 0.9) == paired.scaled(0.1) == 10**11
    one = Comparison("r", 10, "p", 4, 1e-17, {0: 10**11, 1: -(10**11)})

    assert (one.wins, one.ties, one.losses, one.is_same) == (1, 2, 1, True)
    assert table.difference(one) == "same"


def test_two_equal_runs_say_so_and_have_no_p_value() -> None:
    baseline, _ = results(2, 8)
    again = Result("again", baseline.qrels, baseline.rules, baseline.measured)
    found = compare(baseline, [again])

    assert all(one.tests["randomization"] == sampling.Test(None, "every topic ties") for one in found)
    assert [*table.comparisons(found, "run0")] == [
        "Against run0, by topic:",
        "again and run0 are equal: every figure is the same in every topic.",
    ]


def test_fifty_runs_take_a_row_each() -> None:
    baseline, *others = results(51, 12)
    lines = [*table.comparisons(compare(baseline, others), "run0")]

    assert len([line for line in lines if line.startswith("run")]) == 51
    assert max(map(len, lines[:52])) < 100


def test_without_numpy_and_scipy_exact_tests_stay_and_the_others_name_what_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("numpy", "scipy", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    few, many = found_tests(differences(1, 16)), found_tests(differences(1, 300))

    assert few["randomization"].p is not None
    assert many["sign"].p is not None
    for name in ("randomization", "wilcoxon", "t"):
        assert many[name].p is None
        assert many[name].method.endswith("needs numpy and scipy, the extra [statistics]: pip install numpy scipy")
