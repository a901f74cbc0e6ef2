"""The figures of each topic at each cutoff, by the core's own functions, in as little memory as they need."""

from __future__ import annotations

import math
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ranking_evaluate.core import metrics
from ranking_evaluate.measure.ranking import as_binary32, ranked

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Mapping, Sequence

    from ranking_evaluate.measure.qrels import Qrels
    from ranking_evaluate.measure.rules import Rules
    from ranking_evaluate.measure.runs import Ranking


class Figures(NamedTuple):
    """The figures at one cutoff; None where one is undefined."""

    p: float | None
    recall: float | None
    rr: float | None
    ap: float | None
    ndcg: float | None
    success: float | None
    judged: float | None


class Counts(NamedTuple):
    """Over how many topics each mean at one cutoff is taken."""

    p: int
    recall: int
    rr: int
    ap: int
    ndcg: int
    success: int
    judged: int


NAMES: Final[tuple[str, ...]] = Figures._fields

# The figures that are undefined for some topics, and for which trec_eval counts 0 there.
_ZERO_IN_TREC_EVAL: Final = ("recall", "rr", "ap", "ndcg")

# At each cutoff a column for each name, with an entry for each topic.
Columns: TypeAlias = "Sequence[array[float]]"


class Scorer:
    """What is needed to score any ranking against the judgments.

    Args:
        qrels: The judgments.
        rules: The conventions.
    """

    def __init__(self, qrels: Qrels, rules: Rules) -> None:
        self.rules = rules
        self.grades: Mapping[bytes, Mapping[bytes, float]] = qrels.grades
        self.topics: Sequence[bytes] = [*qrels.grades]
        self.position = {topic: position for position, topic in enumerate(self.topics)}
        self._by_cutoff = [metrics.Rules(k, rules.relevant_at_least, rules.gain) for k in rules.cutoffs]

    @property
    def width(self) -> int:
        """How many figures a topic has at all cutoffs together."""
        return len(NAMES) * len(self.rules.cutoffs)

    def ranked(self, ranking: Ranking) -> Sequence[bytes]:
        """Return the documents that count, best first, down to the largest cutoff."""
        documents: Sequence[bytes] = ranking.documents
        scores: Sequence[float] = ranking.scores
        if self.rules.like == "trec_eval9":
            scores = as_binary32(scores)
        kept: list[bool] | None = None
        if self.rules.condensed:
            grades = self.grades[ranking.topic]
            kept = [document in grades for document in documents]
        if self.rules.ignore_identical_ids and ranking.topic in documents:
            kept = [document != ranking.topic and (kept is None or kept[at]) for at, document in enumerate(documents)]
        if kept is not None:
            documents, scores = [*compress(documents, kept)], [*compress(scores, kept)]
        return ranked(documents, scores, self.rules.depth)

    def score(self, topics: Sequence[bytes], rankings: Sequence[Sequence[bytes]]) -> list[Sequence[float]]:
        """Return a column for each figure at each cutoff, as `columns` orders them, with an entry for each topic.

        An entry is NaN where the figure is undefined.

        Args:
            topics: Topics with judgments.
            rankings: The documents of each, best first, down to the largest cutoff.
        """
        judgments = [self.grades[topic] for topic in topics]
        by_rank = [[*map(grades.get, ranking)] for grades, ranking in zip(judgments, rankings, strict=True)]
        columns: list[Sequence[float]] = []
        judged = [metrics.judge(grades.values(), self._by_cutoff[0]) for grades in judgments]
        before = self.rules.depth
        for rules in self._by_cutoff:
            # Beyond the number of judgments a cutoff changes nothing: where most topics have one, judging each anew
            # takes as long as all else here.
            judged = [
                metrics.judge(grades.values(), rules) if len(grades) > before else one
                for one, grades in zip(judged, judgments, strict=True)
            ]
            before = rules.k
            within = [grades[: rules.k] for grades in by_rank]
            scores = metrics.score(within, judged, rules)
            columns += (
                scores.precision,
                _marked(scores.recall),
                _marked(scores.reciprocal_rank),
                _marked(scores.average_precision),
                _marked(scores.ndcg),
                [*map(metrics.success, scores.hits)],
                _marked([*map(metrics.judged_share, within)]),
            )
        return columns


def means(columns: Columns, rules: Rules, order: Sequence[int]) -> dict[int, tuple[Figures, Counts]]:
    """Return the mean of each figure at each cutoff, and over how many topics it is taken.

    Args:
        columns: As `Scorer.score` returns them, for all topics.
        rules: The conventions.
        order: The positions of the topics in the order in which they are added up.
    """
    found = {}
    for at, k in enumerate(rules.cutoffs):
        pairs = [
            metrics.mean(defined(column, name, rules, order))
            for name, column in zip(NAMES, columns[at * len(NAMES) :], strict=False)
        ]
        found[k] = Figures(*(mean for mean, _ in pairs)), Counts(*(count for _, count in pairs))
    return found


def defined(column: Sequence[float], name: str, rules: Rules, order: Iterable[int]) -> list[float | None]:
    """Return a figure of several topics, None where it is undefined; what trec_eval says there when it is equalled.

    Args:
        column: The figure of every topic, NaN where it is undefined.
        name: Which figure it is.
        rules: The conventions.
        order: The positions of the topics.
    """
    otherwise = 0.0 if rules.like is not None and name in _ZERO_IN_TREC_EVAL else None
    # NaN is the one number that does not equal itself.
    return [figure if (figure := column[position]) == figure else otherwise for position in order]


def _marked(figures: Sequence[float | None]) -> Sequence[float]:
    return [math.nan if figure is None else figure for figure in figures]
