"""Paired ranking comparison: which of two rankings is better, by how much, and whether the data could tell at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import metrics, paired
from ranking_evaluate.core.canonical import JsonValue, number
from ranking_evaluate.core.errors import ErrorCode
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
from ranking_evaluate.operations.figures import Averages, DefinedQueryCounts, Metric, averages, by_metric
from ranking_evaluate.operations.operation import GENERAL_ERROR_CODES, GENERAL_LIMITS, Operation
from ranking_evaluate.operations.rankings import (
    Side,
    conventions,
    grades_by_id,
    grades_within_k,
    refuse_unjudged,
)
from ranking_evaluate.operations.results import CLOSED, Count

SIDES: Final[tuple[Literal["baseline"], Literal["candidate"]]] = ("baseline", "candidate")

DecidingTest: TypeAlias = Literal["randomization", "wilcoxonSignedRank"]
Verdict: TypeAlias = Literal["candidate-better", "baseline-better", "no-difference-shown", "unresolvable"]


@with_config(STRICT)
class ComparisonQuery(TypedDict):
    """One query's two rankings, best first, and the judgments that both are held against, in any order."""

    id: Id
    baseline: Ranking
    candidate: Ranking
    judgments: Judgments


@with_config(STRICT)
class ComparisonInput(TypedDict):
    """What is compared, by which conventions and metric, and which p-value is small enough."""

    queries: Annotated[list[ComparisonQuery], Field(min_length=1, max_length=QUERIES)]
    k: K
    relevantAtLeast: RelevantAtLeast
    gain: GainFunction
    unjudged: Unjudged
    metric: Annotated[Metric, Field(default="ndcgAtK")]
    alpha: Annotated[float, Field(gt=0, lt=1, default=0.05)]


@with_config(CLOSED)
class ComparedQuery(TypedDict):
    """One query's figures of both sides, null where the metric is undefined."""

    id: str
    baseline: float | None
    candidate: float | None
    difference: float | None
    baselineUnjudgedAtKCount: Count
    candidateUnjudgedAtKCount: Count


@with_config(CLOSED)
class Paired(TypedDict):
    """The differences over the queries where the metric is defined."""

    definedQueryCount: Count
    meanDifference: float | None
    wins: Count
    losses: Count
    ties: Count


@with_config(CLOSED)
class AvailableTest(TypedDict):
    """A test with its exact two-sided p-value."""

    status: Literal["available"]
    pValue: float
    statistic: float
    informativeQueryCount: Count


@with_config(CLOSED)
class UnavailableTest(TypedDict):
    """A test without anything to test."""

    status: Literal["unavailable"]
    reasons: Annotated[list[Literal["NO_DEFINED_PAIRS", "NO_INFORMATIVE_PAIRS"]], Field(min_length=1)]


@with_config(CLOSED)
class UnavailableRandomization(TypedDict):
    """A randomization test without anything to test, or with too much of it to look at every sign pattern."""

    status: Literal["unavailable"]
    reasons: Annotated[
        list[Literal["NO_DEFINED_PAIRS", "NO_INFORMATIVE_PAIRS", "TOO_MANY_INFORMATIVE_PAIRS"]], Field(min_length=1)
    ]


@with_config(CLOSED)
class Tests(TypedDict):
    """The three tests."""

    signTest: AvailableTest | UnavailableTest
    wilcoxonSignedRank: AvailableTest | UnavailableTest
    randomization: AvailableTest | UnavailableRandomization


@with_config(CLOSED)
class Result(TypedDict):
    """What the comparison answers."""

    profile: Literal["paired-ranking-comparison-v1"]
    k: Count
    metric: Metric
    queryCount: Count
    queries: list[ComparedQuery]
    baseline: Averages
    candidate: Averages
    paired: Paired
    tests: Tests
    smallestAttainableP: float | None
    definedQueryCounts: DefinedQueryCounts
    alpha: float
    decidedBy: DecidingTest | None
    verdict: Verdict
    conventions: list[str]


class Pair(NamedTuple):
    """One query's figures of both sides, where the metric is defined.

    `scaled` is the difference in units of 10^-12: all that wins, ties, ranks and signs depend on.
    """

    baseline: float
    candidate: float
    scaled: int

    @property
    def difference(self) -> float:
        """What the candidate scores more; 0 when what differs is only rounding."""
        return self.candidate - self.baseline if self.scaled else 0.0


