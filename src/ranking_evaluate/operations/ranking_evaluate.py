"""Supplied ranking evaluation: graded metrics at k for ranked ids against the caller's own judgments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Annotated, Final, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import metrics
from ranking_evaluate.core.canonical import Number, number
from ranking_evaluate.core.duplicates import refuse_duplicate
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations.fields import STRICT, Id
from ranking_evaluate.operations.operation import GENERAL_LIMITS, Operation

QUERIES: Final = 50
RETRIEVED: Final = 100
JUDGMENTS: Final = 100


@with_config(STRICT)
class Judgment(TypedDict):
    """How relevant one document is to the query."""

    id: Id
    grade: Annotated[float, Field(ge=0, le=10)]


@with_config(STRICT)
class Query(TypedDict):
    """One query's ranking, best first, and its judgments in any order."""

    id: Id
    retrieved: Annotated[list[Id], Field(max_length=RETRIEVED)]
    judgments: Annotated[list[Judgment], Field(max_length=JUDGMENTS)]


@with_config(STRICT)
class Input(TypedDict):
    """What is scored, and by which conventions."""

    queries: Annotated[list[Query], Field(min_length=1, max_length=QUERIES)]
    k: Annotated[int, Field(ge=1, le=metrics.MAXIMUM_K, default=10)]
    relevantAtLeast: Annotated[float, Field(gt=0, le=10, default=1)]
    gain: Annotated[Literal["linear", "exponential"], Field(default="linear")]
    unjudged: Annotated[Literal["error", "nonrelevant"], Field(default="error")]


Gains = Callable[[Iterable[float | None]], list[float]]
GAINS: Final[dict[str, Gains]] = {"linear": metrics.linear_gains, "exponential": metrics.exponential_gains}

# The averaged metrics: their names on the wire, in order, are those of the first fields of `metrics.Scores`.
METRICS: Final = ("precisionAtK", "recallAtK", "reciprocalRankAtK", "averagePrecisionAtK", "ndcgAtK")


def evaluate(request: Input) -> dict[str, object]:
    """Return each query's figures with their evidence, and the macro averages.

    Raises:
        OperationError: DUPLICATE_ID anywhere in the input; else UNJUDGED_DOCUMENT within k, unless those may be
            counted as non-relevant.
    """
    _refuse_duplicates(request["queries"])
    scored = [_score(request, index) for index in range(len(request["queries"]))]
    averages = [metrics.mean(scores[position] for scores, _ in scored) for position in range(len(METRICS))]
    return {
        "profile": "supplied-ranking-evaluation-v1",
        "k": request["k"],
        "queryCount": len(scored),
        "queries": [row for _, row in scored],
        "macro": {name: _number(average) for name, (average, _) in zip(METRICS, averages, strict=True)},
        "definedQueryCounts": {name: count for name, (_, count) in zip(METRICS, averages, strict=True)},
        "conventions": _conventions(request["gain"]),
    }


def _score(request: Input, index: int) -> tuple[metrics.Scores, dict[str, object]]:
    """Return the figures of one query, and its row of the result."""
    query = request["queries"][index]
    k = request["k"]
    threshold = request["relevantAtLeast"]
    to_gains = GAINS[request["gain"]]

    grade_by_id = {judgment["id"]: judgment["grade"] for judgment in query["judgments"]}
    # What stands below rank k is not looked at: no figure depends on it, so it may be unjudged.
    retrieved = query["retrieved"][:k]
    grades = [grade_by_id.get(document) for document in retrieved]
    unjudged_count = grades.count(None)
    if unjudged_count and request["unjudged"] == "error":
        raise OperationError(
            ErrorCode.UNJUDGED_DOCUMENT,
            'A document within the top k has no judgment; supply one, or send "unjudged": "nonrelevant".',
            f"/queries/{index}/retrieved/{grades.index(None)}",
        )

    relevant = [grade is not None and grade >= threshold for grade in grades]
    relevant_ids = [document for document, grade in grade_by_id.items() if grade >= threshold]
    scores = metrics.score(relevant, len(relevant_ids), to_gains(grades), to_gains(grade_by_id.values()), k)
    found = set(retrieved)
    row: dict[str, object] = {
        "precisionAtK": number(scores.precision),
        "recallAtK": _number(scores.recall),
        "reciprocalRankAtK": _number(scores.reciprocal_rank),
        "averagePrecisionAtK": _number(scores.average_precision),
        "ndcgAtK": _number(scores.ndcg),
        "id": query["id"],
        "relevantJudgmentCount": len(relevant_ids),
        "retrievedAtKCount": len(retrieved),
        "hitsAtK": scores.hits,
        "unjudgedAtKCount": unjudged_count,
        "dcgAtK": number(scores.dcg),
        "idealDcgAtK": number(scores.ideal_dcg),
        "missedRelevantIds": [document for document in relevant_ids if document not in found],
        "ranking": [
            {
                "rank": rank,
                "id": document,
                # An integer needs no care, and nearly every grade is one.
                "grade": grade if grade is None or type(grade) is int else number(grade),
                "relevant": is_relevant,
                "judged": grade is not None,
            }
            for rank, document, grade, is_relevant in zip(count(1), retrieved, grades, relevant, strict=False)
        ],
    }
    return scores, row


