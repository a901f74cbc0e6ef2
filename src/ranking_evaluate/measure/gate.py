"""Thresholds that a run must hold: a lowest mean, or a largest drop against the baseline."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ranking_evaluate.core.paired import scaled
from ranking_evaluate.core.visible import visible
from ranking_evaluate.measure.account import LABELS
from ranking_evaluate.measure.figures import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ranking_evaluate.measure.results import Result

_TOPICS: Final = 10
_FORM: Final = re.compile(r"(?P<figure>[a-z]+)@(?P<k>[0-9]+)=(?P<bound>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)")


class Bound(NamedTuple):
    """A bound on the mean of a figure at a cutoff."""

    figure: str
    k: int
    value: float
    is_drop: bool
    """Whether it bounds the drop against the baseline, and not the mean itself."""

    @property
    def text(self) -> str:
        """The bound as a sentence's subject."""
        label = f"{LABELS[self.figure]}@{self.k}"
        return f"{label} {'may drop by at most' if self.is_drop else 'must be at least'} {self.value:g}"


class Checked(NamedTuple):
    """Whether a run holds a bound, and the topics to look at when it does not."""

    bound: Bound
    run: str
    holds: bool
    found: float | None
    """The mean, or the drop; None where it is undefined."""
    topics: Sequence[tuple[str, float | None, float | None]]
    """Of the topics that lost most, or have least: the id, the baseline's figure and the run's."""

    def lines(self) -> Iterator[str]:
        """Yield the outcome, and the topics below it."""
        bound = self.bound
        if self.found is None:
            found = "it is undefined for every topic"
        else:
            change = f"it {'drops' if self.found >= 0 else 'rises'} by {abs(self.found):.4f}"
            found = change if bound.is_drop else f"it is {self.found:.4f}"
        yield f"{'holds' if self.holds else 'FAILS'}: {self.run}: {bound.text}: {found}"
        for topic, before, after in self.topics:
            yield f"    {visible(topic)}: {_change(before, after)}"


def bound_of(text: str, *, is_drop: bool) -> Bound:
    """Return the bound that is written as FIGURE@K=X.

    Raises:
        ValueError: It is not of this form.
    """
    found = _FORM.fullmatch(text.strip().lower())
    if found is None or found["figure"] not in NAMES or not int(found["k"]):
        raise ValueError(f"{text!r} is not of the form FIGURE@K=X, as in ndcg@10=0.7; figures are {', '.join(NAMES)}")
    return Bound(found["figure"], int(found["k"]), float(found["bound"]), is_drop)


def check(bounds: Sequence[Bound], results: Sequence[Result], baseline: Result | None) -> list[Checked]:
    """Return whether each run but the baseline holds each bound."""
    return [_check(bound, result, baseline) for result in results if result is not baseline for bound in bounds]


def _check(bound: Bound, result: Result, baseline: Result | None) -> Checked:
    mean: float | None = getattr(result.means[bound.k], bound.figure)
    before: float | None = getattr(baseline.means[bound.k], bound.figure) if baseline is not None else None
    found = mean
    if bound.is_drop:
        found = before - mean if before is not None and mean is not None else None
    if found is None:
        holds = False
    else:
        # As in a comparison, what is smaller than 10^-12 is rounding.
        over = scaled(found - bound.value)
        holds = over <= 0 if bound.is_drop else over >= 0
    topics = () if holds else _worst(bound, result, baseline)
    return Checked(bound, result.name, holds, found, topics)


def _worst(bound: Bound, result: Result, baseline: Result | None) -> Sequence[tuple[str, float | None, float | None]]:
    """Return the topics that lost most against the baseline, or where there is none, those that have least."""
    figures = result.column(bound.k, bound.figure)
    before = baseline.column(bound.k, bound.figure) if baseline is not None else [None] * len(figures)

    def gained(position: int) -> float:
        figure, earlier = figures[position], before[position]
        if figure is None:
            return math.inf
        return figure if baseline is None else math.inf if earlier is None else figure - earlier

    positions = sorted(range(len(figures)), key=gained)[:_TOPICS]
    worst = [at for at in positions if gained(at) < (math.inf if baseline is None else 0)]
    return [(result.topics[at].decode(), before[at], figures[at]) for at in worst]


def _change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "undefined" if after is None else f"{after:.4f}"
    return f"{before:.4f} to {after:.4f} ({after - before:+.4f})"
