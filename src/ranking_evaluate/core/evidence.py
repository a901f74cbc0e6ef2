"""Strict measuring with explicit reference evidence: a metric whose evidence is missing is unavailable, never zero."""

from __future__ import annotations

from collections import Counter
from itertools import count, groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from ranking_evaluate.core import canonical, instants, metrics
from ranking_evaluate.core.canonical import number
from ranking_evaluate.core.observations import AGGREGATES, CONVENTIONS, METRICS, MetricName, Reason

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ranking_evaluate.core.canonical import JsonValue
    from ranking_evaluate.core.observations import Observation, Protocol

PROFILE: Final = "explicit-reference-evidence-v1"
RELEVANT_GAIN: Final = 1

# A metric's value, or why there is none.
Measured: TypeAlias = "float | tuple[Reason, ...]"
Figures: TypeAlias = "dict[MetricName, Measured]"


def measure(
    protocol: Protocol,
    observations: list[Observation],
    required: Container[MetricName] = METRICS,
    ties_cut: Container[str] = (),
) -> dict[str, object]:
    """Return the figures of every observation with their evidence, and the required aggregates.

    Args:
        protocol: What the observations must have in common; where one differs, its metrics are unavailable.
        observations: At least one, with distinct query ids.
        required: The metrics that are aggregated.
        ties_cut: Ids of queries whose `returned` lacks units that tie with its last one.
    """
    cutoff = instants.nanoseconds(protocol["cutoff"])
    rows = []
    figures = []
    for observation in observations:
        known = _known(protocol, cutoff, observation)
        returned = _returned(observation)
        measured = _figures(known, [unit.counted for unit in returned])
        row = _row(observation, known, returned[: observation["k"]], measured)
        if "scores" in observation:
            if "tiePolicy" in observation:
                row["tiePolicy"] = observation["tiePolicy"]
            row["tieBounds"] = (
                _ties_cut(measured)
                if observation["queryId"] in ties_cut
                else _tie_bounds(known, [unit.gain for unit in returned], observation["scores"], measured)
            )
        rows.append(row)
        figures.append(measured)
    return {
        "profile": PROFILE,
        "protocolSha256": canonical.sha256(canonical.encode(cast("JsonValue", protocol))),
        "observationSetSha256": canonical.sha256(canonical.encode(cast("JsonValue", observations))),
        "observations": rows,
        "aggregates": {
            name: _aggregate([one[metric] for one in figures])
            for metric, name in AGGREGATES.items()
            if metric in required
        },
        "conventions": CONVENTIONS,
    }


class _Known(NamedTuple):
    """The evidence about one observation that does not depend on the order of what was returned."""

    k: int
    reasons: tuple[Reason, ...]  # Each makes every metric unavailable.
    labeled: bool  # There is a reference set.
    complete: bool
    relevant_ids: list[str]
    ideal_dcg: float


class _Unit(NamedTuple):
    """One returned position."""

    id: str
    gain: int | None
    duplicate: bool

    @property
    def counted(self) -> int | None:
        """The gain that this position contributes; None where it is unknown."""
        return 0 if self.duplicate else self.gain


def _known(protocol: Protocol, cutoff: int, observation: Observation) -> _Known:
    labels = observation["labels"] or []
    differs = (
        instants.nanoseconds(observation["cutoff"]) != cutoff
        or observation["retrievalUnit"] != protocol["retrievalUnit"]
        or observation["k"] != protocol["k"]
    )
    applies = {
        Reason.PARTIAL_SCAN: observation["scan"] == "partial",
        Reason.PERMISSION_VIOLATION: observation["access"] == "violation",
        Reason.MISSING_REFERENCE_SET: observation["labels"] is None,
        Reason.CORPUS_CHANGED: observation["corpus"] != protocol["corpus"],
        Reason.REFERENCE_VERSION_MISMATCH: observation["referenceVersion"] != protocol["referenceVersion"],
        Reason.PROTOCOL_MISMATCH: differs,
    }
    return _Known(
        k=observation["k"],
        reasons=tuple(reason for reason, does in applies.items() if does),
        labeled=observation["labels"] is not None,
        complete=observation["populationComplete"],
        relevant_ids=[label["id"] for label in labels if label["gain"] >= RELEVANT_GAIN],
        ideal_dcg=metrics.ideal_dcg((label["gain"] for label in labels), observation["k"]),
    )


def _returned(observation: Observation) -> list[_Unit]:
    gain_by_id = {label["id"]: label["gain"] for label in observation["labels"] or []}
    seen: set[str] = set()
    units = []
    for unit in observation["returned"]:
        units.append(_Unit(unit, gain_by_id.get(unit), unit in seen))
        seen.add(unit)
    return units


