"""Strict retrieval measurement: figures only where the supplied evidence suffices, and the reasons where not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Final

from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import metrics
from ranking_evaluate.core.errors import ErrorCode, Violation
from ranking_evaluate.core.evidence import METRICS, MetricName
from ranking_evaluate.operations.duplicates import refuse_duplicate
from ranking_evaluate.operations.fields import STRICT
from ranking_evaluate.operations.measurement import CAUTIONS, LABELS, RETURNED, Observation, Protocol, measure
from ranking_evaluate.operations.operation import GENERAL_ERROR_CODES, GENERAL_LIMITS, Operation
from ranking_evaluate.operations.results import Measurement

OBSERVATIONS: Final = 50


@with_config(STRICT)
class MeasurementInput(TypedDict):
    """What is measured, under which protocol, and which metrics are aggregated."""

    protocol: Protocol
    required: Annotated[
        list[MetricName],
        Field(
            min_length=1,
            max_length=len(METRICS),
            default=list(METRICS),
            json_schema_extra={"uniqueItems": True},
        ),
    ]
    observations: Annotated[list[Observation], Field(min_length=1, max_length=OBSERVATIONS)]


def evaluate(request: MeasurementInput) -> dict[str, object]:
    """Return each observation's figures with their evidence, and the required aggregates.

    Raises:
        OperationError: DUPLICATE_ID among the query ids, in one observation's labels or in what it returned with
            scores.
    """
    _refuse_duplicates(request["observations"])
    return measure(request["protocol"], request["observations"], request["required"])


def contradictions(request: MeasurementInput) -> Iterator[Violation]:
    """Yield where members of a valid input do not go together."""
    required = request["required"]
    for position, metric in enumerate(required):
        if metric in required[:position]:
            yield Violation(f"/required/{position}", "A metric is required twice.")
    for index, observation in enumerate(request["observations"]):
        here = f"/observations/{index}"
        if observation["labels"] is None and observation["populationComplete"]:
            yield Violation(f"{here}/populationComplete", "Without labels no population is known to be complete.")
        scores = observation.get("scores")
        if scores is None:
            if "tiePolicy" in observation:
                yield Violation(f"{here}/tiePolicy", "A tie policy goes with scores.")
            continue
        if len(scores) != len(observation["returned"]):
            yield Violation(f"{here}/scores", "There must be as many scores as returned units.")
        for position, (before, score) in enumerate(pairwise(map(float, scores)), 1):
            if score > before:
                yield Violation(f"{here}/scores/{position}", "A score must not be greater than the one before it.")


def _refuse_duplicates(observed: list[Observation]) -> None:
    refuse_duplicate(
        "Two observations have the same query id.", "/observations/{}/queryId", [one["queryId"] for one in observed]
    )
    for index, observation in enumerate(observed):
        refuse_duplicate(
            "A unit is labeled twice for one query.",
            f"/observations/{index}/labels/{{}}/id",
            [label["id"] for label in observation["labels"] or []],
        )
        # Of a repeated unit with two scores nobody could say where it stands among the ties.
        if "scores" in observation:
            refuse_duplicate(
                "A unit is returned twice for one query that has scores.",
                f"/observations/{index}/returned/{{}}",
                observation["returned"],
            )


_EXAMPLE_PIN: Final = "3f0a377ba0a4a460ecb616f6507ce0d8cfa3e704025d4fda3ed0c5ca05468728"

OPERATION: Final = Operation(
    id="retrieval-measure",
    name="Strict retrieval measurement",
    description=(
        "Measure what a retrieval system returned for up to 50 queries against explicit reference evidence: precision, "
        "recall and NDCG at k and reciprocal rank, each either available or unavailable with its reasons. Missing "
        "labels, partial scans, changed corpora and protocol mismatches never become zeros, an aggregate never drops a "
        "query, and supplied scores yield exact bounds over every order of their ties."
    ),
    category="data-assurance",
    input_type=MeasurementInput,
    evaluate=evaluate,
    result_type=Measurement,
    example_input={
        "protocol": {
            "method": "supplied",
            "corpus": {"id": "handbook", "sha256": _EXAMPLE_PIN},
            "cutoff": "2026-01-01T00:00:00Z",
            "retrievalUnit": "document",
            "k": 3,
            "referenceVersion": "v1",
        },
        "observations": [
            {
                "queryId": "q1",
                "corpus": {"id": "handbook", "sha256": _EXAMPLE_PIN},
                "cutoff": "2026-01-01T00:00:00Z",
                "retrievalUnit": "document",
                "k": 3,
                "referenceVersion": "v1",
                "returned": ["A", "X", "B"],
                "labels": [
                    {"id": "A", "gain": 1},
                    {"id": "B", "gain": 1},
                    {"id": "C", "gain": 1},
                    {"id": "X", "gain": 0},
                ],
                "populationComplete": True,
                "scan": "complete",
                "access": "permitted",
            }
        ],
    },
    short_input={
        "protocol": {
            "method": "supplied",
            "corpus": {"id": "c", "sha256": _EXAMPLE_PIN},
            "cutoff": "2026-01-01T00:00:00Z",
            "retrievalUnit": "document",
            "k": 1,
            "referenceVersion": "1",
        },
        "observations": [
            {
                "queryId": "q",
                "corpus": {"id": "c", "sha256": _EXAMPLE_PIN},
                "cutoff": "2026-01-01T00:00:00Z",
                "retrievalUnit": "document",
                "k": 1,
                "referenceVersion": "1",
                "returned": ["a"],
                "labels": [{"id": "a", "gain": 1}],
                "populationComplete": True,
                "scan": "complete",
                "access": "permitted",
            }
        ],
    },
    intents=(
        "measure retrieval precision recall ndcg mrr only where labels suffice",
        "tell missing relevance evidence from zero retrieval quality",
        "bound retrieval metrics over tied scores",
    ),
    when_not_to_use=(
        "Search documents or infer relevance",
        "Count unlabeled results as non-relevant: ranking-evaluate does that on request",
        "Claim exhaustive recall from partial labels",
    ),
    capabilities=(
        "unavailable rather than zero, with every reason",
        "aggregates that never drop a query",
        "exact metric bounds over score ties",
        "corpus, reference and protocol pins",
    ),
    related=("lexical-retrieval", "ranking-evaluate"),
    limits={
        **GENERAL_LIMITS,
        "observations": OBSERVATIONS,
        "returnedPerObservation": RETURNED,
        "labelsPerObservation": LABELS,
        "maximumK": metrics.MAXIMUM_K,
    },
    error_codes=(*GENERAL_ERROR_CODES, ErrorCode.DUPLICATE_ID),
    notes=(
        (
            "More evidence never makes a value unavailable, and an available value never depends on evidence that is "
            "absent. populationComplete says that every relevant unit is in labels; it does not label what was "
            "returned, so a returned unit that is known not to be relevant needs its label 0."
        ),
        (
            "Reciprocal rank has no cutoff: it looks at all of returned, and every unit before the first relevant one "
            "needs its label. Precision, recall and nDCG look at the first k positions."
        ),
        (
            "A repeated unit keeps its position in the window. Another reading removes repeats before it cuts: then "
            "[A, A, X, B] at k 3 with A and B relevant gives precision 2/3, where it is 1/3 here."
        ),
        *CAUTIONS,
    ),
    contradictions=contradictions,
    inline_bytes=6_144,
)
