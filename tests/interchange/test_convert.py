"""Converting: trec_eval's figures to the last bit, every input accepted, no topic lost."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import orjson
import pytest
import pytrec_eval
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ranking_evaluate import OperationError, evaluate
from ranking_evaluate.interchange import convert as converting
from ranking_evaluate.interchange.convert import Conversion
from ranking_evaluate.interchange.merge import merge
from ranking_evaluate.measure.best import Best
from ranking_evaluate.measure.faults import Faults
from ranking_evaluate.measure.figures import Scorer
from ranking_evaluate.measure.parts import Part, whole_topics
from ranking_evaluate.measure.qrels import given_qrels, given_rows
from ranking_evaluate.measure.rules import Rules
from ranking_evaluate.measure.runs import rankings

Qrels: TypeAlias = Mapping[str, Mapping[str, float]]
Run: TypeAlias = Mapping[str, Mapping[str, float]]

K = 10
# Our names, and pytrec_eval's.
PEER = {
    "precisionAtK": f"P_{K}",
    "recallAtK": f"recall_{K}",
    "reciprocalRankAtK": "recip_rank",
    "averagePrecisionAtK": f"map_cut_{K}",
    "ndcgAtK": f"ndcg_cut_{K}",
}


def convert(qrels: Qrels, run: Run, k: int, **conventions: Any) -> Conversion:
    rules = Rules(cutoffs=(k,), **conventions)
    judgments = given_qrels(qrels, rules)
    scorer, faults = Scorer(judgments, rules), Faults("run")
    part = Part(faults, scorer.width)
    documents = dict(whole_topics(rankings(given_rows(run), faults), scorer, part))
    without = [topic for topic in part.topics if topic not in scorer.position]
    return converting.convert(judgments, Best(documents, without), rules)


def rank(scores: Mapping[str, float], k: int) -> list[str]:
    """Return the best documents by score, then by id, both descending."""
    return sorted(scores, key=lambda document: (scores[document], document), reverse=True)[:k]


def queries_of(conversion: Conversion) -> list[dict[str, Any]]:
    return [query for line in conversion.inputs for query in orjson.loads(line)["queries"]]


def scored(conversion: Conversion) -> list[bytes]:
    return [evaluate("ranking-evaluate", line) for line in conversion.inputs]


def peer(qrels: Mapping[str, Mapping[str, int]], run: Run) -> dict[str, dict[str, float]]:
    """Return pytrec_eval's figures of the best K documents: its reciprocal rank has no cutoff, its scores 24 bits."""
    best = {
        topic: {document: -float(at) for at, document in enumerate(rank(scores, K))} for topic, scores in run.items()
    }
    figures: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(qrels, set(PEER.values())).evaluate(best)
    return figures