def evaluate(request: ComparisonInput) -> dict[str, object]:
    """Return both sides' figures, their paired differences, the tests of these and the verdict.

    Raises:
        OperationError: DUPLICATE_ID anywhere in the input; else UNJUDGED_DOCUMENT within k of either side, unless those
            may be counted as non-relevant.
    """
    queries = request["queries"]
    rules = metrics.Rules(request["k"], request["relevantAtLeast"], request["gain"])
    sides = [
        Side(side, [query[side] for query in queries], f"A document is ranked twice in the {side} of one query.")
        for side in SIDES
    ]
    judgments = grades_by_id([query["id"] for query in queries], [query["judgments"] for query in queries], *sides)
    judged = [metrics.judge(grade_by_id.values(), rules) for grade_by_id in judgments]
    baseline, candidate = (grades_within_k(side.rankings, judgments, rules.k) for side in sides)
    if request["unjudged"] == "error":
        for index in range(len(queries)):
            refuse_unjudged(baseline[index], f"/queries/{index}/baseline")
            refuse_unjudged(candidate[index], f"/queries/{index}/candidate")
    baselines = by_metric(metrics.score(baseline, judged, rules))
    candidates = by_metric(metrics.score(candidate, judged, rules))
    pairs = [*map(_pair, baselines[request["metric"]], candidates[request["metric"]])]
    defined = [pair for pair in pairs if pair is not None]
    informative = [pair.scaled for pair in defined if pair.scaled]
    mean_difference, _ = metrics.mean(pair.difference for pair in defined)
    baseline_means, counts = averages(baselines)
    # Whether a metric is defined depends on the judgments alone, which both sides share.
    candidate_means, _ = averages(candidates)
    return {
        "profile": "paired-ranking-comparison-v1",
        "k": rules.k,
        "metric": request["metric"],
        "queryCount": len(queries),
        "queries": [
            {
                "id": query["id"],
                "baseline": number(baselines[request["metric"]][index]),
                "candidate": number(candidates[request["metric"]][index]),
                "difference": None if pair is None else number(pair.difference),
                "baselineUnjudgedAtKCount": baseline[index].count(None),
                "candidateUnjudgedAtKCount": candidate[index].count(None),
            }
            for index, (query, pair) in enumerate(zip(queries, pairs, strict=True))
        ],
        "baseline": baseline_means,
        "candidate": candidate_means,
        "paired": {
            "definedQueryCount": len(defined),
            "meanDifference": number(mean_difference),
            "wins": sum(difference > 0 for difference in informative),
            "losses": sum(difference < 0 for difference in informative),
            "ties": len(defined) - len(informative),
        },
        **_findings(informative, mean_difference, counts, request["alpha"]),
        "conventions": (*conventions(rules.gain), *CONVENTIONS),
    }


def _pair(baseline: float | None, candidate: float | None) -> Pair | None:
    if baseline is None or candidate is None:
        return None
    return Pair(baseline, candidate, paired.scaled(candidate - baseline))


def _findings(
    informative: Sequence[int], mean_difference: float | None, defined_query_counts: Mapping[Metric, int], alpha: float
) -> dict[str, object]:
    """Return the tests, what they could show at best, and the verdict."""
    smallest = None if mean_difference is None else paired.smallest_attainable(len(informative))
    tests, decided_by, verdict = _tested(informative, mean_difference, alpha)
    return {
        "tests": tests,
        "smallestAttainableP": number(smallest),
        "definedQueryCounts": defined_query_counts,
        "alpha": number(alpha),
        "decidedBy": decided_by,
        "verdict": verdict,
    }


def _tested(
    informative: Sequence[int], mean_difference: float | None, alpha: float
) -> tuple[dict[str, object], DecidingTest | None, Verdict]:
    if mean_difference is None or not informative:
        unavailable = _unavailable("NO_DEFINED_PAIRS" if mean_difference is None else "NO_INFORMATIVE_PAIRS")
        return dict.fromkeys(("signTest", "wilcoxonSignedRank", "randomization"), unavailable), None, "unresolvable"

    count = len(informative)
    wins = sum(difference > 0 for difference in informative)
    wilcoxon = paired.wilcoxon(informative)
    tests: dict[str, object] = {
        "signTest": _available(paired.sign_test(wins, count - wins), wins, count),
        "wilcoxonSignedRank": _available(wilcoxon.p_value, wilcoxon.plus, count),
    }
    if count <= paired.MAXIMUM_RANDOMIZED:
        p_value = paired.randomization(informative)
        tests["randomization"] = _available(p_value, mean_difference, count)
        return tests, "randomization", _verdict(p_value, sum(informative), count, alpha)
    tests["randomization"] = _unavailable("TOO_MANY_INFORMATIVE_PAIRS")
    return tests, "wilcoxonSignedRank", _verdict(wilcoxon.p_value, wilcoxon.plus - wilcoxon.minus, count, alpha)


def _verdict(p_value: float, direction: float, informative_count: int, alpha: float) -> Verdict:
    if p_value <= alpha:
        return "candidate-better" if direction > 0 else "baseline-better"
    return "unresolvable" if paired.smallest_attainable(informative_count) > alpha else "no-difference-shown"


