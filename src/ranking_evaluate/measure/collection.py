"""One run of a collection: the figures of every judged topic, and an account of where every topic went."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from ranking_evaluate.measure.faults import Faults
from ranking_evaluate.measure.formats import Kind, sniff
from ranking_evaluate.measure.gathering import gathered
from ranking_evaluate.measure.parts import refuse_unrelated, scored
from ranking_evaluate.measure.processes import parts_of
from ranking_evaluate.measure.qrels import given_rows
from ranking_evaluate.measure.runs import rankings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ranking_evaluate.measure.figures import Scorer
    from ranking_evaluate.measure.parts import Part
    from ranking_evaluate.measure.sources import Source


class Measured(NamedTuple):
    """The figures of a run, and where every topic of both files went.

    Args:
        columns: The figures of every judged topic, as `Scorer.score` orders them.
        topics: How many topics the run has.
        without_run: The positions of the judged topics that the run does not rank.
        without_judgments: Topics of the run alone.
        scattered: Topics that stand in several places of the run.
        contradicted: How many topics have ranks that contradict their scores.
    """

    columns: Sequence[array[float]]
    topics: int
    without_run: Sequence[int]
    without_judgments: Sequence[bytes]
    scattered: Sequence[bytes]
    contradicted: int


def measure_file(source: Source, scorer: Scorer, processes: int = 1) -> Measured:
    """Return the figures of a run in a file.

    Args:
        source: The run.
        scorer: The judgments and rules.
        processes: By how many processes a large file is read at most.

    Raises:
        FileError: It cannot be used, is empty, or has no topic in common with the judgments.
    """
    form = sniff(source, Kind.RUN)
    faults = Faults(source.name)
    parts: list[Part] = []
    lines = 0
    seen: set[bytes] = set()
    scattered: dict[bytes, None] = {}
    for part in parts_of(source, form, scorer, processes):
        faults.extend(part.faults, lines)
        lines += part.lines
        scattered |= dict.fromkeys(topic for topic in part.topics if topic in seen or topic in part.scattered)
        seen.update(part.topics)
        parts.append(part)
    if scattered:
        # What was found of these topics before is replaced.
        parts.append(scored(gathered(source, form, scattered, faults), scorer, faults))
    faults.refuse()
    return _joined(parts, scorer, source.name, [*scattered])


def measure_given(run: Mapping[str, Mapping[str, float]], scorer: Scorer) -> Measured:
    """Return the figures of a run that is given as {topic: {document: score}}."""
    faults = Faults("run")
    part = scored(rankings(given_rows(run), faults), scorer, faults)
    faults.refuse()
    return _joined([part], scorer, "run", [])


def _joined(parts: Iterable[Part], scorer: Scorer, name: str, scattered: Sequence[bytes]) -> Measured:
    positions = array("q")
    columns = [array("d") for _ in range(scorer.width)]
    topics: dict[bytes, None] = {}
    contradicted = 0
    for part in parts:
        positions.extend(part.positions)
        for column, figures in zip(columns, part.columns, strict=True):
            column.extend(figures)
        topics |= dict.fromkeys(part.topics)
        contradicted += part.contradicted
    refuse_unrelated(topics, scorer, name)
    without_run = [position for topic, position in scorer.position.items() if topic not in topics]
    positions.extend(without_run)
    nothing = scorer.score([scorer.topics[position] for position in without_run], [()] * len(without_run))
    return Measured(
        columns=[_in_order(positions, (*column, *rest)) for column, rest in zip(columns, nothing, strict=True)],
        topics=len(topics),
        without_run=without_run,
        without_judgments=[topic for topic in topics if topic not in scorer.position],
        scattered=scattered,
        contradicted=contradicted,
    )


def _in_order(positions: Sequence[int], figures: Sequence[float]) -> array[float]:
    """Return the figures by the position of their topics; the last one of a topic counts."""
    column = array("d", bytes(8 * (max(positions) + 1)))
    for position, figure in zip(positions, figures, strict=True):
        column[position] = figure
    return column
