"""The rank of the first usable hit of each query, and the mean of 1/rank as an exact reduced fraction."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Final, NamedTuple

from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core.canonical import JsonValue
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations.fields import STRICT, Id
from ranking_evaluate.operations.operation import GENERAL_ERROR_CODES, GENERAL_LIMITS, Operation
from ranking_evaluate.operations.results import CLOSED, Count

QUERIES: Final = 10
HITS: Final = 10


@with_config(STRICT)
class UsableQuery(TypedDict):
    """One query's hits, best first, and the ids that are usable for it; an empty array says that none is."""

    hits: Annotated[list[Id], Field(max_length=HITS)]
    usable: list[Id]


@with_config(STRICT)
class UsableInput(TypedDict):
    """The queries that are averaged."""

    queries: Annotated[list[UsableQuery], Field(max_length=QUERIES)]


@with_config(CLOSED)
class Result(TypedDict):
    """The rank of each query's first usable hit, and the mean of 1/rank as a reduced fraction."""

    ranks: list[Count | None]
    numerator: Count
    denominator: Count


class Case(NamedTuple):
    """One case of the answer key."""

    id: str
    input: dict[str, JsonValue]
    expected: dict[str, JsonValue]
    reason: str


CASES: Final = (
    Case(
        "two-ranks",
        {"queries": [{"hits": ["X", "D"], "usable": ["D"]}, {"hits": ["A", "B", "C", "E"], "usable": ["E"]}]},
        {"ranks": [2, 4], "numerator": 3, "denominator": 8},
        "Scored: ranks two and four; (1/2 + 1/4) / 2 is 3/8.",
    ),
    Case(
        "one-miss",
        {"queries": [{"hits": ["D"], "usable": ["D"]}, {"hits": ["X"], "usable": ["E"]}]},
        {"ranks": [1, None], "numerator": 1, "denominator": 2},
        "Scored: one query has no useful hit; it counts zero and stays in the average.",
    ),
    Case(
        "missing-usable-channel",
        {"queries": [{"hits": []}]},
        {"error": "usable-labels"},
        "Refused: the usable labels are absent, so what is usable is unknown, even with no hits.",
    ),
    Case(
        "no-queries",
        {"queries": []},
        {"ranks": [], "numerator": 0, "denominator": 0},
        "Scored: without queries no average is established; 0/0 is never a perfect score.",
    ),
)


def evaluate(request: UsableInput) -> dict[str, object]:
    """Return the rank of each query's first usable hit, None for a miss, and their mean reciprocal as a fraction."""
    ranks = [_first_usable(query) for query in request["queries"]]
    if not ranks:
        return {"ranks": [], "numerator": 0, "denominator": 0}
    total = sum((Fraction(1, rank) for rank in ranks if rank is not None), Fraction())
    mean = total / len(ranks)
    return {"ranks": ranks, "numerator": mean.numerator, "denominator": mean.denominator}


def score(value: JsonValue) -> dict[str, object]:
    """Return the result of an input, or `{"error": code}` for one that is refused: the answer key's own form."""
    try:
        return evaluate(OPERATION.accept(value))
    except OperationError as error:
        return {"error": error.code.value}


def _first_usable(query: UsableQuery) -> int | None:
    usable = set(query["usable"])
    return next((rank for rank, hit in enumerate(query["hits"], 1) if hit in usable), None)


def precheck(value: Mapping[str, JsonValue]) -> None:
    """Raise usable-labels, else score-bounds, each over the whole input, before the schema is looked at."""
    queries = value.get("queries")
    if not isinstance(queries, list):
        raise _usable_labels("/queries")
    ranked: list[list[JsonValue]] = []
    for index, query in enumerate(queries):
        hits, usable = (query.get("hits"), query.get("usable")) if isinstance(query, dict) else (None, None)
        if not isinstance(hits, list) or not isinstance(usable, list):
            raise _usable_labels(f"/queries/{index}")
        ranked.append(hits)
    if len(queries) > QUERIES:
        raise _score_bounds("/queries")
    for index, hits in enumerate(ranked):
        if len(hits) > HITS:
            raise _score_bounds(f"/queries/{index}/hits")


def _usable_labels(pointer: str) -> OperationError:
    return OperationError(
        ErrorCode.USABLE_LABELS,
        "The input needs an array of queries, each with an array of hits and an array of usable ids.",
        pointer,
    )


def _score_bounds(pointer: str) -> OperationError:
    return OperationError(
        ErrorCode.SCORE_BOUNDS, f"At most {QUERIES} queries of at most {HITS} hits are scored.", pointer
    )


OPERATION: Final = Operation(
    id="first-usable-rank",
    name="First usable rank",
    description=(
        "Locate the first usable hit of up to 10 queries with up to 10 hits each, and average 1/rank as an exact "
        "reduced fraction. A miss counts zero and stays in the average; absent labels are an error, not a miss; no "
        "queries establish no average. A supplied scoring rule: not a release threshold, and no statement about "
        "answers."
    ),
    category="data-assurance",
    input_type=UsableInput,
    evaluate=evaluate,
    result_type=Result,
    example_input=CASES[0].input,
    intents=(
        "find the rank of the first usable search result",
        "exact mean reciprocal rank as a fraction",
        "score retrieval hits against usable labels",
    ),
    when_not_to_use=(
        "Graded relevance, recall or NDCG",
        "Decide which results are usable",
        "Measure answers, freshness or task completion",
    ),
    capabilities=(
        "exact fractions, no rounding",
        "misses kept in the average",
        "absent labels refused",
        "self-checking examples in Python and JavaScript",
    ),
    related=("ranking-evaluate", "retrieval-measure"),
    limits={**GENERAL_LIMITS, "queries": QUERIES, "hitsPerQuery": HITS},
    error_codes=(*GENERAL_ERROR_CODES, ErrorCode.USABLE_LABELS, ErrorCode.SCORE_BOUNDS),
    notes=(
        (
            "Retain the result order, the usable labels and the score definition together. A high position score does "
            "not measure answer correctness, document freshness or staff task completion."
        ),
        (
            'Exercise: an evaluation run ends with {"queries": []}. What is its score? Answer: '
            '{"ranks": [], "numerator": 0, "denominator": 0}. Nothing was asked, so no average is established: 0/0 is '
            "neither a zero nor a perfect score, and a report must not turn it into either."
        ),
    ),
    precheck=precheck,
    inline_bytes=8_192,
)
