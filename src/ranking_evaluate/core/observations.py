"""What strict measuring is about, as on the wire: protocol, observations, metrics, reasons and conventions."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NotRequired, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

MAXIMUM_RETURNED: Final = 100

MetricName: TypeAlias = Literal["precision", "recall", "ndcg", "reciprocalRank"]
METRICS: Final[tuple[MetricName, ...]] = ("precision", "recall", "ndcg", "reciprocalRank")
AGGREGATES: Final[Mapping[MetricName, str]] = {
    "precision": "precision",
    "recall": "recall",
    "ndcg": "ndcg",
    "reciprocalRank": "meanReciprocalRank",
}


class Corpus(TypedDict):
    """A corpus and the digest of its state."""

    id: str
    sha256: str


class Protocol(TypedDict):
    """What every observation must have in common, as on the wire."""

    method: Literal["supplied", "lexical"]
    corpus: Corpus
    cutoff: str
    retrievalUnit: str
    k: int
    referenceVersion: str


class Label(TypedDict):
    """The gain of one unit, 0 to 4."""

    id: str
    gain: int


class Observation(TypedDict):
    """What one query returned, and the evidence there is about it, as on the wire.

    With `scores` there are as many as `returned`, they do not rise, and `returned` is distinct.
    """

    queryId: str
    corpus: Corpus
    cutoff: str
    retrievalUnit: str
    k: int
    referenceVersion: str
    returned: list[str]
    labels: list[Label] | None
    populationComplete: bool
    scan: Literal["complete", "partial"]
    access: Literal["permitted", "violation"]
    scores: NotRequired[list[float]]
    tiePolicy: NotRequired[str]


class Reason(StrEnum):
    """Why a metric is unavailable, in the order in which reasons are listed."""

    PARTIAL_SCAN = "PARTIAL_SCAN"
    PERMISSION_VIOLATION = "PERMISSION_VIOLATION"
    MISSING_REFERENCE_SET = "MISSING_REFERENCE_SET"
    CORPUS_CHANGED = "CORPUS_CHANGED"
    REFERENCE_VERSION_MISMATCH = "REFERENCE_VERSION_MISMATCH"
    PROTOCOL_MISMATCH = "PROTOCOL_MISMATCH"
    UNLABELED_RETURNED_UNIT = "UNLABELED_RETURNED_UNIT"
    INCOMPLETE_POPULATION = "INCOMPLETE_POPULATION"
    NO_RELEVANT_POPULATION = "NO_RELEVANT_POPULATION"
    # The only one that speaks of tie bounds alone.
    TIES_CUT = "TIES_CUT"


# Both operations and their tool pages say this.
CAUTIONS: Final = (
    "Do not claim exhaustive recall from partial labels.",
    "Report model-only and hybrid-system results separately.",
    "Relevance of what was returned says nothing about whether an answer used it faithfully.",
)

CONVENTIONS: Final = (
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
    (
        "Mean reciprocal rank is not the mean rank: a first relevant unit at rank 4 contributes 1/4. It is cut at k "
        "here: a query whose first relevant unit stands below k contributes 0."
    ),
    (
        "Tie bounds are the least and the greatest value over every order that equal scores allow. They are no "
        "model-versus-hybrid report: keep raw scores and tie policy in a separately reviewed protocol. Ordered ids "
        "alone cannot show how much of the ranking came from tie-breaking."
    ),
    *CAUTIONS,
)
