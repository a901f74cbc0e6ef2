"""The figures as JSON and CSV, written as they are made: a large collection is never held as text."""

from __future__ import annotations

import csv
from typing import IO, TYPE_CHECKING, Any

import orjson

from ranking_evaluate.core.canonical import spelled
from ranking_evaluate.measure.figures import NAMES
from ranking_evaluate.release import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ranking_evaluate.measure.compare import Comparison
    from ranking_evaluate.measure.figures import Counts, Figures
    from ranking_evaluate.measure.results import Result
    from ranking_evaluate.measure.sampling import Test
    from ranking_evaluate.measure.session import Session
    from ranking_evaluate.measure.sources import Source

_COLUMNS = ("run", "topic", "k", "figure", "value")


def write_json(file: IO[bytes], session: Session, files: Sequence[Source], compared: Sequence[Comparison]) -> None:
    """Write everything in full precision as one JSON object."""
    write = file.write
    results = session.results
    head = {
        "release": VERSION,
        "conventions": results[0].rules.conventions,
        "files": [{"path": source.path, "sha256": source.sha256()} for source in files],
    }
    write(_json(head)[:-1] + b',"runs":[')
    for at, result in enumerate(results):
        summary = {
            "run": result.name,
            "means": _by_cutoff(result.means),
            "counts": _by_cutoff(result.counts),
        }
        write(b"," * bool(at) + _json(summary)[:-1] + b',"queries":{')
        for index, (topic, figures) in enumerate(result.queries.items()):
            write(b"," * bool(index) + _json(topic) + b":" + _json(_by_cutoff(figures)))
        write(b"}}")
    write(b"]")
    if session.baseline is not None:
        write(b',"comparisons":' + _json(comparisons(session.baseline.name, compared)))
    write(b"}\n")


def write_rows(file: IO[str], results: Sequence[Result]) -> None:
    """Write a CSV table with a row for each figure of each topic of each run; an undefined one is empty."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(_COLUMNS)
    for result in results:
        for topic, by_cutoff in result.queries.items():
            for k, figures in by_cutoff.items():
                table.writerows(
                    (result.name, topic, k, name, "" if value is None else repr(value))
                    for name, value in zip(NAMES, figures, strict=True)
                )


def comparisons(baseline: str, compared: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return an object for each run that is held against the baseline."""
    runs: dict[str, dict[str, dict[str, Any]]] = {}
    for one in compared:
        runs.setdefault(one.run, {}).setdefault(str(one.k), {})[one.figure] = {
            "topics": one.topics,
            "meanDifference": one.mean_difference,
            "wins": one.wins,
            "ties": one.ties,
            "losses": one.losses,
            "isSame": one.is_same,
            "tests": {name: _test(test) for name, test in one.tests.items()},
        }
    return [{"baseline": baseline, "run": run, "figures": figures} for run, figures in runs.items()]


def _test(test: Test) -> dict[str, Any]:
    if test.p is None:
        return {"p": None, "reason": test.method}
    sampled = {} if test.standard_error is None else {"standardError": test.standard_error}
    return {"p": test.p, "holm": test.holm, "method": test.method, **sampled}


def _by_cutoff(found: Mapping[int, Figures] | Mapping[int, Counts]) -> dict[str, dict[str, Any]]:
    return {str(k): one._asdict() for k, one in found.items()}


def _json(value: Any) -> bytes:  # noqa: ANN401
    return orjson.dumps(spelled(value))
