"""The best documents of each judged topic of a run, for whoever needs the ranking itself and not its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ranking_evaluate.measure.faults import Faults
from ranking_evaluate.measure.formats import Kind, Named, sniff
from ranking_evaluate.measure.gathering import gathered
from ranking_evaluate.measure.parts import Part, refuse_unrelated, whole_topics
from ranking_evaluate.measure.rows import read
from ranking_evaluate.measure.runs import rankings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ranking_evaluate.measure.figures import Scorer
    from ranking_evaluate.measure.sources import Source


class Best(NamedTuple):
    """The documents of each judged topic down to the largest cutoff, best first; and the topics without judgments."""

    documents: Mapping[bytes, Sequence[bytes]]
    without_judgments: Sequence[bytes]


def read_best(source: Source, scorer: Scorer, named: Named = Named.AUTO) -> Best:
    """Return the best documents of each judged topic.

    Raises:
        FileError: The run cannot be used, is empty, or has no topic in common with the judgments.
    """
    form = sniff(source, Kind.RUN, named)
    faults = Faults(source.name)
    part = Part(faults, scorer.width)
    documents = dict(whole_topics(rankings(read(source, form, faults), faults), scorer, part))
    if part.scattered:
        whole = gathered(source, form, part.scattered, faults)
        documents |= whole_topics(whole, scorer, Part(faults, scorer.width))
    faults.refuse()
    refuse_unrelated(part.topics, scorer, source.name)
    return Best(documents, [topic for topic in part.topics if topic not in scorer.position])