def collection(seed: int, topics: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Return judgments with negative grades and a run with many ties; some topics are in one of them only."""
    chance = random.Random(seed)
    documents = [f"D{chance.choice('abAB')}-{number}" for number in range(400)]
    qrels = {
        f"t{number}": {
            document: chance.choice([-1, 0, 0, 1, 1, 2, 3])
            for document in chance.sample(documents, chance.randint(1, 150))
        }
        for number in range(topics)
    }
    run = {
        f"t{number}": {
            document: chance.choice([round(chance.random(), 1), chance.gauss(0, 1e6), chance.random() / 1e5])
            for document in chance.sample(documents, chance.randint(1, 60))
        }
        for number in range(3, topics + 3)
    }
    return qrels, run


@pytest.mark.parametrize("seed", range(3))
def test_converted_scored_and_merged_figures_are_those_of_pytrec_eval_to_the_last_bit(seed: int) -> None:
    qrels, run = collection(seed, topics=130)
    conversion = convert(qrels, run, K)
    answers = scored(conversion)
    theirs = peer(qrels, run)
    nothing = dict.fromkeys(PEER.values(), 0.0)

    compared = 0
    sums = dict.fromkeys(PEER, 0.0)
    for query in (query for answer in answers for query in orjson.loads(answer)["result"]["queries"]):
        for ours, name in PEER.items():
            if query[ours] is not None:
                # trec_eval passes over a topic that the run does not rank; with -c it counts zeros.
                expected = theirs.get(query["id"], nothing)[name]
                assert query[ours] == expected, (query["id"], ours)
                sums[ours] += expected
        compared += 1

    assert compared == len(conversion.written) == len(qrels) - len(conversion.omitted)
    assert len(conversion.inputs) >= 3
    merged = orjson.loads(merge(answers).document)
    assert merged["queryCount"] == compared
    for ours, total in sums.items():
        assert merged["macro"][ours] == total / merged["definedQueryCounts"][ours]
    assert conversion.without_run == ("t0", "t1", "t2")
    assert conversion.without_judgments == ("t130", "t131", "t132")
    assert conversion.negative_grades == sum(grade < 0 for grades in qrels.values() for grade in grades.values())


def test_scores_that_differ_beyond_single_precision_are_no_ties() -> None:
    (query,) = queries_of(convert({"1": {"a": 1}}, {"1": {"a": 1.00000002, "b": 1.00000001}}, K))

    assert query["retrieved"] == ["a", "b"]


def test_a_threshold_and_a_gain_stand_in_every_input_and_decide_what_is_sent() -> None:
    grades = {"low": 1, "high": 3, "middle": 2}
    (line,) = convert({"1": grades}, {"1": {"x": 1.0}}, 2, relevant_at_least=2.0, gain="exponential").inputs
    written = orjson.loads(line)

    assert {name: written[name] for name in written if name != "queries"} == {
        "k": 2,
        "unjudged": "nonrelevant",
        "relevantAtLeast": 2,
        "gain": "exponential",
    }
    assert [judgment["id"] for judgment in written["queries"][0]["judgments"]] == ["high", "middle"]


def test_only_what_is_sent_is_bound_by_the_limits_of_the_service() -> None:
    run = {"1": {"a": 2.0, 81 * "d": 1.0}}
    conversion = convert({"1": {"a": 1, 81 * "e": 0}, "2": {"a": 16}, 81 * "t": {"a": 1}}, run, 1)

    assert conversion.written == ("1",)
    assert set(conversion.omitted) == {"2", 81 * "t"}
    assert conversion.trailer is not None
    assert orjson.loads(conversion.trailer)["omitted"][0] == {"id": "2", "reason": conversion.omitted["2"]}


def test_kept_are_the_relevant_and_the_ranked_judgments_in_the_order_of_the_file() -> None:
    grades = {"below-k": 0, "relevant": 2, "unranked": 0, "ranked": 0, "negative": -2}
    run = {"1": {"ranked": 3.0, "negative": 2.0, "below-k": 1.0}}
    (query,) = queries_of(convert({"1": grades}, run, 2))

    assert query["retrieved"] == ["ranked", "negative"]
    assert query["judgments"] == [
        {"id": "relevant", "grade": 2},
        {"id": "ranked", "grade": 0},
        {"id": "negative", "grade": 0},
    ]


def test_a_partly_relevant_judgment_is_kept_only_when_the_ideal_ranking_needs_it() -> None:
    grades = {"low": 0.25, "high": 0.75, "middle": 0.5, "relevant": 1}
    (query,) = queries_of(convert({"1": grades}, {"1": {"x": 1.0}}, 3))

    assert [judgment["id"] for judgment in query["judgments"]] == ["high", "middle", "relevant"]


figure = st.one_of(st.integers(-1, 4), st.floats(0, 2).map(lambda grade: round(grade, 2)))


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), figure, max_size=90), st.integers(1, 12))
def test_leaving_judgments_out_changes_no_figure(grades: dict[str, float], k: int) -> None:
    run = {"1": {document: float(len(document) + place % 3) for place, document in enumerate(["zz", *grades][::2])}}
    (query,) = queries_of(convert({"1": grades}, run, k))
    everything = {
        **query,
        "judgments": [{"id": document, "grade": max(grade, 0)} for document, grade in grades.items()],
    }

    def result(one: dict[str, Any]) -> Any:
        body = orjson.dumps({"k": k, "unjudged": "nonrelevant", "queries": [one]})
        return orjson.loads(evaluate("ranking-evaluate", body))["result"]

    assert result(query) == result(everything)


def test_a_topic_without_relevant_judgments_is_named_where_trec_eval_counts_zero() -> None:
    qrels, run = {"1": {"a": 0}}, {"1": {"a": 1.0}}
    conversion = convert(qrels, run, K)

    assert conversion.without_relevant == ("1",)
    assert peer(qrels, run)["1"]["recall_10"] == 0
    assert conversion.without_gain == ("1",)
    assert orjson.loads(merge(scored(conversion)).document)["macro"]["recallAtK"] is None


def test_a_topic_that_cannot_fit_is_omitted_with_its_reason() -> None:
    qrels = {"many": {f"d{number}": 1 for number in range(101)}, "few": {"a": 1}}
    conversion = convert(qrels, {"many": {"x": 1.0}}, K)

    assert conversion.written == ("few",)
    assert conversion.omitted == {
        "many": "its figures depend on 101 judgments, 101 of them relevant, and a query may have 100"
    }


def test_a_topic_whose_ids_are_too_many_bytes_is_omitted_with_its_reason() -> None:
    # JSON writes these characters in six bytes each, and such grades in eighteen: nothing shorter fills one query.
    documents = [f"{number:080b}".translate({48: 1, 49: 2}) for number in range(200)]
    qrels = {"1": dict.fromkeys(documents[:100], 1.2345678901234567), "2": {"a": 1.0}}
    run = {"1": dict.fromkeys(documents[100:], 1.0)}

    assert convert(qrels, run, 50).written == ("1", "2")
    conversion = convert(qrels, run, 100)
    assert conversion.written == ("2",)
    assert "larger than 100,000 bytes" in conversion.omitted["1"]


def is_accepted(line: bytes) -> bool:
    try:
        evaluate("ranking-evaluate", line)
    except OperationError:
        return False
    return True


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=80)


@st.composite
def collections(draw: st.DrawFn) -> tuple[Qrels, Run]:
    """Draw collections that reach every limit: up to 120 topics, 150 judgments, 150 ranked and 80-character ids."""
    pad = draw(st.sampled_from(["", "p" * 20, "é" * 70]))
    seed = random.Random(draw(st.integers(0, 2**32)))
    size = draw(st.integers(1, 150))
    topics = draw(st.lists(names, unique=True, min_size=1, max_size=8)) + [
        f"t{at}" for at in range(draw(st.integers(0, 112)))
    ]
    documents = [f"{pad}{at}" for at in range(size)]

    def some() -> list[str]:
        return seed.sample(documents, seed.randint(1, size))

    qrels = {
        topic: {name: seed.choice([-1, 0, 0.5, 1, 10]) for name in some()} for topic in topics if seed.random() < 0.9
    }
    run = {topic: {name: seed.random() for name in some()} for topic in topics if seed.random() < 0.9}
    return qrels, run


@settings(deadline=None, max_examples=40)
@given(collections(), st.sampled_from([1, 10, 100]))
def test_no_topic_is_lost_and_every_input_is_accepted_and_full(files: tuple[Qrels, Run], k: int) -> None:
    qrels, run = files
    assume(qrels)
    conversion = convert(qrels, run, k)

    assert [query["id"] for query in queries_of(conversion)] == list(conversion.written)
    assert sorted([*conversion.written, *conversion.omitted]) == sorted(qrels)
    assert {*conversion.written, *conversion.omitted, *conversion.without_judgments} == {*qrels, *run}
    assert all(map(is_accepted, conversion.inputs))
    for line, following in pairwise(map(orjson.loads, conversion.inputs)):
        # With the first query of the next input this one would be refused.
        more = {**line, "queries": [*line["queries"], following["queries"][0]]}
        assert not is_accepted(orjson.dumps(more))