def _figures(known: _Known, gains: Sequence[int | None]) -> Figures:
    """Return each metric of one order of the returned units, given what each position contributes."""
    window = gains[: known.k]
    relevant = [gain is not None and gain >= RELEVANT_GAIN for gain in window]
    hits = relevant.count(True)
    first_relevant = relevant.index(True) if hits else len(window)
    relevant_count = len(known.relevant_ids)
    dcg = metrics.dcg(metrics.linear_gains(window))

    unlabeled: tuple[Reason, ...] = ()
    unlabeled_before: tuple[Reason, ...] = ()
    population: tuple[Reason, ...] = ()
    # Without a reference set that is the reason, and these would only repeat it.
    if known.labeled:
        if None in window:
            unlabeled = (Reason.UNLABELED_RETURNED_UNIT,)
        if None in window[:first_relevant]:
            unlabeled_before = (Reason.UNLABELED_RETURNED_UNIT,)
        if not known.complete:
            population = (Reason.INCOMPLETE_POPULATION,)
        elif not relevant_count:
            population = (Reason.NO_RELEVANT_POPULATION,)
    # One relevant unit that is known makes the reciprocal rank defined, however incomplete the population is.
    none_relevant = () if relevant_count else population
    return {
        "precision": _measured(known.reasons + unlabeled, metrics.precision(hits, known.k)),
        "recall": _measured(known.reasons + unlabeled + population, metrics.recall(hits, relevant_count)),
        "ndcg": _measured(known.reasons + unlabeled + population, metrics.ndcg(dcg, known.ideal_dcg)),
        "reciprocalRank": _measured(
            known.reasons + unlabeled_before + none_relevant,
            metrics.reciprocal_rank(relevant, relevant_count, known.k),
        ),
    }


def _measured(reasons: tuple[Reason, ...], value: float | None) -> Measured:
    """Return the value, or the reasons why there is none; a value is undefined only where there is a reason."""
    return reasons if reasons or value is None else value


def _tie_bounds(
    known: _Known, gains: Sequence[int | None], scores: Sequence[float], supplied: Figures
) -> dict[str, object]:
    """Return the least and the greatest value of each metric over every order that the tied scores allow.

    Within each group of equal scores falling gains are best for every metric at once, and rising gains with the
    unlabeled first are worst, for the value and for its being available: when a unit without a label can come before
    what a metric needs, it does so there. Bounds go through the same sums as the supplied order, and orders that differ
    in their gains differ by far more than rounding, so the supplied value lies between.
    """
    worst: list[int | None] = []
    best: list[int | None] = []
    # Scores are binary64, so integers that are one double tie.
    for _, group in groupby(zip(scores, gains, strict=True), key=lambda scored: float(scored[0])):
        rising = sorted((gain for _, gain in group), key=lambda gain: -1 if gain is None else gain)
        worst += rising
        best += reversed(rising)
    least = _figures(known, worst)
    greatest = _figures(known, best)
    return {name: _bounds(least[name], greatest[name]) for name in METRICS if not isinstance(supplied[name], tuple)}


def _bounds(least: Measured, greatest: Measured) -> dict[str, object]:
    if isinstance(least, float) and isinstance(greatest, float):
        return {"min": number(least), "max": number(greatest)}
    # Where the worst order is available every order is, so the reasons are the worst order's.
    return _wire(least)


def _ties_cut(supplied: Figures) -> dict[str, object]:
    """Return bounds that cannot be known, because units that tie with the last one were left out."""
    return {name: _wire((Reason.TIES_CUT,)) for name in METRICS if not isinstance(supplied[name], tuple)}


def _aggregate(values: Sequence[Measured]) -> dict[str, object]:
    """Return the mean over all observations, or for how many of them which evidence is missing."""
    missing = [one for one in values if isinstance(one, tuple)]
    if missing:
        counts = Counter(reason for reasons in missing for reason in reasons)
        return {
            "status": "unavailable",
            "queryCount": len(values),
            "missingCount": len(missing),
            "reasons": {reason.value: counts[reason] for reason in Reason if counts[reason]},
        }
    mean, query_count = metrics.mean(one for one in values if isinstance(one, float))
    return {**_wire(_measured((), mean)), "queryCount": query_count}


# What stands on the wire.


def _wire(measured: Measured) -> dict[str, object]:
    if isinstance(measured, tuple):
        return {"status": "unavailable", "reasons": [reason.value for reason in measured]}
    return {"status": "available", "value": number(measured)}


def _row(observation: Observation, known: _Known, window: Sequence[_Unit], measured: Figures) -> dict[str, object]:
    within = {unit.id for unit in window}
    return {
        "queryId": observation["queryId"],
        "metrics": {name: _wire(measured[name]) for name in METRICS},
        "relevantPopulationCount": len(known.relevant_ids) if known.complete else None,
        "returnedInWindowCount": len(window),
        "duplicateReturnedCount": sum(unit.duplicate for unit in window),
        "unlabeledCount": len({unit.id for unit in window if unit.gain is None}),
        "missedRelevantIds": [unit for unit in known.relevant_ids if unit not in within],
        "ranking": [
            {
                "rank": rank,
                "id": unit.id,
                "gain": unit.gain,
                "labeled": unit.gain is not None,
                "duplicate": unit.duplicate,
            }
            for rank, unit in zip(count(1), window, strict=False)
        ],
    }
