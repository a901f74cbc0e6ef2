"""Timing things side by side, in turn over many rounds, so that a machine whose speed drifts drifts for all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timed:
    """The seconds that one candidate took per call, over the rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and upper quartile of the rounds."""
        lower, _, upper = statistics.quantiles(self.seconds, n=4)
        return lower, upper

    def ratio(self, other: Timed) -> float:
        """Return the median, over the rounds, of this candidate's time over the other's in the same round."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True))


def side_by_side(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int = 31, budget: float = 6.0
) -> dict[str, Timed]:
    """Return the times of all candidates, each called as often per round as fits its share of the budget.

    Args:
        candidates: What to time, by name; each is called once before the first round.
        rounds: How often all of them are timed in turn.
        budget: Seconds in all, roughly.
    """
    share = budget / rounds / len(candidates)
    calls = {}
    for name, candidate in candidates.items():
        candidate()
        started = time.perf_counter()
        candidate()
        calls[name] = max(1, int(share / max(time.perf_counter() - started, 1e-7)))
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, candidate in candidates.items():
                started = time.perf_counter()
                for _ in range(calls[name]):
                    candidate()
                taken[name].append((time.perf_counter() - started) / calls[name])
    finally:
        if was_enabled:
            gc.enable()
    return {name: Timed(tuple(seconds)) for name, seconds in taken.items()}


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of the values lie, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
