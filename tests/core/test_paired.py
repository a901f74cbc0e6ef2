"""The exact tests against scipy and against every sign pattern, and the arithmetic of what counts as a difference."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # Its stubs are a package of their own.

from ranking_evaluate.core import paired

CASES = 2_000
UNIT = 10**12


def _differences(chance: random.Random, most: int, *, tied: bool) -> list[int]:
    """Return differences in units of 10^-12, none zero: tied ones are tenths, as one hit in ten ranks makes them."""
    steps = range(1, chance.choice([2, 4, 11])) if tied else range(1, UNIT)
    size = UNIT // 10 if tied else 1
    return [chance.choice([-1, 1]) * chance.choice(steps) * size for _ in range(chance.randint(1, most))]


def _with_noise(chance: random.Random, differences: Sequence[int]) -> list[int]:
    return [difference + chance.choice([-1, 0, 1]) for difference in differences]


def _wilcoxon_by_every_pattern(differences: Sequence[int]) -> tuple[float, float]:
    ranks = stats.rankdata([abs(one) for one in differences])
    observed = sum(rank for rank, one in zip(ranks, differences, strict=True) if one > 0)
    sums = [
        sum(rank for rank, positive in zip(ranks, signs, strict=True) if positive)
        for signs in itertools.product((False, True), repeat=len(ranks))
    ]
    low, high = sum(one <= observed for one in sums), sum(one >= observed for one in sums)
    return float(observed), min(1.0, 2 * min(low, high) / len(sums))


def _randomization_by_every_pattern(differences: Sequence[int]) -> float:
    signs = np.array(list(itertools.product((-1, 1), repeat=len(differences))), dtype=np.int64)
    sums = np.abs(signs @ np.array(differences, dtype=np.int64))
    return float(np.mean(sums >= abs(sum(differences)) - len(differences)))


def test_the_sign_test_is_the_binomial_test_on_random_counts() -> None:
    chance = random.Random(1)
    for _ in range(CASES):
        wins, losses = chance.randint(0, 50), chance.randint(0, 50)
        if wins + losses:
            expected = stats.binomtest(wins, wins + losses, 0.5).pvalue
            assert paired.sign_test(wins, losses) == pytest.approx(expected, abs=1e-12)


def test_wilcoxon_is_scipys_exact_test_where_no_ranks_are_shared() -> None:
    chance = random.Random(2)
    for _ in range(CASES // 2):
        differences = [chance.choice([-1, 1]) * one for one in chance.sample(range(1, UNIT), chance.randint(1, 50))]
        expected = stats.wilcoxon(differences, method="exact", alternative="two-sided")
        found = paired.wilcoxon(differences)
        assert found.p_value == pytest.approx(expected.pvalue, abs=1e-12)
        assert min(found.plus, found.minus) == expected.statistic


def test_wilcoxon_with_shared_ranks_is_that_of_every_sign_pattern() -> None:
    chance = random.Random(3)
    for _ in range(CASES):
        differences = _differences(chance, 9, tied=True)
        found = paired.wilcoxon(differences)
        plus, p_value = _wilcoxon_by_every_pattern(differences)
        assert found.plus == plus
        assert found.plus + found.minus == len(differences) * (len(differences) + 1) / 2
        assert found.p_value == pytest.approx(p_value, abs=1e-12)


def test_wilcoxon_with_shared_ranks_is_scipys_permutation_of_the_signs() -> None:
    chance = random.Random(4)
    method: Any = stats.PermutationMethod(n_resamples=math.inf)
    # Few and short ones: scipy calls back into Python for each pattern.
    for _ in range(CASES // 10):
        differences = _differences(chance, 6, tied=True)
        if len(differences) >= 2:
            expected = stats.wilcoxon(differences, method=method)
            assert paired.wilcoxon(differences).p_value == pytest.approx(expected.pvalue, abs=1e-12)


def test_the_randomization_test_is_that_of_every_sign_pattern() -> None:
    chance = random.Random(5)
    for number in range(CASES):
        differences = _differences(chance, 10 if number % 100 else paired.MAXIMUM_RANDOMIZED, tied=number % 2 == 0)
        for one in (differences, _with_noise(chance, differences)):
            assert paired.randomization(one) == pytest.approx(_randomization_by_every_pattern(one), abs=1e-12)


def test_the_randomization_test_is_scipys_where_no_gap_is_rounding() -> None:
    chance = random.Random(6)
    for _ in range(CASES):
        differences = _differences(chance, 8, tied=True)
        if len(differences) >= 2:
            expected = stats.permutation_test(
                (np.array(differences, dtype=np.int64),), np.sum, permutation_type="samples", n_resamples=math.inf
            )
            assert paired.randomization(differences) == pytest.approx(expected.pvalue, abs=1e-12)


def test_a_gap_of_less_than_one_for_each_pair_counts_as_none() -> None:
    # The sums are 7, 1, -1 and -7: the observed 1 less 2 is reached by all four.
    assert paired.randomization([4, -3]) == 1
    # The sums are 9, 3 and their mirror images. 3 stays below the observed 9 less 2; 13 reaches 15 less 2.
    assert paired.randomization([6, 3]) == 0.5
    assert paired.randomization([14, 1]) == 1


@pytest.mark.parametrize(
    ("plus", "minus", "p_value", "differences"),
    [
        # Ranks 1, 2, 3 all positive: 1 of 8 patterns on each side.
        (6, 0, 0.25, [10, 20, 30]),
        # Magnitudes 10, 10, 30 have the ranks 1.5, 1.5, 3: W+ = 4.5, and 5 of 8 patterns reach it or stay below it.
        (4.5, 1.5, 0.75, [-10, 10, 30]),
        (3, 3, 1, [-10, -20, 30]),
        (1, 0, 1, [5]),
    ],
)
def test_wilcoxon_worked_by_hand(plus: float, minus: float, p_value: float, differences: list[int]) -> None:
    assert paired.wilcoxon(differences) == (plus, minus, p_value)


@pytest.mark.parametrize(
    ("wins", "losses", "p_value"), [(5, 0, 2 / 32), (4, 1, 12 / 32), (1, 1, 1), (1, 0, 1), (50, 0, 2 / 2**50)]
)
def test_the_sign_test_worked_by_hand(wins: int, losses: int, p_value: float) -> None:
    assert paired.sign_test(wins, losses) == p_value


@pytest.mark.parametrize(
    ("difference", "units"),
    [
        (0.3 - 0.2, 100_000_000_000),
        (1 - 0.9, 100_000_000_000),
        (0.1, 100_000_000_000),
        (0.1 + 0.2 - 0.3, 0),
        (-0.1, -100_000_000_000),
        (0.5e-12, 0),
        (1.5e-12, 2),
        (2.5e-12, 2),
    ],
)
def test_differences_are_rounded_half_to_even(difference: float, units: int) -> None:
    assert paired.scaled(difference) == units


def test_the_smallest_attainable_p_is_that_of_pairs_that_all_agree() -> None:
    for count in range(1, paired.MAXIMUM_RANDOMIZED + 1):
        agreeing = [UNIT] * count
        smallest = paired.smallest_attainable(count)
        assert smallest == paired.sign_test(count, 0) == paired.wilcoxon(agreeing).p_value
        assert smallest == paired.randomization(agreeing)
    assert paired.smallest_attainable(0) == 1


INFORMATIVE = st.lists(st.integers(-(10**12), 10**12).filter(bool), min_size=1, max_size=paired.MAXIMUM_RANDOMIZED)


@given(INFORMATIVE)
def test_mirrored_differences_have_the_same_p_values(differences: list[int]) -> None:
    mirrored = [-one for one in differences]
    plus, minus, p_value = paired.wilcoxon(differences)
    assert paired.wilcoxon(mirrored) == (minus, plus, p_value)
    assert paired.randomization(mirrored) == paired.randomization(differences)


@given(INFORMATIVE, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_changes_nothing(differences: list[int], chance: random.Random) -> None:
    shuffled = chance.sample(differences, len(differences))
    assert paired.wilcoxon(shuffled) == paired.wilcoxon(differences)
    assert paired.randomization(shuffled) == paired.randomization(differences)


@given(INFORMATIVE)
def test_no_p_value_is_below_the_smallest_attainable_or_above_1(differences: list[int]) -> None:
    smallest = paired.smallest_attainable(len(differences))
    assert smallest <= paired.wilcoxon(differences).p_value <= 1
    assert smallest <= paired.randomization(differences) <= 1
