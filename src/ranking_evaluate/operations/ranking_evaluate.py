"""Supplied ranking evaluation: graded metrics at k for ranked ids against the caller's own judgments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal

import orjson
from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import metrics
from ranking_evaluate.core.canonical import number
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
from ranking_evaluate.operations.figures import Averages, DefinedQueryCounts, QueryFigures, averages, by_metric
from ranking_evaluate.operations.operation import GENERAL_LIMITS, Operation
from ranking_evaluate.operations.rankings import (
    Side,
    conventions,
    grades_by_id,
    grades_within_k,
    refuse_unjudged,
)
from ranking_evaluate.operations.results import CLOSED, Count


@with_config(STRICT)
class RankedQuery(TypedDict):
    """One query's ranking, best first, and its judgments in any order."""

    id: Id
    retrieved: Ranking
    judgments: Judgments


@with_config(STRICT)
class RankingInput(TypedDict):
    """What is scored, and by which conventions."""

    queries: Annotated[list[RankedQuery], Field(min_length=1, max_length=QUERIES)]
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
class ScoredQuery(QueryFigures):
    """One query's figures with their evidence."""

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


def evaluate(request: RankingInput) -> dict[str, object]:
    """Return each query's figures with their evidence, and the macro averages.

    Raises:
        OperationError: DUPLICATE_ID anywhere in the input; else UNJUDGED_DOCUMENT within k, unless those may be
            counted as non-relevant.
    """
    queries = request["queries"]
    rules = metrics.Rules(request["k"], request["relevantAtLeast"], request["gain"])
    retrieved = [query["retrieved"] for query in queries]
    judgments = grades_by_id(
        [query["id"] for query in queries],
        [query["judgments"] for query in queries],
        Side("retrieved", retrieved, "A document is retrieved twice for one query."),
    )
    rankings = grades_within_k(retrieved, judgments, rules.k)
    if request["unjudged"] == "error":
        for index, grades in enumerate(rankings):
            refuse_unjudged(grades, f"/queries/{index}/retrieved")
    judged = [metrics.judge(grade_by_id.values(), rules) for grade_by_id in judgments]
    scores = metrics.score(rankings, judged, rules)
    figures = by_metric(scores)
    means, counts = averages(figures)
    rows = _rows(retrieved, rankings, rules.relevant_at_least)
    return {
        "profile": "supplied-ranking-evaluation-v1",
        "k": rules.k,
        "queryCount": len(queries),
        "queries": [
            {
                **{name: number(values[index]) for name, values in figures.items()},
                "id": query["id"],
                "relevantJudgmentCount": judged[index].relevant_count,
                "retrievedAtKCount": len(rankings[index]),
                "hitsAtK": scores.hits[index],
                "unjudgedAtKCount": rankings[index].count(None),
                "dcgAtK": number(scores.dcg[index]),
                "idealDcgAtK": number(judged[index].ideal_dcg),
                "missedRelevantIds": _missed(retrieved[index], judgments[index], rules)
                if scores.hits[index] < judged[index].relevant_count
                else [],
                "ranking": rows[index],
            }
            for index, query in enumerate(queries)
        ],
        "macro": means,
        "definedQueryCounts": counts,
        "conventions": conventions(rules.gain),
    }


def _missed(retrieved: Sequence[str], grade_by_id: Mapping[str, float], rules: metrics.Rules) -> list[str]:
    """Return the relevant documents that do not stand within k, in judgment order."""
    within_k = set(retrieved[: rules.k])
    return [
        document
        for document, grade in grade_by_id.items()
        if grade >= rules.relevant_at_least and document not in within_k
    ]


# How the row of each rank begins, up to the text of the id.
_ROW_STARTS: Final = [f'{{"rank":{rank},"id":"' for rank in range(1, metrics.MAXIMUM_K + 1)]


def _rows(
    retrieved: Sequence[Sequence[str]], rankings: Sequence[Sequence[float | None]], relevant_at_least: float
) -> list[orjson.Fragment]:
    """Return the row of each rank within k (id, grade, relevant, judged), as a JSON array for each ranking.

    Rows are most of an answer. They are written as text, because with dictionaries `evaluate` takes 20 % longer at the
    typical and 50 % longer at the large size.
    """
    # Most ids stand in JSON as they are.
    if b"\\" in orjson.dumps(retrieved):
        retrieved = [[orjson.dumps(document)[1:-1].decode() for document in ranking] for ranking in retrieved]
    ends = {grade: _row_end(grade, relevant_at_least) for grade in set().union(*rankings)}
    written = []
    for ranking, grades in zip(retrieved, rankings, strict=True):
        rows = [
            start + document + ends[grade] for start, document, grade in zip(_ROW_STARTS, ranking, grades, strict=False)
        ]
        written.append(orjson.Fragment(f"[{','.join(rows)}]"))
    return written


@lru_cache(maxsize=1_024)
def _row_end(grade: float | None, relevant_at_least: float) -> str:
    """Return what a row says after the text of the id."""
    is_relevant = grade is not None and grade >= relevant_at_least
    members = {"grade": number(grade), "relevant": is_relevant, "judged": grade is not None}
    return '",' + orjson.dumps(members).decode().removeprefix("{")


OPERATION: Final = Operation(
    id="ranking-evaluate",
    name="Supplied ranking evaluation",
    description=(
        "Score ranked document IDs against caller-supplied graded judgments for up to 50 queries: precision/recall, "
        "reciprocal rank, truncated average precision and NDCG at k. Explicit gain, unjudged and zero-denominator "
        "conventions; evidence lists ranked judgments and missed relevant IDs. No search or relevance inference."
    ),
    category="data-assurance",
    input_type=RankingInput,
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
    counts={
        "evidence": (
            "the rows of evidence for a query, at most 100 ranked judgments and 100 missed relevant ids, none left out"
        ),
        "keyWorkBytes": "the bytes of keys to compare, which no input within the other limits exceeds",
        "matchingSteps": "the steps of matching ids, which no input within the other limits exceeds",
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
    inline_bytes=8_192,
)
