"""Runs against a baseline over the same topics: differences, wins, ties and losses, and tests of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ranking_evaluate.core import paired
from ranking_evaluate.measure import sampling
from ranking_evaluate.measure.figures import NAMES
from ranking_evaluate.measure.sampling import Differences, Test, tests_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ranking_evaluate.measure.results import Result

# What is compared: how many documents are judged is no merit of a run.
COMPARED: Final = tuple(name for name in NAMES if name != "judged")


@dataclass(slots=True)
class Comparison:
    """One figure at one cutoff of a run and of the baseline, topic by topic.

    Args:
        run: What the run is called.
        k: The cutoff.
        figure: Which figure it is.
        topics: How many topics define it on both sides.
        mean_difference: The mean of run - baseline over them; None where there are none.
        differences: In units of 10^-12, of the topics where they are not zero, by position.
        tests: The tests, by their names.
    """

    run: str
    k: int
    figure: str
    topics: int
    mean_difference: float | None
    differences: Mapping[int, int]
    tests: dict[str, Test] = field(default_factory=dict)

    @property
    def wins(self) -> int:
        """In how many topics the run is better."""
        return sum(difference > 0 for difference in self.differences.values())

    @property
    def losses(self) -> int:
        """In how many topics the baseline is better."""
        return len(self.differences) - self.wins

    @property
    def ties(self) -> int:
        """In how many topics both are the same."""
        return self.topics - len(self.differences)

    @property
    def is_same(self) -> bool:
        """Whether the run is neither better nor worse on average."""
        return sum(self.differences.values()) == 0

    @property
    def deciding(self) -> str | None:
        """The name of the test that is shown where there is room for one."""
        return next((name for name in sampling.NAMES if self.tests[name].p is not None), None)


def compare(baseline: Result, others: Sequence[Result]) -> list[Comparison]:
    """Return how each of the other runs compares with the baseline, in each figure at each cutoff.

    Each test's p-values are corrected by Holm's method for all comparisons together.
    """
    comparisons = [
        _paired(other, k, name, baseline.column(k, name), other.column(k, name))
        for other in others
        for k in baseline.means
        for name in COMPARED
    ]
    tests = tests_of([Differences(one.topics, len(baseline.topics), one.differences) for one in comparisons])
    for comparison, found in zip(comparisons, tests, strict=True):
        comparison.tests |= found
    for name in sampling.NAMES:
        available = [one for one in (found[name] for found in tests) if one.p is not None]
        for test, corrected in zip(available, paired.holm([one.p or 0.0 for one in available]), strict=True):
            test.holm = corrected
    return comparisons


def _paired(
    other: Result, k: int, name: str, baseline: Sequence[float | None], candidate: Sequence[float | None]
) -> Comparison:
    total = 0.0
    topics = 0
    differences = {}
    for position, (before, after) in enumerate(zip(baseline, candidate, strict=True)):
        if before is not None and after is not None:
            topics += 1
            total += after - before
            scaled = paired.scaled(after - before)
            if scaled:
                differences[position] = scaled
    return Comparison(other.name, k, name, topics, total / topics if topics else None, differences)