def _available(p_value: float, statistic: float, informative_count: int) -> dict[str, object]:
    return {
        "status": "available",
        "pValue": number(p_value),
        "statistic": number(statistic),
        "informativeQueryCount": informative_count,
    }


def _unavailable(reason: str) -> dict[str, object]:
    return {"status": "unavailable", "reasons": [reason]}


CONVENTIONS: Final = (
    (
        "Differences are candidate minus baseline. Pairs with an undefined metric are excluded and counted, never "
        "zero. Wins, losses, ranks and signs are those of the difference in units of 10^-12, rounded half to even; "
        "where that is 0 the pair is a tie and not informative."
    ),
    (
        "All p-values are exact and two-sided, over the informative pairs: the sign test from the binomial, Wilcoxon's "
        "signed rank (statistic W+) from the null distribution of its mid-ranks, the randomization test of the mean "
        "difference from every sign pattern, up to 16 informative pairs."
    ),
    (
        "The deciding test is chosen by this rule before looking: randomization when it is available, else Wilcoxon; "
        "better when p <= alpha, unresolvable when no outcome with that many informative pairs could reach alpha. "
        "Wilcoxon's direction is that of W+ - W- and may oppose that of the mean difference."
    ),
    (
        "A p-value is how often chance alone, flipping which side is which in each query, would differ at least as "
        "much. It is neither the probability that a ranking is better nor the size of the difference, and a large one "
        "does not show that there is none."
    ),
    (
        "alpha bounds the error of one comparison that was planned before looking. Looking again after more queries, "
        "other metrics, cutoffs or candidates inflates it."
    ),
    (
        "Partial judgments limit every figure here. Where unjudged documents count as non-relevant, the side with more "
        "of them is favoured less: their counts stand beside each query."
    ),
)


def _example_query(number: int, baseline: str, candidate: str) -> dict[str, JsonValue]:
    return {
        "id": f"q{number}",
        "baseline": [*baseline],
        "candidate": [*candidate],
        "judgments": [{"id": document, "grade": grade} for document, grade in zip("abcd", (2, 1, 0, 0), strict=True)],
    }


OPERATION: Final = Operation(
    id="ranking-compare",
    name="Paired ranking comparison",
    description=(
        "Compare two rankings of up to 50 queries against the same caller-supplied judgments: both sides' metrics at "
        "k, the paired differences, and exact two-sided sign, Wilcoxon signed-rank and randomization tests. States the "
        "smallest p-value the data could reach, and a verdict by a fixed rule that tells no difference shown from "
        "too few informative queries. No search or relevance inference."
    ),
    category="data-assurance",
    input_type=ComparisonInput,
    evaluate=evaluate,
    result_type=Result,
    example_input={
        "queries": [
            _example_query(1, "bac", "abc"),
            _example_query(2, "cab", "abc"),
            _example_query(3, "cdab", "acbd"),
            _example_query(4, "cb", "ba"),
            _example_query(5, "bcad", "abcd"),
            _example_query(6, "dcba", "bacd"),
        ],
        "k": 3,
    },
    short_input={
        "queries": [
            {
                "id": "q",
                "baseline": ["b", "a"],
                "candidate": ["a", "b"],
                "judgments": [{"id": "a", "grade": 1}, {"id": "b", "grade": 0}],
            }
        ],
        "k": 2,
    },
    intents=(
        "compare two rankings with an exact significance test",
        "is the new ranker better than the baseline on the same queries",
        "paired randomization wilcoxon sign test of ndcg differences",
    ),
    when_not_to_use=(
        "Search the web or determine semantic document relevance",
        "Compare rankings of different queries or judgments",
        "Watch a running experiment until it is significant",
    ),
    capabilities=(
        "exact p-values with ties and zeros",
        "smallest attainable p-value stated",
        "unresolvable told apart from no difference shown",
        "unjudged counts of each side",
    ),
    related=("ranking-evaluate", "retrieval-measure"),
    limits={
        **GENERAL_LIMITS,
        "queries": QUERIES,
        "retrievedPerSide": RETRIEVED,
        "judgmentsPerQuery": JUDGMENTS,
        "maximumK": metrics.MAXIMUM_K,
        "randomizedPairs": paired.MAXIMUM_RANDOMIZED,
    },
    error_codes=(*GENERAL_ERROR_CODES, ErrorCode.DUPLICATE_ID, ErrorCode.UNJUDGED_DOCUMENT),
    notes=(
        (
            "Swapping the two sides mirrors every figure: the p-values stay, the mean difference changes its sign, "
            "wins become losses and W+ becomes W-."
        ),
        (
            "With n informative pairs the smallest two-sided p-value is 2 / 2^n: five queries can never reach 0.05, "
            "whatever the rankings, and six can only if all differ in one direction."
        ),
    ),
    inline_bytes=8_192,
)
