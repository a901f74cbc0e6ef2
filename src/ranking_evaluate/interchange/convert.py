"""Judgments and a run to inputs: what each query needs, what cannot fit, and an account of every topic."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ranking_evaluate.interchange import omitted
from ranking_evaluate.interchange.pack import misfit, pack
from ranking_evaluate.measure.best import Best
from ranking_evaluate.measure.qrels import Qrels
from ranking_evaluate.measure.rules import Rules
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
        without_gain: Those of them that have no grade above 0 either.
        without_judgments: Topics of the run alone; trec_eval leaves them out too.
        fractional_grades: How many grades are no integers, to which trec_eval cuts them.
        negative_grades: How many grades below 0 became 0.
    """

    inputs: Sequence[bytes]
    written: Collection[str]
    omitted: Mapping[str, str]
    without_run: Collection[str]
    without_relevant: Collection[str]
    without_gain: Collection[str]
    without_judgments: Collection[str]
    fractional_grades: int
    negative_grades: int

    @property
    def trailer(self) -> bytes | None:
        """The line that tells whoever reads the inputs' answers what is missing among them; None when nothing is."""
        return omitted.write(self.omitted) if self.omitted else None


def convert(qrels: Qrels, run: Best, rules: Rules) -> Conversion:
    """Return inputs that score the run at the one cutoff of the rules as trec_eval 10 would.

    Every judged topic is written or omitted with a reason; leaving some out is the caller's decision.
    """
    given = {topic.decode(): (grades, run.documents.get(topic, ())) for topic, grades in qrels.grades.items()}
    queries = {topic: _query(topic, grades, ranked, rules) for topic, (grades, ranked) in given.items()}
    misfits = {topic: reason for topic, query in queries.items() if (reason := misfit(query, rules)) is not None}
    written = {topic: query for topic, query in queries.items() if topic not in misfits}
    highest = {topic: max(given[topic][0].values(), default=0) for topic in written}
    return Conversion(
        inputs=tuple(pack(tuple(written.values()), rules)),
        written=tuple(written),
        omitted=misfits,
        without_run=tuple(topic for topic in written if topic.encode() not in run.documents),
        without_relevant=tuple(topic for topic in written if highest[topic] < rules.relevant_at_least),
        without_gain=tuple(topic for topic in written if highest[topic] <= 0),
        without_judgments=tuple(topic.decode() for topic in run.without_judgments),
        fractional_grades=qrels.fractional,
        negative_grades=qrels.negative,
    )


def _query(topic: str, grades: Mapping[bytes, float], ranked: Sequence[bytes], rules: Rules) -> RankedQuery:
    needed = _needed(grades, ranked, rules)
    return {
        "id": topic,
        # No figure at k looks below rank k, so nothing below is sent.
        "retrieved": [document.decode() for document in ranked],
        "judgments": [
            Judgment(id=document.decode(), grade=grade) for document, grade in grades.items() if document in needed
        ],
    }


def _needed(grades: Mapping[bytes, float], ranked: Sequence[bytes], rules: Rules) -> set[bytes]:
    """Return the documents whose judgments the figures at k depend on: the ranked, the relevant, and the ideal ones.

    A grade between 0 and the lowest relevant one is not relevant, but it has a gain: the best of them belong to the
    ideal ranking as far as the relevant ones leave room within k.
    """
    relevant = {document for document, grade in grades.items() if grade >= rules.relevant_at_least}
    partly = (document for document, grade in grades.items() if 0 < grade < rules.relevant_at_least)
    ideal = heapq.nlargest(max(rules.depth - len(relevant), 0), partly, key=grades.__getitem__)
    return relevant.union(ranked, ideal)
