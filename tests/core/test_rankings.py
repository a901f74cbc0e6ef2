from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate.core import canonical, metrics, rankings

IDS = st.text(min_size=1, max_size=6)
GRADES = st.one_of(st.integers(0, 10), st.floats(0, 10, allow_subnormal=True))


def average_precision(relevant: list[bool], relevant_count: int) -> float:
    """Return the definition, written out: the mean over all relevant documents of the precision at each one's rank."""
    total = 0.0
    for rank in range(1, len(relevant) + 1):
        if relevant[rank - 1]:
            total += relevant[:rank].count(True) / rank
    return total / relevant_count


def rules(k: int, threshold: float, gain: Any = "linear", unjudged: Any = "nonrelevant") -> rankings.Rules:
    return {"k": k, "relevantAtLeast": threshold, "gain": gain, "unjudged": unjudged}


@given(
    st.lists(IDS, unique=True, max_size=30),
    st.dictionaries(IDS, GRADES, max_size=30),
    st.integers(1, 100),
    st.sampled_from((0.5, 1, 2, 10)),
    st.sampled_from(("linear", "exponential")),
)
def test_one_pass_gives_what_the_definitions_give(
    retrieved: list[str], grade_by_id: dict[str, float], k: int, threshold: float, gain: str
) -> None:
    given_rules = rules(k, threshold, gain)
    [judged] = rankings.judge(given_rules, [grade_by_id])
    [scored] = rankings.score(given_rules, [(retrieved, judged)], str)
    precision, recall, reciprocal_rank, average, ndcg, dcg, hits, grades = scored

    to_gains = metrics.exponential_gains if gain == "exponential" else metrics.linear_gains
    assert grades == [grade_by_id.get(one) for one in retrieved[:k]]
    relevant = [grade is not None and grade >= threshold for grade in grades]
    count = sum(grade >= threshold for grade in grade_by_id.values())
    ideal = metrics.ideal_dcg(to_gains(grade_by_id.values()), k)
    assert judged == (grade_by_id, count, ideal)
    assert hits == relevant.count(True)
    assert precision == metrics.precision(hits, k)
    assert recall == metrics.recall(hits, count)
    assert reciprocal_rank == metrics.reciprocal_rank(relevant, count, k)
    assert average == (average_precision(relevant, count) if count else None)
    assert dcg == metrics.dcg(to_gains(grades))
    assert ndcg == metrics.ndcg(dcg, ideal)
    found = {one for one, is_relevant in zip(retrieved, relevant, strict=False) if is_relevant}
    relevant_ids = [one for one, grade in grade_by_id.items() if grade >= threshold]
    assert rankings.missed(given_rules, retrieved, grade_by_id) == [one for one in relevant_ids if one not in found]


@given(st.lists(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=5, max_size=5), max_size=6))
def test_averages_are_the_means_of_what_is_defined(figures: list[list[float | None]]) -> None:
    scored: list[Any] = []
    for precision, recall, reciprocal_rank, average, ndcg in figures:
        is_defined = None not in (recall, reciprocal_rank, average)
        three = (recall, reciprocal_rank, average) if is_defined else (None, None, None)
        scored.append((precision or 0.0, *three, ndcg, 0.0, 0, []))
    means, counts = rankings.averages(scored)
    assert list(zip(means, counts, strict=True)) == [metrics.mean(one[metric] for one in scored) for metric in range(5)]


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=8), st.one_of(st.none(), GRADES)), max_size=20), st.integers(1, 30)
)
def test_rows_are_the_json_of_their_members(ranked: list[tuple[str, float | None]], k: int) -> None:
    ids = [one for one, _ in ranked]
    grades = [grade for _, grade in ranked][:k]
    scored = (0.0, None, None, None, None, 0.0, 0, grades)
    written = orjson.dumps(rankings.rows(rules(k, 1), [ids], [scored])[0])
    expected = [
        {
            "rank": rank,
            "id": one,
            "grade": grade if grade is None else canonical.number(grade),
            "relevant": grade is not None and grade >= 1,
            "judged": grade is not None,
        }
        for rank, (one, grade) in enumerate(zip(ids, grades, strict=False), 1)
    ]
    assert written == orjson.dumps(expected)
    assert [row["id"] for row in json.loads(written)] == ids[:k]
