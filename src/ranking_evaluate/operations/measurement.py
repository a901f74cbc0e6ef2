"""Strict measuring as two operations sell it: observations and their protocol in, figures with their evidence out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, NotRequired, cast

from pydantic import ConfigDict, Field, with_config
from pydantic.config import JsonDict
from typing_extensions import TypedDict

from ranking_evaluate.core import canonical, evidence, instants, metrics
from ranking_evaluate.core.canonical import JsonValue, number
from ranking_evaluate.core.evidence import METRICS, Figures, Known, Measured, MetricName, Reason
from ranking_evaluate.operations.fields import STRICT, Gain, Id, Instant, Sha256

PROFILE: Final = "explicit-reference-evidence-v1"

# Limits of one observation.
RETURNED: Final = 100
LABELS: Final = 500

# Each metric's name among the aggregates.
AGGREGATES: Final[Mapping[MetricName, str]] = {
    "precision": "precision",
    "recall": "recall",
    "ndcg": "ndcg",
    "reciprocalRank": "meanReciprocalRank",
}

K = Annotated[int, Field(ge=1, le=metrics.MAXIMUM_K)]


@with_config(STRICT)
class Corpus(TypedDict):
    """A corpus and the digest of its state."""

    id: Id
    sha256: Sha256


@with_config(STRICT)
class Protocol(TypedDict):
    """What every observation must have in common."""

    method: Literal["supplied", "lexical"]
    corpus: Corpus
    cutoff: Instant
    retrievalUnit: Id
    k: K
    referenceVersion: Id


@with_config(STRICT)
class Label(TypedDict):
    """The gain of one unit: 1 or more is relevant, 0 is known not to be."""

    id: Id
    gain: Gain


# What the fields alone cannot say, as far as JSON Schema can.
_TOGETHER: Final[JsonDict] = {
    "dependentRequired": {"tiePolicy": ["scores"]},
    "if": {"properties": {"labels": {"type": "null"}}},
    "then": {"properties": {"populationComplete": {"const": False}}},
}


@with_config(ConfigDict(**STRICT, json_schema_extra=_TOGETHER))
class Observation(TypedDict):
    """What one query returned, in order, and the evidence there is about it.

    Labels null is no reference set; an empty array is a known, empty one. `measure` relies on what the schema cannot
    say: there are as many `scores` as `returned`, they do not rise, and `returned` is distinct where they are given.
    """

    queryId: Id
    corpus: Corpus
    cutoff: Instant
    retrievalUnit: Id
    k: K
    referenceVersion: Id
    returned: Annotated[list[Id], Field(max_length=RETURNED)]
    labels: Annotated[list[Label], Field(max_length=LABELS)] | None
    populationComplete: bool
    scan: Literal["complete", "partial"]
    access: Literal["permitted", "violation"]
    scores: NotRequired[Annotated[list[float], Field(max_length=RETURNED)]]
    tiePolicy: NotRequired[Annotated[str, Field(min_length=1, max_length=200)]]


def measure(
    protocol: Protocol,
    observations: Sequence[Observation],
    required: Container[MetricName] = METRICS,
    ties_cut: Container[str] = (),
    *,
    rank_ends_at_k: bool = False,
) -> dict[str, object]:
    """Return the figures of every observation with their evidence, and the required aggregates.

    Args:
        protocol: What the observations must have in common; where one differs, its metrics are unavailable.
        observations: At least one, with distinct query ids.
        required: The metrics that are aggregated.
        ties_cut: Ids of queries whose `returned` lacks units that tie with its last one.
        rank_ends_at_k: Whether reciprocal rank ends at k too; otherwise it looks at all that was returned.
    """
    cutoff = instants.nanoseconds(protocol["cutoff"])
    rows = []
    measured = []
    for observation in observations:
        known = _known(protocol, cutoff, observation, rank_ends_at_k=rank_ends_at_k)
        returned = _returned(observation)
        gains = [unit.counted for unit in returned]
        figures = evidence.figures(known, gains)
        row = _row(observation, known, returned[: observation["k"]], figures)
        if "scores" in observation:
            if "tiePolicy" in observation:
                row["tiePolicy"] = observation["tiePolicy"]
            least, greatest = evidence.tie_bounds(known, gains, observation["scores"])
            row["tieBounds"] = {
                name: _wire((Reason.TIES_CUT,))
                if observation["queryId"] in ties_cut
                else _bounds(least[name], greatest[name])
                for name in METRICS
                if isinstance(figures[name], float)
            }
        rows.append(row)
        measured.append(figures)
    return {
        "profile": PROFILE,
        "protocolSha256": canonical.sha256(canonical.encode(cast("JsonValue", protocol))),
        "observationSetSha256": canonical.sha256(canonical.encode(cast("JsonValue", observations))),
        "observations": rows,
        "aggregates": {
            name: _aggregate([figures[metric] for figures in measured])
            for metric, name in AGGREGATES.items()
            if metric in required
        },
        "conventions": (*_SHARED, RANK_ENDS_AT_K if rank_ends_at_k else _RANK, _TIES, *CAUTIONS),
    }


class _Unit(NamedTuple):
    """One returned position."""

    id: str
    gain: int | None
    is_duplicate: bool

    @property
    def counted(self) -> int | None:
        """The gain that this position contributes; None where it is unknown."""
        return 0 if self.is_duplicate else self.gain


def _known(protocol: Protocol, cutoff: int, observation: Observation, *, rank_ends_at_k: bool) -> Known:
    labels = observation["labels"]
    differs = (
        instants.nanoseconds(observation["cutoff"]) != cutoff
        or observation["retrievalUnit"] != protocol["retrievalUnit"]
        or observation["k"] != protocol["k"]
    )
    applies = {
        Reason.PARTIAL_SCAN: observation["scan"] == "partial",
        Reason.PERMISSION_VIOLATION: observation["access"] == "violation",
        Reason.MISSING_REFERENCE_SET: labels is None,
        Reason.CORPUS_CHANGED: observation["corpus"] != protocol["corpus"],
        Reason.REFERENCE_VERSION_MISMATCH: observation["referenceVersion"] != protocol["referenceVersion"],
        Reason.PROTOCOL_MISMATCH: differs,
    }
    rules = metrics.Rules(observation["k"], evidence.RELEVANT_GAIN)
    return Known(
        rules=rules,
        rank_ends_at_k=rank_ends_at_k,
        judged=metrics.judge([label["gain"] for label in labels or []], rules),
        reasons=tuple(reason for reason, does_apply in applies.items() if does_apply),
        is_labeled=labels is not None,
        is_complete=observation["populationComplete"],
    )


def _returned(observation: Observation) -> list[_Unit]:
    gain_by_id = {label["id"]: label["gain"] for label in observation["labels"] or []}
    seen: set[str] = set()
    units = []
    for unit in observation["returned"]:
        units.append(_Unit(unit, gain_by_id.get(unit), unit in seen))
        seen.add(unit)
    return units


def _row(observation: Observation, known: Known, window: Sequence[_Unit], figures: Figures) -> dict[str, object]:
    within = {unit.id for unit in window}
    return {
        "queryId": observation["queryId"],
        "metrics": {name: _wire(figures[name]) for name in METRICS},
        "relevantPopulationCount": known.judged.relevant_count if known.is_complete else None,
        "returnedInWindowCount": len(window),
        "duplicateReturnedCount": sum(unit.is_duplicate for unit in window),
        "unlabeledCount": len({unit.id for unit in window if unit.gain is None}),
        "missedRelevantIds": [
            label["id"]
            for label in observation["labels"] or []
            if label["gain"] >= evidence.RELEVANT_GAIN and label["id"] not in within
        ],
        "ranking": [
            {
                "rank": rank,
                "id": unit.id,
                "gain": unit.gain,
                "labeled": unit.gain is not None,
                "duplicate": unit.is_duplicate,
            }
            for rank, unit in enumerate(window, 1)
        ],
    }


def _wire(measured: Measured) -> dict[str, object]:
    if isinstance(measured, tuple):
        return {"status": "unavailable", "reasons": [reason.value for reason in measured]}
    return {"status": "available", "value": number(measured)}


def _bounds(least: Measured, greatest: Measured) -> dict[str, object]:
    if isinstance(least, float) and isinstance(greatest, float):
        return {"min": number(least), "max": number(greatest)}
    # Where the worst order is available every order is, so the reasons are the worst order's.
    return _wire(least)


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
    return {"status": "available", "value": number(mean), "queryCount": query_count}


# Both operations say this in their results and on their tool pages.
CAUTIONS: Final = (
    "Do not claim exhaustive recall from partial labels.",
    "Report model-only and hybrid-system results separately.",
    "Relevance of what was returned says nothing about whether an answer used it faithfully.",
)

_SHARED: Final = (
    (
        "Missing evidence is not zero quality: a metric without its evidence is unavailable, with every reason that "
        "applies. An absent label is unknown, not non-relevant, even when the population is complete."
    ),
    (
        "The window is the first k returned positions. A unit counts once, at its first position; a repeat keeps its "
        "position and contributes nothing. Precision divides by k even when fewer units were returned."
    ),
    (
        "Relevant means gain of at least 1. nDCG uses linear gain and log2(rank + 1) discount; its ideal is the "
        "complete population by falling gain, truncated at k."
    ),
    (
        "An aggregate is the plain mean over every observation, and available only when every one of them is: no "
        "query is dropped."
    ),
)
_RANK: Final = (
    "Mean reciprocal rank is not the mean rank: a first relevant unit at rank 4 contributes 1/4. It has no cutoff: it "
    "looks at all that was returned, where precision, recall and nDCG are at k."
)
RANK_ENDS_AT_K: Final = (
    "Mean reciprocal rank is not the mean rank: a first relevant unit at rank 4 contributes 1/4. It ends at k here, as "
    "what the workflow returned does: a query whose first relevant unit stands below k contributes 0."
)
_TIES: Final = (
    "Tie bounds are the least and the greatest value over every order that equal scores allow. They are no "
    "model-versus-hybrid report: keep raw scores and tie policy in a separately reviewed protocol. Ordered ids alone "
    "cannot show how much of the ranking came from tie-breaking."
)
