"""A run: one topic after the other with the documents that were retrieved for it, never the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TYPE_CHECKING

from ranking_evaluate.measure.faults import shown
from ranking_evaluate.measure.numbers import rank_of, score_of, scores_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ranking_evaluate.measure.faults import Faults
    from ranking_evaluate.measure.rows import Rows


@dataclass(slots=True)
class Ranking:
    """What a run has for one topic, as far as it stands together.

    Args:
        topic: Its id.
        documents: In the order of the file.
        scores: As many.
        lines: The number of each one's line.
        is_contradicted: Whether the file ranks a document with a higher score below one with a lower.
    """

    topic: bytes
    documents: list[bytes]
    scores: list[float]
    lines: list[Sequence[int]] = field(default_factory=list)
    is_contradicted: bool = False

    def refuse_duplicates(self, faults: Faults) -> None:
        """Remember each document that is ranked a second time as a fault."""
        if len(set(self.documents)) == len(self.documents):
            return
        seen: set[bytes] = set()
        lines = [*chain.from_iterable(self.lines)]
        for index, document in enumerate(self.documents):
            if document in seen:
                place = lines[index] if lines else f"query {shown(self.topic)}"
                faults.add(place, f"document {shown(document)} is ranked a second time for topic {shown(self.topic)}")
            seen.add(document)


def rankings(content: Iterable[Rows], faults: Faults) -> Iterator[Ranking]:
    """Yield what stands together for each topic; one that comes in several places is yielded for each of them."""
    current: Ranking | None = None
    for given in content:
        rows, scores = scored_rows(given, faults)
        start = 0
        for topic, group in groupby(rows.topics):
            end = start + len([*group])
            if current is not None and topic == current.topic:
                current.documents += rows.documents[start:end]
                current.scores += scores[start:end]
            else:
                if current is not None:
                    yield current
                current = Ranking(topic, rows.documents[start:end], scores[start:end])
                # One part of a topic is enough to see whether its ranks go the other way.
                current.is_contradicted = _is_contradicted(rows.ranks[start:end], current.scores)
            if rows.lines:
                current.lines.append(rows.lines[start:end])
            start = end
    if current is not None:
        yield current


def scored_rows(rows: Rows, faults: Faults) -> tuple[Rows, list[float]]:
    """Return the rows that have a score, and the scores; without one the rank stands for it, the least being best."""
    if not rows.figures:
        ranks = [*map(rank_of, rows.ranks)]
        if None in ranks:
            for index in (index for index, rank in enumerate(ranks) if rank is None):
                faults.add(rows.place(index), f"the rank {shown(rows.ranks[index])} is not a whole number")
            rows = rows.without(index for index, rank in enumerate(ranks) if rank is None)
        return rows._replace(ranks=[]), [-float(rank) for rank in ranks if rank is not None]
    scores = scores_of(rows.figures)
    if scores is not None:
        return rows, scores
    each = [*map(score_of, rows.figures)]
    bad = [index for index, score in enumerate(each) if score is None]
    for index in bad:
        faults.add(rows.place(index), f"the score {shown(rows.figures[index])} is not a number")
    return rows.without(bad), [score for score in each if score is not None]


def _is_contradicted(ranks: list[bytes], scores: list[float]) -> bool:
    """Return whether the better scored of the first and the last document is the worse ranked, as with distances."""
    if not ranks or scores[0] == scores[-1]:
        return False
    first, last = rank_of(ranks[0]), rank_of(ranks[-1])
    return first is not None and last is not None and first != last and (first > last) == (scores[0] > scores[-1])
