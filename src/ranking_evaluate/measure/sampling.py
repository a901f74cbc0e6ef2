"""The tests of paired differences at any number of topics: exact where the core is, and by numpy and scipy beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ranking_evaluate.core import paired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# In the order in which one is taken for the others where it is available.
NAMES: Final = ("randomization", "wilcoxon", "sign", "t")

DRAWS: Final = 100_000
SEED: Final = 20_140_106

# The exact distribution of Wilcoxon's test in integers, then in binary64, then its normal approximation.
EXACT_INTEGERS: Final = 250
EXACT: Final = 1000

# So many signs are held at a time.
_HELD: Final = 1 << 21

NEEDED: Final = "needs numpy and scipy, the extra [statistics]: pip install numpy scipy"


@dataclass(slots=True)
class Test:
    """One test.

    Args:
        p: Its two-sided p-value; None where it is unavailable.
        method: How it was found, or why it is unavailable.
        standard_error: Of a p-value that was sampled.
        holm: The p-value, corrected for all others of this test.
    """

    p: float | None
    method: str
    standard_error: float | None = None
    holm: float | None = None


class Differences(NamedTuple):
    """What is tested.

    Args:
        topics: How many topics are compared, those that tie too.
        of: How many topics there are in all.
        by_position: The differences that are not zero, in units of 10^-12, by the position of their topics.
    """

    topics: int
    of: int
    by_position: Mapping[int, int]


def tests_of(compared: Sequence[Differences]) -> list[dict[str, Test]]:
    """Return for each comparison its tests by name: randomization, wilcoxon, sign and t."""
    found: list[dict[str, Test]] = [{} for _ in compared]
    beyond = []
    for tests, one in zip(found, compared, strict=True):
        values = [*one.by_position.values()]
        wins = sum(value > 0 for value in values)
        if not values:
            tests |= {name: Test(None, "every topic ties") for name in NAMES}
            continue
        tests["sign"] = Test(paired.sign_test(wins, len(values) - wins), "exact")
        tests["wilcoxon"] = wilcoxon(values)
        if len(values) <= paired.MAXIMUM_RANDOMIZED:
            tests["randomization"] = Test(paired.randomization(values), "exact")
            tests["t"] = Test(None, f"the exact tests are there for up to {paired.MAXIMUM_RANDOMIZED} differing topics")
        else:
            beyond.append((tests, one))
    if beyond:
        chosen = [one for _, one in beyond]
        for (tests, _), randomization, t in zip(beyond, _randomizations(chosen), map(_t_test, chosen), strict=True):
            tests["randomization"] = randomization
            tests["t"] = t
    return found


def wilcoxon(values: Sequence[int]) -> Test:
    """Return Wilcoxon's signed rank test of differences of which none is zero."""
    if len(values) <= EXACT_INTEGERS:
        return Test(paired.wilcoxon(values).p_value, "exact")
    try:
        import numpy as np
        from scipy import stats  # type: ignore[import-untyped]
    except ImportError:
        return Test(None, f"beyond {EXACT_INTEGERS} differing topics it {NEEDED}")
    if len(values) > EXACT:
        found = stats.wilcoxon(np.array(values, dtype=float), method="asymptotic", correction=False)
        return Test(float(found.pvalue), "normal approximation")
    ranks = paired.doubled_ranks(values)
    plus = sum(rank for rank, value in zip(ranks, values, strict=True) if value > 0)
    smaller = min(plus, sum(ranks) - plus)
    # At each doubled sum of positive ranks stands its probability.
    chances = np.zeros(smaller + 1)
    chances[0] = 1.0
    for rank in sorted(ranks):
        moved = chances[: max(smaller + 1 - rank, 0)] / 2
        chances /= 2
        chances[rank:] += moved
    return Test(min(1.0, 2 * float(chances.sum())), "exact")


def _randomizations(compared: Sequence[Differences]) -> list[Test]:
    """Return the randomization test of each comparison; the same random signs of the topics are used for all.

    A pattern of signs is extreme when the magnitude of its sum reaches the observed one less 1 for each differing
    topic, as in the exact test. The observed pattern counts as one that was drawn.
    """
    try:
        import numpy as np
    except ImportError:
        return [Test(None, f"beyond {paired.MAXIMUM_RANDOMIZED} differing topics it {NEEDED}")] * len(compared)
    # Of all topics, so that a figure's p-value does not depend on what else is compared.
    count = max(one.of for one in compared)
    values = np.zeros((count, len(compared)))
    for column, one in enumerate(compared):
        values[[*one.by_position], column] = [*one.by_position.values()]
    reached = np.abs(values.sum(axis=0)) - np.array([len(one.by_position) for one in compared])
    random = np.random.default_rng(SEED)
    extreme = np.zeros(len(compared), dtype=int)
    left = DRAWS
    while left:
        draws = min(left, max(1, _HELD // count))
        bits = np.frombuffer(random.bytes((draws * count + 7) // 8), dtype=np.uint8)
        signs = np.unpackbits(bits, count=draws * count).reshape(draws, -1).astype(float)
        # A bit is a sign: 2 * bits - 1.
        sums = 2 * (signs @ values) - values.sum(axis=0)
        extreme += (np.abs(sums) >= reached).sum(axis=0)
        left -= draws
    p_values = [(int(found) + 1) / (DRAWS + 1) for found in extreme]
    method = f"{DRAWS:,} random draws, seed {SEED}"
    return [Test(p, method, standard_error=math.sqrt(p * (1 - p) / DRAWS)) for p in p_values]


def _t_test(compared: Differences) -> Test:
    values = [*compared.by_position.values()]
    if len(values) == compared.topics and len(set(values)) == 1:
        return Test(None, "all differences are equal")
    try:
        from scipy import stats
    except ImportError:
        return Test(None, f"it {NEEDED}")
    found = stats.ttest_1samp([*values, *[0] * (compared.topics - len(values))], 0)
    return Test(float(found.pvalue), f"paired t-test with {compared.topics - 1:,} degrees of freedom")
