"""Supplied ranking evaluation: graded metrics at k for ranked ids against the caller's own judgments."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import metrics
from ranking_evaluate.core.canonical import number
from ranking_evaluate.core.duplicates import Rankings, grades_by_id
from ranking_evaluate.core.rankings import (
    METRICS,
    averages,
    by_metric,
    conventions,
    judge,
    missed,
    rows,
    score,
)
from ranking_evaluate.operations.fields import (
    JUDGMENTS,
    QUERIES,
    RETRIEVED,
    STRICT,
    GainFunction,
    Id,
    Judgments,
    K,
    Ranking,
    RelevantAtLeast,
    Unjudged,
)
from ranking_evaluate.operations.operation import GENERAL_LIMITS, Operation
from ranking_evaluate.operations.results import CLOSED, Averages, Count, DefinedQueryCounts


@with_config(STRICT)
class Query(TypedDict):
    """One query's ranking, best first, and its judgments in any order."""

    id: Id
    retrieved: Ranking
    judgments: Judgments


@with_config(STRICT)
class Input(TypedDict):
    """What is scored, and by which conventions."""

    queries: Annotated[list[Query], Field(min_length=1, max_length=QUERIES)]
    k: K
    relevantAtLeast: RelevantAtLeast
    gain: GainFunction
    unjudged: Unjudged


@with_config(CLOSED)
class Ranked(TypedDict):
    """One position within k."""

    rank: Count
    id: str
    grade: float | None
    relevant: bool
    judged: bool


@with_config(CLOSED)
class ScoredQuery(TypedDict):
    """One query's figures with their evidence."""

    precisionAtK: float
    recallAtK: float | None
    reciprocalRankAtK: float | None
    averagePrecisionAtK: float | None
    ndcgAtK: float | None
    id: str
    relevantJudgmentCount: Count
    retrievedAtKCount: Count
    hitsAtK: Count
    unjudgedAtKCount: Count
    dcgAtK: float
    idealDcgAtK: float
    missedRelevantIds: list[str]
    ranking: list[Ranked]


@with_config(CLOSED)
class Result(TypedDict):
    """What the evaluation answers."""

    profile: Literal["supplied-ranking-evaluation-v1"]
    k: Count
    queryCount: Count
    queries: list[ScoredQuery]
    macro: Averages
    definedQueryCounts: DefinedQueryCounts
    conventions: list[str]


def evaluate(request: Input) -> dict[str, object]:
    """Return each query's figures with their evidence, and the macro averages.

    Raises:
        OperationError: DUPLICATE_ID anywhere in the input; else UNJUDGED_DOCUMENT within k, unless those may be
            counted as non-relevant.
    """
    queries = request["queries"]
    rankings = [query["retrieved"] for query in queries]
    twice = "A document is retrieved twice for one query."
    judged = judge(request, grades_by_id(queries, Rankings("retrieved", rankings, twice)))
    scored = score(request, zip(rankings, judged, strict=True), "/queries/{}/retrieved".format)
    means, counts = averages(scored)
    return {
        "profile": "supplied-ranking-evaluation-v1",
        "k": request["k"],
        "queryCount": len(queries),
        "queries": [
            {
                "precisionAtK": number(precision),
                "recallAtK": number(recall),
                "reciprocalRankAtK": number(reciprocal_rank),
                "averagePrecisionAtK": number(average_precision),
                "ndcgAtK": number(ndcg),
                "id": query["id"],
                "relevantJudgmentCount": relevant_count,
                "retrievedAtKCount": len(grades),
                "hitsAtK": hits,
                "unjudgedAtKCount": grades.count(None),
                "dcgAtK": number(dcg),
                "idealDcgAtK": number(ideal_dcg),
                "missedRelevantIds": missed(request, query["retrieved"], grade_by_id) if hits < relevant_count else [],
                "ranking": ranking,
            }
            for (
                query,
                (grade_by_id, relevant_count, ideal_dcg),
                (precision, recall, reciprocal_rank, average_precision, ndcg, dcg, hits, grades),
                ranking,
            ) in zip(queries, judged, scored, rows(request, rankings, scored), strict=True)
        ],
        "macro": by_metric(means),
        "definedQueryCounts": dict(zip(METRICS, counts, strict=True)),
        "conventions": conventions(request["gain"]),
    }


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
    result_type=Result,
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