def _conventions(gain: str) -> tuple[str, ...]:
    return (
        (
            "Precision denominator is k even when fewer results are supplied. Recall and truncated AP denominators use "
            "all supplied relevant judgments; reciprocal rank is truncated at k."
        ),
        (
            f"DCG uses {gain} gain and log2(rank + 1) discount. Ideal DCG uses all supplied judgments sorted by grade, "
            "truncated at k."
        ),
        (
            "No-relevant-judgment recall, reciprocal rank and AP are null; zero-ideal-gain NDCG is null. Macro "
            "averages exclude nulls and report denominators."
        ),
        (
            "Evaluation uses supplied judgments only. It does not retrieve documents, judge semantic relevance, or "
            "establish complete relevance coverage."
        ),
    )


def _number(value: float | None) -> Number | None:
    return None if value is None else number(value)


def _refuse_duplicates(queries: list[Query]) -> None:
    """Raise DUPLICATE_ID at the second of two equal ids among the queries, in one ranking or in its judgments."""
    refuse_duplicate("Two queries have the same id.", "/queries/{}/id", [query["id"] for query in queries])
    for index, query in enumerate(queries):
        refuse_duplicate(
            "A document is retrieved twice for one query.", f"/queries/{index}/retrieved/{{}}", query["retrieved"]
        )
        refuse_duplicate(
            "A document is judged twice for one query.",
            f"/queries/{index}/judgments/{{}}/id",
            [judgment["id"] for judgment in query["judgments"]],
        )


OPERATION: Final = Operation(
    id="ranking-evaluate",
    name="Supplied ranking evaluation",
    description=(
        "Score ranked document IDs against caller-supplied graded judgments for up to 50 queries: precision/recall, "
        "reciprocal rank, truncated average precision and NDCG at k. Explicit gain, unjudged and zero-denominator "
        "conventions; evidence lists ranked judgments and missed relevant IDs. No search or relevance inference."
    ),
    category="data-assurance",
    input_type=Input,
    evaluate=evaluate,
    example_input={
        "queries": [
            {
                "id": "q1",
                "retrieved": ["b", "a", "c"],
                "judgments": [
                    {"id": "a", "grade": 3},
                    {"id": "b", "grade": 1},
                    {"id": "c", "grade": 0},
                    {"id": "d", "grade": 2},
                ],
            }
        ],
        "k": 3,
    },
    intents=(
        "evaluate retrieval ranking ndcg map mrr precision recall at k",
        "score search results against supplied relevance judgments",
        "compare RAG retrieval quality using judged document ids",
    ),
    when_not_to_use=(
        "Search the web or determine semantic document relevance",
        "Claim benchmark completeness from partial judgments",
    ),
    capabilities=(
        "graded ranking metrics",
        "explicit unjudged handling",
        "linear or exponential gain",
        "query-level metric evidence",
    ),
    related=("classification-evaluate", "span-evaluate"),
    limits={
        **GENERAL_LIMITS,
        "evidence": 200,
        "keyWorkBytes": 3_000_000,
        "matchingSteps": 2_000_000,
        "queries": QUERIES,
        "retrievedPerQuery": RETRIEVED,
        "judgmentsPerQuery": JUDGMENTS,
        "maximumK": metrics.MAXIMUM_K,
    },
    error_codes=(
        "INPUT_LIMIT",
        "OUTPUT_LIMIT",
        "COMPLEXITY_LIMIT",
        "UNSAFE_KEY",
        "INVALID_NUMBER",
        "INVALID_POINTER",
        "DUPLICATE_ID",
        "DUPLICATE_FIELD",
        "INVALID_RULE",
        "KEY_WORK_LIMIT",
        "LABEL_LIMIT",
        "UNJUDGED_DOCUMENT",
        "INVALID_SPAN",
        "DUPLICATE_SPAN",
        "INVALID_UNICODE",
        "MATCHING_LIMIT",
        "INVALID_CADENCE",
        "INVALID_INTERVAL",
        "NUMERIC_OVERFLOW",
    ),
)
