"""Files for the tests of measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranking_evaluate.measure.collection import Measured, measure_file
from ranking_evaluate.measure.faults import Faults
from ranking_evaluate.measure.figures import Scorer
from ranking_evaluate.measure.formats import Kind, sniff
from ranking_evaluate.measure.qrels import Qrels, read_qrels
from ranking_evaluate.measure.rows import read
from ranking_evaluate.measure.rules import Rules
from ranking_evaluate.measure.runs import rankings
from ranking_evaluate.measure.sources import Source


def written(folder: Path, name: str, content: str | bytes) -> str:
    """Return the path of a new file."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def grades(path: str, **rules: Any) -> dict[str, dict[str, float]]:
    """Return the grades that are read from a file."""
    found = read_qrels(Source(path), Rules(**rules)).grades
    return {topic.decode(): {one.decode(): grade for one, grade in of.items()} for topic, of in found.items()}


def scores(path: str) -> dict[str, dict[str, float]]:
    """Return the scores that are read from a run; what is wrong with it is raised."""
    source = Source(path)
    faults = Faults(source.name)
    found: dict[str, dict[str, float]] = {}
    for ranking in rankings(read(source, sniff(source, Kind.RUN), faults), faults):
        ranking.refuse_duplicates(faults)
        of_topic = found.setdefault(ranking.topic.decode(), {})
        of_topic |= zip([one.decode() for one in ranking.documents], ranking.scores, strict=True)
    faults.refuse()
    return found


def judged(judgments: dict[bytes, dict[bytes, float]]) -> Qrels:
    """Return judgments as they are held."""
    return Qrels(judgments)


def measured(path: str, judgments: Qrels, processes: int = 1, **rules: Any) -> Measured:
    """Return what is measured of a run."""
    return measure_file(Source(path), Scorer(judgments, Rules(**rules)), processes)
