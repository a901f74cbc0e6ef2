"""What was found in a run, or in a part of one: the figures of its topics, and an account of them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from ranking_evaluate.measure.faults import FileError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ranking_evaluate.measure.faults import Faults
    from ranking_evaluate.measure.figures import Scorer
    from ranking_evaluate.measure.runs import Ranking

# So many topics are scored at a time: one by one takes half as long again.
_BATCH: Final = 64


@dataclass(slots=True)
class Part:
    """The topics of a run, or of a part of one.

    Args:
        faults: What is wrong with it.
        width: How many figures a topic has at all cutoffs together.
        topics: The ids, in the order of the file, of all topics in it.
        scattered: Those that stand in several places of it; the figures are of the first place alone.
        positions: Of the topics that have judgments, the position among the judged ones.
        columns: As `Scorer.score` returns them, with as many entries.
        contradicted: How many topics have ranks that contradict their scores.
        lines: How many lines it has.
    """

    faults: Faults
    width: int
    topics: list[bytes] = field(default_factory=list)
    scattered: set[bytes] = field(default_factory=set)
    positions: array[int] = field(default_factory=lambda: array("q"))
    columns: list[array[float]] = field(default_factory=list)
    contradicted: int = 0
    lines: int = 0

    def __post_init__(self) -> None:
        self.columns = [array("d") for _ in range(self.width)]


def whole_topics(content: Iterable[Ranking], scorer: Scorer, part: Part) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """Yield each judged topic with the documents that count, best first; all else is noted in the part.

    Where a topic stands in several places, what it has in the first is yielded.
    """
    seen: set[bytes] = set()
    for ranking in content:
        topic = ranking.topic
        if topic in seen:
            part.scattered.add(topic)
            continue
        seen.add(topic)
        part.topics.append(topic)
        part.contradicted += ranking.is_contradicted
        ranking.refuse_duplicates(part.faults)
        if topic in scorer.position:
            yield topic, scorer.ranked(ranking)


def refuse_unrelated(topics: Iterable[bytes], scorer: Scorer, name: str) -> None:
    """Raise FileError when a run has no topic, or none that is judged."""
    found = [*topics]
    if not found:
        raise FileError(f"{name}: there is no ranked document in it")
    if scorer.position.keys().isdisjoint(found):
        raise FileError(
            f"{name}: no topic is in both files, so they do not belong together; its first topic is {shown(found[0])}, "
            f"and the first judged one is {shown(scorer.topics[0])}"
        )


def scored(content: Iterable[Ranking], scorer: Scorer, faults: Faults) -> Part:
    """Return the figures of all judged topics."""
    part = Part(faults, scorer.width)
    topics = whole_topics(content, scorer, part)
    while batch := [*islice(topics, _BATCH)]:
        names, rankings = zip(*batch, strict=True)
        part.positions.extend(map(scorer.position.__getitem__, names))
        for column, figures in zip(part.columns, scorer.score(names, rankings), strict=True):
            column.extend(figures)
    return part
