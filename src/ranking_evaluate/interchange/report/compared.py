"""The result of ranking-compare in words and rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from ranking_evaluate.core.paired import scaled
from ranking_evaluate.interchange.report.model import Comparison, Pair, Test, Value, figure, p_value
from ranking_evaluate.measure.account import count
from ranking_evaluate.operations.figures import Metric
from ranking_evaluate.operations.ranking_compare import (
    AvailableTest,
    DecidingTest,
    Result,
    UnavailableRandomization,
    UnavailableTest,
    Verdict,
)

TestName: TypeAlias = DecidingTest | Literal["signTest"]

_TESTS: Final[Mapping[TestName, tuple[str, str]]] = {
    "randomization": ("Randomization of signs", "mean difference"),
    "wilcoxonSignedRank": ("Wilcoxon signed rank", "W+"),
    "signTest": ("Sign test", "wins"),
}
_HEADLINES: Final[Mapping[Verdict, str]] = {
    "candidate-better": "The candidate is better",
    "baseline-better": "The baseline is better",
    "no-difference-shown": "No difference is shown",
    "unresolvable": "These queries cannot tell",
}


def comparison(result: Result, labels: Mapping[Metric, str]) -> Comparison:
    """Return the comparison; its pairs by falling difference, those without one last."""
    pairs = [
        Pair(
            query["id"],
            query["baseline"],
            query["candidate"],
            query["difference"],
            query["baselineUnjudgedAtKCount"],
            query["candidateUnjudgedAtKCount"],
        )
        for query in result["queries"]
    ]
    return Comparison(
        verdict=result["verdict"],
        headline=_HEADLINES[result["verdict"]],
        explanation=_explanation(result, labels[result["metric"]]),
        tiles=[
            (
                label,
                Value(result["baseline"][name]),
                Value(result["candidate"][name]),
                result["definedQueryCounts"][name],
            )
            for name, label in labels.items()
        ],
        pairs=sorted(pairs, key=lambda pair: (pair.difference is None, -(pair.difference or 0.0))),
        tests=[_test(name, result) for name in _TESTS],
    )


def _explanation(result: Result, label: str) -> str:
    paired, smallest = result["paired"], result["smallestAttainableP"]
    if paired["meanDifference"] is None:
        return f"{label} is defined for no query, so nothing can be compared."
    # As in the tests, what is smaller than 10^-12 is rounding: differences that cancel leave a mean of 1e-17, say.
    total = sum(scaled(query["difference"]) for query in result["queries"] if query["difference"] is not None)
    mean = f"The candidate's {label} is {_distance(paired['meanDifference'] if total else 0.0)} on average"
    counts = f"it wins {count(paired['wins'], 'query')}, loses {paired['losses']} and ties {paired['ties']}"
    decided = result["decidedBy"]
    if decided is None:
        return f"{mean}: {counts}. Without a difference there is nothing to test."
    if result["verdict"] == "unresolvable" and smallest is not None:
        differing = paired["wins"] + paired["losses"]
        reach = "query reaches" if differing == 1 else "queries reach"
        best = f"{differing} differing {reach} p = {p_value(smallest)} at best"
        return f"{mean}: {counts}. But {best}, above alpha = {result['alpha']:g}: no outcome could have decided."
    test = _tests(result)[decided]
    told = f"{mean}: {counts}. {_TESTS[decided][0]} decides"
    if test["status"] == "available":
        told += f" with p = {p_value(test['pValue'])} against alpha = {result['alpha']:g}"
    if result["verdict"] == "no-difference-shown":
        told += "; that does not show that there is none"
    return f"{told}."


def _distance(difference: float) -> str:
    if not difference:
        return "the same"
    return f"{figure(abs(difference))} {'higher' if difference > 0 else 'lower'}"


def _test(name: TestName, result: Result) -> Test:
    test = _tests(result)[name]
    title, statistic = _TESTS[name]
    decides = result["decidedBy"] == name
    if test["status"] == "unavailable":
        return Test(title, Value(None, test["reasons"]), "", "", decides)
    signed = name == "randomization"
    shown = figure(test["statistic"], signed=True) if signed else f"{test['statistic']:g}"
    return Test(
        title,
        Value(test["pValue"]),
        f"{statistic} {shown}",
        str(test["informativeQueryCount"]),
        decides,
    )


def _tests(result: Result) -> Mapping[TestName, AvailableTest | UnavailableTest | UnavailableRandomization]:
    tests = result["tests"]
    return {name: tests[name] for name in _TESTS}  # type: ignore[literal-required]  # The names are those of the type.
