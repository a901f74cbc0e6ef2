"""What the result types of several operations are made of."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core.canonical import EXACT_INTEGERS
from ranking_evaluate.core.evidence import Reason
from ranking_evaluate.operations.fields import Gain, Sha256

# A result has the members that are written here and no others.
CLOSED: Final = ConfigDict(extra="forbid")

Count = Annotated[int, Field(ge=0, le=EXACT_INTEGERS - 1)]


# TIES_CUT is said of tie bounds alone.
EvidenceReason = Literal[
    Reason.PARTIAL_SCAN,
    Reason.PERMISSION_VIOLATION,
    Reason.MISSING_REFERENCE_SET,
    Reason.CORPUS_CHANGED,
    Reason.REFERENCE_VERSION_MISMATCH,
    Reason.PROTOCOL_MISMATCH,
    Reason.UNLABELED_RETURNED_UNIT,
    Reason.INCOMPLETE_POPULATION,
    Reason.NO_RELEVANT_POPULATION,
]


@with_config(CLOSED)
class Available(TypedDict):
    """A metric whose evidence is there."""

    status: Literal["available"]
    value: float


@with_config(CLOSED)
class Unavailable(TypedDict):
    """A metric whose evidence is missing, with every reason that applies."""

    status: Literal["unavailable"]
    reasons: Annotated[list[EvidenceReason], Field(min_length=1)]


@with_config(CLOSED)
class Metrics(TypedDict):
    """The four metrics of one observation."""

    precision: Available | Unavailable
    recall: Available | Unavailable
    ndcg: Available | Unavailable
    reciprocalRank: Available | Unavailable


@with_config(CLOSED)
class Bounds(TypedDict):
    """The least and the greatest value over every order that tied scores allow."""

    min: float
    max: float


@with_config(CLOSED)
class NoBounds(TypedDict):
    """Bounds that the evidence does not give."""

    status: Literal["unavailable"]
    reasons: Annotated[list[Literal[Reason.UNLABELED_RETURNED_UNIT, Reason.TIES_CUT]], Field(min_length=1)]


@with_config(CLOSED)
class TieBounds(TypedDict):
    """Bounds of each metric that is available in the supplied order."""

    precision: NotRequired[Bounds | NoBounds]
    recall: NotRequired[Bounds | NoBounds]
    ndcg: NotRequired[Bounds | NoBounds]
    reciprocalRank: NotRequired[Bounds | NoBounds]


@with_config(CLOSED)
class Ranked(TypedDict):
    """One position of the window."""

    rank: Count
    id: str
    gain: Gain | None
    labeled: bool
    duplicate: bool


@with_config(CLOSED)
class MeasuredObservation(TypedDict):
    """One observation's figures with their evidence."""

    queryId: str
    metrics: Metrics
    relevantPopulationCount: Count | None
    returnedInWindowCount: Count
    duplicateReturnedCount: Count
    unlabeledCount: Count
    missedRelevantIds: list[str]
    ranking: list[Ranked]
    tiePolicy: NotRequired[str]
    tieBounds: NotRequired[TieBounds]


@with_config(CLOSED)
class AvailableMean(TypedDict):
    """A mean over every observation."""

    status: Literal["available"]
    value: float
    queryCount: Count


@with_config(CLOSED)
class UnavailableMean(TypedDict):
    """A mean that does not exist, and for how many observations which evidence is missing."""

    status: Literal["unavailable"]
    queryCount: Count
    missingCount: Count
    reasons: dict[EvidenceReason, Count]


@with_config(CLOSED)
class Aggregates(TypedDict):
    """The required aggregates."""

    precision: NotRequired[AvailableMean | UnavailableMean]
    recall: NotRequired[AvailableMean | UnavailableMean]
    ndcg: NotRequired[AvailableMean | UnavailableMean]
    meanReciprocalRank: NotRequired[AvailableMean | UnavailableMean]


@with_config(CLOSED)
class Measurement(TypedDict):
    """What strict measuring answers."""

    profile: Literal["explicit-reference-evidence-v1"]
    protocolSha256: Sha256
    observationSetSha256: Sha256
    observations: list[MeasuredObservation]
    aggregates: Aggregates
    conventions: list[str]
