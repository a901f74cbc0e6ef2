"""Responses into sections of a report: one small reader for each operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from ranking_evaluate.core.evidence import MetricName
from ranking_evaluate.interchange.report.compared import comparison
from ranking_evaluate.interchange.report.model import LEVELS, REASONS, Cell, Head, Query, Section, Tile, Value, figure
from ranking_evaluate.interchange.report.read import Checked
from ranking_evaluate.operations import (
    first_usable_rank,
    lexical_retrieval,
    ranking_compare,
    ranking_evaluate,
)
from ranking_evaluate.operations.figures import LABELS
from ranking_evaluate.operations.measurement import AGGREGATES
from ranking_evaluate.operations.results import (
    Available,
    AvailableMean,
    Bounds,
    MeasuredObservation,
    Measurement,
    NoBounds,
    Unavailable,
    UnavailableMean,
)

# Names on the wire and for people, in the order in which they are shown.
_STRICT: Final[Mapping[MetricName, str]] = {
    "ndcg": "NDCG",
    "reciprocalRank": "RR",
    "precision": "Precision",
    "recall": "Recall",
}

# More ranks than any input can have are not drawn.
_DRAWN: Final = 100


def section(number: int, checked: Checked) -> Section:
    """Return the section of one response; `number` makes its anchors its own."""
    return _READERS[checked.response.operation.id](_head(number, checked), checked.response.result)


def sections_together(number: int, checked: Sequence[Checked]) -> list[Section]:
    """Return the sections of responses of ranking-evaluate in which a grade has one colour everywhere."""
    highest = max((_highest_of(one.response.result) for one in checked), default=1.0)
    return [_graded(_head(number + at, one), one.response.result, highest) for at, one in enumerate(checked)]


def _head(number: int, checked: Checked) -> Head:
    response = checked.response
    return Head(
        f"r{number}",
        response.operation.name,
        response.operation.id,
        checked.name,
        response.version,
        checked.seals,
    )


def _graded(head: Head, result: ranking_evaluate.Result, highest: float | None = None) -> Section:
    highest = highest or _highest_of(result)
    count, k = result["queryCount"], result["k"]
    queries = [
        Query(
            f"{head.anchor}-q{number}",
            query["id"],
            [Value(query[name]) for name in LABELS],
            [
                Cell(item["rank"], item["id"], item["grade"], _level(item["grade"], highest), item["relevant"])
                for item in query["ranking"]
            ],
            query["missedRelevantIds"],
            f"{query['hitsAtK']} of {query['relevantJudgmentCount']} relevant found",
        )
        for number, query in enumerate(result["queries"], 1)
    ]
    return Section(
        head=head,
        facts=[("k", str(k)), ("queries", str(count))],
        metrics=[f"{label}@{k}" for label in LABELS.values()],
        tiles=[
            Tile(f"{label}@{k}", Value(result["macro"][name]), _mean_of(result["definedQueryCounts"][name], count))
            for name, label in LABELS.items()
        ],
        queries=queries,
        legend=legend(queries, highest),
        conventions=result["conventions"],
    )


def _measured(head: Head, result: Measurement) -> Section:
    observed, aggregates = result["observations"], result["aggregates"]
    highest = _highest(item["gain"] for one in observed for item in one["ranking"])
    queries = [_observation(f"{head.anchor}-q{number}", one, highest) for number, one in enumerate(observed, 1)]
    means: Mapping[str, Any] = {name: aggregates.get(wire) for name, wire in AGGREGATES.items()}
    return Section(
        head=head,
        facts=[("queries", str(len(observed))), ("protocol SHA-256", result["protocolSha256"])],
        metrics=list(_STRICT.values()),
        tiles=[_mean(label, means[name]) for name, label in _STRICT.items() if means[name] is not None],
        queries=queries,
        legend=legend(queries, highest),
        conventions=result["conventions"],
    )


def _observation(anchor: str, one: MeasuredObservation, highest: float) -> Query:
    bounds = one.get("tieBounds", {})
    population = one["relevantPopulationCount"]
    return Query(
        anchor,
        one["queryId"],
        [_measure(one["metrics"][name], bounds.get(name)) for name in _STRICT],
        [
            Cell(
                item["rank"],
                item["id"],
                item["gain"],
                _level(item["gain"], highest),
                bool(item["gain"]) and not item["duplicate"],
                item["duplicate"],
            )
            for item in one["ranking"]
        ],
        one["missedRelevantIds"],
        "relevant population unknown" if population is None else f"{population} relevant known",
    )


def _searched(head: Head, result: lexical_retrieval.Result) -> Section:
    corpus, workflow = result["corpus"], result["workflow"]
    measured = _measured(head, result["measurement"])
    facts = [
        ("k", str(workflow["topK"])),
        ("corpus", corpus["id"]),
        ("documents", f"{corpus['documentCount']}, {corpus['excludedAfterCutoffCount']} of them after the cutoff"),
        ("corpus SHA-256", f"{corpus['sha256']} ({'pinned' if corpus['pinned'] else 'not pinned'})"),
        ("cutoff", workflow["cutoff"]),
        ("reference", workflow["referenceVersion"]),
    ]
    k = workflow["topK"]
    return replace(
        measured,
        metrics=[f"{label}@{k}" for label in measured.metrics],
        tiles=[replace(tile, name=f"{tile.name}@{k}") for tile in measured.tiles],
        facts=[*facts, *measured.facts],
        conventions=[*result["conventions"], *measured.conventions],
    )


def _first_usable(head: Head, result: first_usable_rank.Result) -> Section:
    ranks, numerator, denominator = result["ranks"], result["numerator"], result["denominator"]
    exactly = f"exactly {numerator}/{denominator}" if denominator else "no query, so no average"
    misses = f"{ranks.count(None)} of {len(ranks)} queries miss and count 0"
    return Section(
        head=head,
        facts=[("queries", str(len(ranks)))],
        metrics=["RR"],
        tiles=[Tile("Mean RR", Value(numerator / denominator if denominator else None), f"{exactly}; {misses}")],
        queries=[
            Query(
                f"{head.anchor}-q{number}",
                f"query {number}",
                [Value(1 / rank if rank else 0.0)],
                [
                    Cell(place, f"hit {place}", int(place == rank), LEVELS if place == rank else 0, place == rank)
                    for place in range(1, (rank or 0) + 1)[:_DRAWN]
                ],
                (),
                f"first usable hit at rank {rank}" if rank else "no usable hit",
            )
            for number, rank in enumerate(ranks, 1)
        ],
        legend=[("g0", "not usable"), (f"g{LEVELS}", "usable")],
    )


def _compared(head: Head, result: ranking_compare.Result) -> Section:
    labels = {name: f"{label}@{result['k']}" for name, label in LABELS.items()}
    label = labels[result["metric"]]
    count, defined = result["queryCount"], result["paired"]["definedQueryCount"]
    return Section(
        head=head,
        facts=[
            ("metric", label),
            ("queries", str(count) if count == defined else f"{count}, the metric defined for {defined}"),
            ("alpha", f"{result['alpha']:g}"),
        ],
        metrics=[label],
        conventions=result["conventions"],
        comparison=comparison(result, labels),
    )


_READERS: Final[Mapping[str, Callable[[Head, Any], Section]]] = {
    "ranking-evaluate": _graded,
    "retrieval-measure": _measured,
    "lexical-retrieval": _searched,
    "first-usable-rank": _first_usable,
    "ranking-compare": _compared,
}


def _mean_of(defined: int, queries: int) -> str:
    return f"mean of {defined} of {queries} queries" if defined else f"defined for none of {queries} queries"


def _mean(label: str, mean: AvailableMean | UnavailableMean) -> Tile:
    count = mean["queryCount"]
    if mean["status"] == "available":
        return Tile(label, Value(mean["value"]), _mean_of(count, count))
    return Tile(
        label,
        Value(None, list(mean["reasons"])),
        f"missing for {mean['missingCount']} of {count} queries:",
        [f"{REASONS[reason]} ({queries})" for reason, queries in mean["reasons"].items()],
    )


def _measure(metric: Available | Unavailable, bounds: Bounds | NoBounds | None) -> Value:
    if metric["status"] == "unavailable":
        return Value(None, metric["reasons"])
    if bounds is None:
        return Value(metric["value"])
    if bounds.get("status") == "unavailable":
        reasons = cast("NoBounds", bounds)["reasons"]
        return Value(metric["value"], (), f"no bounds over ties: {Value(None, reasons).why}")
    least, most = cast("Bounds", bounds)["min"], cast("Bounds", bounds)["max"]
    return Value(metric["value"], (), "" if least == most else f"{figure(least)} to {figure(most)} by order of ties")


def _highest_of(result: ranking_evaluate.Result) -> float:
    return _highest(item["grade"] for query in result["queries"] for item in query["ranking"])


def _highest(grades: Iterable[float | None]) -> float:
    return max((grade for grade in grades if grade), default=1.0)


def _level(grade: float | None, highest: float) -> int | None:
    """Return the strength of a grade's colour, 0 to `LEVELS`; the highest grade of a response has the strongest."""
    if grade is None:
        return None
    return min(LEVELS, max(0, math.ceil(LEVELS * grade / highest)))


def legend(queries: Iterable[Query], highest: float) -> list[tuple[str, str]]:
    """Return what each colour stands for: a grade, or where several share it, their range; and every other mark."""
    cells = [cell for query in queries for cell in query.cells]
    by_level: dict[int | None, list[float]] = {}
    for grade in sorted({cell.grade for cell in cells if cell.grade is not None}):
        by_level.setdefault(_level(grade, highest), []).append(grade)
    legend = [
        (f"g{level}", f"grade {shared[0]:g}" if len(shared) == 1 else f"grades {shared[0]:g} to {shared[-1]:g}")
        for level, shared in by_level.items()
    ]
    kinds = {cell.kind for cell in cells}
    marks = {"unjudged": "? unjudged", "duplicate": "= repeated", "relevant": "underlined: relevant"}
    return legend + [(kind, meaning) for kind, meaning in marks.items() if kind in kinds or kind == "relevant"]
