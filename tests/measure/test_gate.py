"""The gate: bounds as they are written, decided beyond rounding, and the topics to look at."""

from __future__ import annotations

import pytest

from ranking_evaluate import measure
from ranking_evaluate.measure.gate import Bound, bound_of, check
from ranking_evaluate.measure.results import Result

QRELS = {f"q{number}": {"a": 1} for number in range(10)}


def run(hits: int) -> Result:
    """Return a run that finds the document of so many of ten topics first, and not that of the others."""
    return measure(QRELS, {topic: {"a" if at < hits else "z": 1.0} for at, topic in enumerate(QRELS)}, k=1)


def test_a_bound_is_a_figure_a_cutoff_and_a_number() -> None:
    assert bound_of("ndcg@10=0.70", is_drop=False) == Bound("ndcg", 10, 0.7, False)
    assert bound_of(" NDCG@5=1e-2 ", is_drop=True) == Bound("ndcg", 5, 0.01, True)


@pytest.mark.parametrize(
    "text", ["ndcg=0.7", "ndcg@10", "map@10=0.7", "ndcg@0=0.7", "ndcg@10=-1", "ndcg@10=.", "p@1=nan"]
)
def test_what_is_no_bound_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the form FIGURE@K=X, as in ndcg@10=0\.7; figures are p, recall"):
        bound_of(text, is_drop=False)


@pytest.mark.parametrize(("bound", "holds"), [(0.69, True), (0.7, True), (0.7 + 1e-15, True), (0.71, False)])
def test_a_mean_below_the_bound_fails_and_rounding_does_not(bound: float, holds: bool) -> None:
    [found] = check([Bound("p", 1, bound, False)], [run(7)], None)

    assert found.holds is holds
    assert next(found.lines()) == (
        f"{'holds' if holds else 'FAILS'}: run: P@1 must be at least {bound:g}: it is 0.7000"
    )


@pytest.mark.parametrize(("bound", "holds"), [(0.3, True), (0.2, True), (0.19, False), (0, False)])
def test_a_drop_beyond_the_bound_fails(bound: float, holds: bool) -> None:
    baseline, other = run(9), run(7)
    [found] = check([Bound("rr", 1, bound, True)], [baseline, other], baseline)

    assert found.holds is holds
    assert found.found == pytest.approx(0.2)


def test_a_gain_is_no_drop() -> None:
    baseline = run(3)
    [found] = check([Bound("p", 1, 0, True)], [baseline, run(7)], baseline)

    assert found.holds
    assert next(found.lines()) == "holds: run: P@1 may drop by at most 0: it rises by 0.4000"


def test_a_failure_names_the_topics_that_lost_most() -> None:
    baseline = run(9)
    [found] = check([Bound("p", 1, 0.1, True)], [baseline, run(7)], baseline)

    assert [*found.lines()][1:] == ["    q7: 1.0000 to 0.0000 (-1.0000)", "    q8: 1.0000 to 0.0000 (-1.0000)"]


def test_without_a_baseline_a_failure_names_the_topics_that_have_least() -> None:
    [found] = check([Bound("p", 1, 0.9, False)], [run(7)], None)

    assert [*found.lines()][1:4] == ["    q7: 0.0000", "    q8: 0.0000", "    q9: 0.0000"]


def test_a_mean_that_is_undefined_fails() -> None:
    nothing = measure({"q": {"a": 0}}, {"q": {"a": 1.0}}, k=1)
    [found] = check([Bound("recall", 1, 0.1, False)], [nothing], None)

    assert next(found.lines()) == "FAILS: run: recall@1 must be at least 0.1: it is undefined for every topic"
