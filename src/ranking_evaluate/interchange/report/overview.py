"""What a report shows of a whole collection: means first, how topics are spread, the best and the worst of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ranking_evaluate.interchange.report.model import (
    Against,
    Head,
    Overview,
    Query,
    Section,
    Spread,
    Standing,
    Table,
    Topic,
    Value,
)
from ranking_evaluate.interchange.report.model import figure as shown
from ranking_evaluate.measure.account import LABELS, count
from ranking_evaluate.measure.table import p_value

# By the first of these topics are shown: what `measure` calls NDCG, and what answers call it.
_FIRST: Final = ("ndcg", "ndcgAtK")
_NAMED: Final = 10
_BARS: Final = 10
_SPREADS: Final = 4
_ALPHA: Final = 0.05
_CLEAR: Final = (
    f"* By Holm's correction for all comparisons, chance alone would hardly give such a difference ({_ALPHA:g})."
)
_NONE_CLEAR: Final = f"By Holm's correction for all comparisons, no difference is clear at {_ALPHA:g}."
_LARGE: Final = "A large p does not show that there is no difference."
_BEST: Final = "* The best of these runs."


class Run(NamedTuple):
    """The figures of one run.

    Args:
        name: What it is called.
        means: For each cutoff the mean of each figure by its name.
        counts: The same for the number of topics that it is over.
        column: A figure of every topic at a cutoff, in the order of the topics.
    """

    name: str
    means: Mapping[int, Mapping[str, float | None]]
    counts: Mapping[int, Mapping[str, int]]
    column: Callable[[int, str], Sequence[float | None]]


class Collection(NamedTuple):
    """Runs over the same topics.

    Args:
        source: Where this comes from.
        release: Which release measured it.
        topics: The ids; none where only means are known.
        total: How many topics there are.
        runs: The runs.
        comparisons: As `measure --json` writes them.
        conventions: By which rules it was measured.
        files: The name and SHA-256 of each file that was read.
        remarks: What should be known of it.
        shown: Topics of which more is known than figures, by their ids.
    """

    source: str
    release: str
    topics: Sequence[str]
    total: int
    runs: Sequence[Run]
    labels: Mapping[str, str] = LABELS
    """What each figure is called where people read it."""
    comparisons: Sequence[Mapping[str, Any]] = ()
    conventions: Sequence[str] = ()
    files: Sequence[tuple[str, str]] = ()
    remarks: Sequence[str] = ()
    shown: Mapping[str, Query] = {}
    shown_metrics: Sequence[str] = ()
    """What each of these queries has a value of."""
    legend: Sequence[tuple[str, str]] = ()


def section(head: Head, collection: Collection) -> Section:
    """Return the section of a collection."""
    k, name = _headline(collection)
    label = f"{collection.labels[name]}@{k}"
    standings = [*_standings(collection, k, name, label)] if collection.topics else []
    named = dict.fromkeys(row.id for standing in standings for row in standing.topics)
    return Section(
        head=head,
        facts=[
            ("topics", f"{collection.total:,}"),
            ("runs" if len(collection.runs) > 1 else "run", ", ".join(run.name for run in collection.runs)),
        ],
        metrics=collection.shown_metrics or [label],
        legend=collection.legend,
        queries=[collection.shown[topic] for topic in named if topic in collection.shown],
        conventions=collection.conventions,
        overview=Overview(
            means=_means(collection),
            notes=[
                *([_BEST] if len(collection.runs) > 1 else []),
                *_denominators(collection),
                *collection.remarks,
            ],
            comparisons=[*_comparisons(collection)],
            spreads=[
                _spread(f"{label} of {run.name}" if len(collection.runs) > 1 else label, run.column(k, name))
                for run in collection.runs[:_SPREADS]
                if collection.topics
            ],
            standings=standings,
            files=collection.files,
            figures=lambda: _figures(collection),
        ),
    )


def _headline(collection: Collection) -> tuple[int, str]:
    """Return the figure by which topics are shown: NDCG at 10 where there is one."""
    cutoffs = [*collection.runs[0].means]
    k = 10 if 10 in cutoffs else cutoffs[0]
    means = collection.runs[0].means[k]
    names = [name for name in (*_FIRST, *collection.labels) if name in means and name in collection.labels]
    return k, next((name for name in names if means[name] is not None), names[0])


def _means(collection: Collection) -> Table:
    runs = collection.runs
    labels = collection.labels
    names = [name for name in labels if name in next(iter(runs[0].means.values()))]
    best = {
        (k, name): max((value for run in runs if (value := run.means[k][name]) is not None), default=None)
        for k in runs[0].means
        for name in names
        if name != "judged"
    }

    def cell(k: int, name: str, value: float | None) -> str:
        is_best = len(runs) > 1 and value is not None and value == best.get((k, name))
        return f"{Value(value).text}{' *' if is_best else ''}"

    rows = [
        (run.name, str(k), *(cell(k, name, found[name]) for name in names))
        for run in runs
        for k, found in run.means.items()
    ]
    return Table(("run", "k", *(labels[name] for name in names)), rows)


def _denominators(collection: Collection) -> Iterator[str]:
    """Yield over how many topics the means are, where that is not all of them."""
    total = collection.total
    told: dict[str, list[str]] = {}
    for run in collection.runs:
        for k, counts in run.counts.items():
            for number in sorted({*counts.values()} - {total}, reverse=True):
                labels = [collection.labels[name] for name in collection.labels if counts.get(name) == number]
                text = f"{', '.join(labels)}: mean over {number:,} of {total:,} topics"
                told.setdefault(text, []).append(f"{run.name} at {k}")
    everywhere = sum(len(run.means) for run in collection.runs)
    for text, where in told.items():
        yield f"{text}." if len(where) == everywhere else f"{text} ({', '.join(where)})."
    if not told:
        yield f"Every mean is over all {count(total, 'topic')}."


def _comparisons(collection: Collection) -> Iterator[Against]:
    """Yield how each run compares with the baseline."""
    for one in collection.comparisons:
        rows = []
        methods: dict[str, None] = {}
        any_clear = False
        for k, by_name in one["figures"].items():
            for name, found in by_name.items():
                tests = found["tests"]
                order = ("randomization", "wilcoxon", "sign")
                deciding = next((test for test in order if _p(tests, test) is not None), "")
                test = tests.get(deciding, {})
                mean = found["meanDifference"]
                clear = test.get("holm") is not None and test["holm"] <= _ALPHA
                any_clear |= clear
                rows.append(
                    (
                        f"{collection.labels[name]}@{k}",
                        "undefined" if mean is None else "same" if found["isSame"] else shown(mean, signed=True),
                        *(str(found[outcome]) for outcome in ("wins", "ties", "losses")),
                        p_value(test.get("p")),
                        p_value(test.get("holm")) + (" *" if clear else ""),
                        deciding or "every topic ties",
                    )
                )
                if deciding:
                    methods[f"{deciding}: {test['method']}."] = None
        verdict = f"{_CLEAR if any_clear else _NONE_CLEAR} {_LARGE}"
        head = ("figure", "difference", "wins", "ties", "losses", "p", "p by Holm", "test")
        yield Against(f"{one['run']} against {one['baseline']}", Table(head, rows), [*methods, verdict])


def _p(tests: Mapping[str, Any], name: str) -> float | None:
    found: float | None = tests.get(name, {}).get("p")
    return found


def _spread(title: str, figures: Sequence[float | None]) -> Spread:
    """Return how many topics have which figure: exactly 0, then ten bars of a tenth each, and undefined ones."""
    counts = [0] * (_BARS + 1)
    for value in figures:
        if value is not None:
            # As with any figure, what is off a bound by rounding is on it.
            counts[min(_BARS, max(0, math.ceil(round(value * _BARS, 9))))] += 1
    names = ["0", *(f"to {(place + 1) / _BARS:g}" for place in range(_BARS))]
    most = max(counts) or 1
    return Spread(
        title,
        [(name, number, number / most) for name, number in zip(names, counts, strict=True)],
        sum(value is None for value in figures),
    )


def _standings(collection: Collection, k: int, name: str, label: str) -> Iterator[Standing]:
    """Yield the worst and the best topics of one run, or those that lost and gained most against the baseline."""
    by_name = {run.name: run for run in collection.runs}
    pairs = [(by_name[one["baseline"]], by_name[one["run"]]) for one in collection.comparisons]
    if not pairs:
        for run in collection.runs[:_SPREADS]:
            of = f" of {run.name}" if len(collection.runs) > 1 else ""
            figures = run.column(k, name)
            defined = [position for position, value in enumerate(figures) if value is not None]
            defined.sort(key=lambda position, figures=figures: figures[position])  # type: ignore[misc]
            rows = [Topic(collection.topics[at], figures[at], shown(figures[at] or 0.0)) for at in defined]
            yield Standing(f"Worst topics{of} by {label}", rows[:_NAMED])
            yield Standing(f"Best topics{of} by {label}", rows[::-1][:_NAMED])
    for baseline, run in pairs[:_SPREADS]:
        before, after = baseline.column(k, name), run.column(k, name)
        changes = {
            at: now - then
            for at, (then, now) in enumerate(zip(before, after, strict=True))
            if then is not None and now is not None and now != then
        }
        order = sorted(changes, key=changes.__getitem__)
        rows = [
            Topic(
                collection.topics[at],
                after[at],
                f"{shown(before[at] or 0.0)} to {shown(after[at] or 0.0)} ({shown(changes[at], signed=True)})",
            )
            for at in order
        ]
        lost = [row for row, at in zip(rows, order, strict=True) if changes[at] < 0]
        gained = [row for row, at in zip(rows, order, strict=True) if changes[at] > 0]
        yield Standing(f"{run.name} lost most by {label}", lost[:_NAMED])
        yield Standing(f"{run.name} gained most by {label}", gained[::-1][:_NAMED])


def _figures(collection: Collection) -> Iterator[tuple[str, str, Value]]:
    """Yield every figure: the topic, empty for means, what it is called, and its value."""
    for run in collection.runs:
        prefix = f"{run.name} " if len(collection.runs) > 1 else ""
        for k, found in run.means.items():
            for name, value in found.items():
                yield "", f"{prefix}{collection.labels[name]}@{k}", Value(value)
        for k, found in run.means.items() if collection.topics else ():
            for name in found:
                for topic, value in zip(collection.topics, run.column(k, name), strict=True):
                    yield topic, f"{prefix}{collection.labels[name]}@{k}", Value(value)
