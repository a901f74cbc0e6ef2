"""Several runs against the same judgments: what the command reads before it writes anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ranking_evaluate.measure.collection import measure_file
from ranking_evaluate.measure.figures import Scorer
from ranking_evaluate.measure.qrels import read_qrels
from ranking_evaluate.measure.results import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ranking_evaluate.measure.rules import Rules
    from ranking_evaluate.measure.sources import Source


class Session(NamedTuple):
    """The runs, and which of them the others are held against, if any."""

    results: Sequence[Result]
    baseline: Result | None

    @property
    def others(self) -> Sequence[Result]:
        """The runs that are held against the baseline."""
        return [result for result in self.results if result is not self.baseline]


def measure_runs(
    qrels: Source, runs: Sequence[Source], rules: Rules, baseline: Source | None, processes: int
) -> Session:
    """Return the figures of all runs; of two runs the first is the baseline, unless one is named.

    Args:
        qrels: The judgments.
        runs: The runs, in the order in which they are shown.
        rules: By which they are measured.
        baseline: One of them.
        processes: By how many processes a large file is read at most.

    Raises:
        FileError: A file cannot be used.
    """
    judgments = read_qrels(qrels, rules)
    scorer = Scorer(judgments, rules)
    names = _names(runs)
    results = [
        Result(name, judgments, rules, measure_file(source, scorer, processes))
        for name, source in zip(names, runs, strict=True)
    ]
    chosen = results[runs.index(baseline)] if baseline is not None else results[0] if len(results) == 2 else None
    return Session(results, chosen)


def _names(runs: Sequence[Source]) -> list[str]:
    """Return what runs are called: their files' names, with the folders where they are not different."""
    names = [Path(source.name).name for source in runs]
    return names if len(set(names)) == len(names) else [source.name for source in runs]
