"""Supplied ranking evaluation: graded metrics at k for ranked ids against the caller's own judgments."""

from __future__ import annotations

from itertools import count
from typing import Annotated, Final, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import metrics
from ranking_evaluate.core.canonical import number
from ranking_evaluate.core.duplicates import refuse_duplicate
from ranking_evaluate.core.rankings import Scored, averages, conventions, optional, score
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
    _refuse_duplicates(request["queries"])
    rankings = [_score(request, index) for index in range(len(request["queries"]))]
    macro, defined_query_counts = averages([ranking.scores for ranking in rankings])
    return {
        "profile": "supplied-ranking-evaluation-v1",
        "k": request["k"],
        "queryCount": len(rankings),
        "queries": [_row(query["id"], ranking) for query, ranking in zip(request["queries"], rankings, strict=True)],
        "macro": macro,
        "definedQueryCounts": defined_query_counts,
        "conventions": conventions(request["gain"]),
    }


def _score(request: Input, index: int) -> Scored:
    query = request["queries"][index]
    grade_by_id = {judgment["id"]: judgment["grade"] for judgment in query["judgments"]}
    return score(request, query["retrieved"], grade_by_id, f"/queries/{index}/retrieved")


def _row(query_id: str, ranking: Scored) -> dict[str, object]:
    """Return the figures of one query and their evidence."""
    scores = ranking.scores
    found = set(ranking.ids)
    return {
        "precisionAtK": number(scores.precision),
        "recallAtK": optional(scores.recall),
        "reciprocalRankAtK": optional(scores.reciprocal_rank),
        "averagePrecisionAtK": optional(scores.average_precision),
        "ndcgAtK": optional(scores.ndcg),
        "id": query_id,
        "relevantJudgmentCount": len(ranking.relevant_ids),
        "retrievedAtKCount": len(ranking.ids),
        "hitsAtK": scores.hits,
        "unjudgedAtKCount": ranking.unjudged_count,
        "dcgAtK": number(scores.dcg),
        "idealDcgAtK": number(scores.ideal_dcg),
        "missedRelevantIds": [document for document in ranking.relevant_ids if document not in found],
        "ranking": [
            {
                "rank": rank,
                "id": document,
                # An integer needs no care, and nearly every grade is one.
                "grade": grade if grade is None or type(grade) is int else number(grade),
                "relevant": is_relevant,
                "judged": grade is not None,
            }
            for rank, document, grade, is_relevant in zip(
                count(1), ranking.ids, ranking.grades, ranking.relevant, strict=False
            )
        ],
    }


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
