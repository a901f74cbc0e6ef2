"""Judgments and a run to inputs: what each query needs, what cannot fit, and an account of every topic."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass

from ranking_evaluate.interchange.pack import misfit, pack
from ranking_evaluate.interchange.rows import Qrels, Run
from ranking_evaluate.operations.fields import Judgment
from ranking_evaluate.operations.ranking_evaluate import RankedQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The inputs, and where every topic of both files went.

    Args:
        inputs: Inputs without their newlines; together they hold the topics `written`, in the order of the judgments.
        written: Topics that an input holds.
        omitted: Judged topics that fit no input, each with the reason.
        without_run: Written topics for which the run ranks nothing: `"retrieved": []`.
        without_relevant: Written topics with no relevant judgment: some metrics are undefined where trec_eval says 0.
        without_judgments: Topics of the run alone; trec_eval leaves them out too.
        rounded_ties: Written topics that double precision would rank otherwise; see `rank`.
        negative_grades: How many grades below 0 became 0.
    """

    inputs: Sequence[bytes]
    written: Collection[str]
    omitted: Mapping[str, str]
    without_run: Collection[str]
    without_relevant: Collection[str]
    without_judgments: Collection[str]
    rounded_ties: Collection[str]
    negative_grades: int


def convert(qrels: Qrels, run: Run, k: int) -> Conversion:
    """Return inputs that score the run at `k` as trec_eval would.

    Every judged topic is written or omitted with a reason; leaving some out is the caller's decision.
    """
    queries = {topic: _query(topic, qrels[topic], run.get(topic, {}), k) for topic in qrels}
    omitted = {topic: reason for topic, query in queries.items() if (reason := misfit(query, k)) is not None}
    written = {topic: query for topic, query in queries.items() if topic not in omitted}
    return Conversion(
        inputs=tuple(pack(tuple(written.values()), k)),
        written=tuple(written),
        omitted=omitted,
        without_run=tuple(topic for topic in written if topic not in run),
        without_relevant=tuple(topic for topic in written if not any(map(_is_relevant, qrels[topic].values()))),
        without_judgments=tuple(topic for topic in run if topic not in qrels),
        rounded_ties=tuple(topic for topic in written if topic in run and has_rounded_ties(run[topic], k)),
        negative_grades=sum(grade < 0 for grades in qrels.values() for grade in grades.values()),
    )


def rank(scores: Mapping[str, float], k: int) -> list[str]:
    """Return the best `k` documents as trec_eval ranks them: by score, then by id, both descending.

    trec_eval 9 and pytrec_eval compare scores in single precision, so those that differ only beyond it are ties. Ids
    are compared by code point, which is the order of their UTF-8 bytes.
    """
    return heapq.nlargest(k, scores, key=lambda document: (_single(scores[document]), document))


def has_rounded_ties(scores: Mapping[str, float], k: int) -> bool:
    """Return whether double precision would rank other documents, or in another order, within `k`."""
    return rank(scores, k) != heapq.nlargest(k, scores, key=lambda document: (scores[document], document))


def _single(score: float) -> float:
    return c_float(score).value


def _query(topic: str, grades: Mapping[str, float], scores: Mapping[str, float], k: int) -> RankedQuery:
    # No figure at k looks below rank k, so nothing below is sent.
    ranked = rank(scores, k)
    needed = _needed(grades, ranked, k)
    return {
        "id": topic,
        "retrieved": ranked,
        "judgments": [
            Judgment(id=document, grade=max(grade, 0)) for document, grade in grades.items() if document in needed
        ],
    }


def _needed(grades: Mapping[str, float], ranked: Sequence[str], k: int) -> set[str]:
    """Return the documents whose judgments the figures at `k` depend on: the ranked, the relevant, and the ideal ones.

    A grade between 0 and 1 is not relevant, but it has a gain: the best of them belong to the ideal ranking as far as
    the relevant ones leave room within k.
    """
    relevant = {document for document, grade in grades.items() if _is_relevant(grade)}
    partly = (document for document, grade in grades.items() if 0 < grade < 1)
    ideal = heapq.nlargest(max(k - len(relevant), 0), partly, key=grades.__getitem__)
    return relevant.union(ranked, ideal)


def _is_relevant(grade: float) -> bool:
    return grade >= 1
