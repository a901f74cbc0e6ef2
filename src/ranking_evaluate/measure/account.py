"""In words: over how many topics each mean is, where every topic went, and where the figures are not trec_eval's."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from ranking_evaluate.measure.faults import shown
from ranking_evaluate.measure.figures import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ranking_evaluate.measure.results import Result

# What each figure is called where people read it.
LABELS: Final = {
    "p": "P",
    "recall": "recall",
    "rr": "RR",
    "ap": "AP",
    "ndcg": "NDCG",
    "success": "success",
    "judged": "judged",
}

_NAMED: Final = 10


def denominators(result: Result) -> list[str]:
    """Return for each set of figures whose means are over fewer than all topics over how many they are."""
    total = len(result.topics)
    told: dict[str, list[int]] = {}
    for k, counts in result.counts.items():
        by_count: dict[int, list[str]] = {}
        for name, count in zip(NAMES, counts, strict=True):
            by_count.setdefault(count, []).append(LABELS[name])
        for count, labels in by_count.items():
            if count < total:
                told.setdefault(f"{', '.join(labels)}: over {count:,} of {total:,} topics", []).append(k)
    everywhere = len(result.counts)
    return [text if len(at) == everywhere else f"{text} at k {_list(at)}" for text, at in told.items()]


def remarks(result: Result) -> list[str]:
    """Return what whoever reads the figures of a run should know of it, a sentence each."""
    return [*_topics(result), *_differences(result)]


def _topics(result: Result) -> Iterator[str]:
    measured = result.measured
    if measured.without_run:
        topics = [result.topics[position] for position in measured.without_run]
        yield f"The run ranks nothing for {named(topics)}; each counts with an empty ranking, as in trec_eval -c."
    if measured.without_judgments:
        yield f"Left out, because no judgment is of {named(measured.without_judgments)} of the run."
    if measured.scattered:
        yield f"Gathered from several places of the run: {named(measured.scattered)}."
    if measured.contradicted * 2 > measured.topics:
        yield (
            f"The ranks contradict the scores in {measured.contradicted:,} of {measured.topics:,} topics: are these "
            "distances, where less is better? Documents are ranked by score, the highest first."
        )


def _differences(result: Result) -> Iterator[str]:
    """Yield where the figures differ from those that trec_eval 10 gives with -c for these files, and by which rule."""
    qrels, rules = result.qrels, result.rules
    if rules.like is not None:
        if qrels.fractional:
            yield f"{count(qrels.fractional, 'fractional grade')} cut to integers, as trec_eval does."
        return
    total = len(result.topics)
    counts = next(iter(result.counts.values()))
    undefined = [name for name in ("recall", "rr", "ap", "ndcg") if getattr(counts, name) < total]
    for missing, names in groupby(undefined, key=lambda name: total - getattr(counts, name)):
        labels = [LABELS[name] for name in names]
        why = "no gain" if labels == ["NDCG"] else "no relevant judgment"
        yield (
            f"Not as in trec_eval -c: {_list(labels)} of {count(missing, 'topic')} with {why} are undefined and left "
            "out of the mean, where trec_eval counts 0."
        )
    if qrels.fractional:
        yield (
            f"Not as in trec_eval: {count(qrels.fractional, 'fractional grade')} kept, which NDCG depends on; "
            "trec_eval cuts them to integers."
        )
    if rules.relevant_at_least != int(rules.relevant_at_least):
        yield "Not as in trec_eval: every figure but NDCG has a fractional grade as its threshold; -l takes integers."
    if rules.gain == "exponential":
        yield "Not as in trec_eval: NDCG has exponential gain; trec_eval's is linear."
    if rules.condensed and qrels.negative:
        yield (
            f"Not as in trec_eval -J: documents with a negative grade ({qrels.negative:,}) count as judged, not "
            "relevant; trec_eval drops them as unjudged."
        )
    if rules.ignore_identical_ids:
        yield "Not as in trec_eval: documents with the id of their topic are dropped."


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def named(topics: Sequence[bytes]) -> str:
    """Return how many topics these are, and the first ten of them."""
    names = ", ".join(map(shown, topics[:_NAMED]))
    return f"{count(len(topics), 'topic')} ({names}{', ...' if len(topics) > _NAMED else ''})"


def _list(items: Sequence[object]) -> str:
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
