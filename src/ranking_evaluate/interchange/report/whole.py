"""Whole collections for a report: from `measure` and the JSON that it writes, from `merge`, and from many responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from ranking_evaluate.interchange.merge import MergeError, merge
from ranking_evaluate.interchange.report.overview import Collection, Run
from ranking_evaluate.interchange.report.read import ReportError
from ranking_evaluate.measure import account
from ranking_evaluate.measure.documents import comparisons
from ranking_evaluate.operations.figures import LABELS
from ranking_evaluate.release import VERSION

if TYPE_CHECKING:
    from ranking_evaluate.measure.compare import Comparison
    from ranking_evaluate.measure.session import Session
    from ranking_evaluate.measure.sources import Source


def of_session(
    session: Session, compared: Sequence[Comparison], files: Sequence[Source], gate: Sequence[str]
) -> Collection:
    """Return the collection that was just measured.

    Args:
        session: The runs.
        compared: How they compare with the baseline.
        files: What was read.
        gate: Which thresholds hold and which fail, a line each.
    """
    results = session.results
    told: dict[str, list[str]] = {}
    for result in results:
        for text in account.remarks(result):
            told.setdefault(text, []).append(result.name)
    return Collection(
        source="measure",
        release=VERSION,
        topics=[*results[0].queries],
        total=len(results[0].topics),
        runs=[
            Run(
                result.name,
                {k: found._asdict() for k, found in result.means.items()},
                {k: found._asdict() for k, found in result.counts.items()},
                result.column,
            )
            for result in results
        ],
        comparisons=comparisons(session.baseline.name, compared) if session.baseline is not None else (),
        conventions=results[0].rules.conventions,
        files=[(Path(source.name).name, source.sha256()) for source in files],
        remarks=[
            *gate,
            *(text if len(names) == len(results) else f"{', '.join(names)}: {text}" for text, names in told.items()),
        ],
    )


def of_measured(name: str, document: Mapping[str, Any]) -> Collection:
    """Return the collection that `measure --json` wrote.

    Raises:
        ReportError: It is not what that writes.
    """
    try:
        runs = [_run(run) for run in document["runs"]]
        return Collection(
            source=name,
            release=str(document["release"]),
            topics=[*document["runs"][0]["queries"]],
            total=len(document["runs"][0]["queries"]),
            runs=runs,
            comparisons=document.get("comparisons", ()),
            conventions=[str(line) for line in document["conventions"]],
            files=[(Path(file["path"]).name, str(file["sha256"])) for file in document["files"]],
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ReportError(f"{name}: This is not whole: it lacks what measure --json writes.") from None


def _run(run: Mapping[str, Any]) -> Run:
    queries: Mapping[str, Any] = run["queries"]

    def column(k: int, name: str) -> list[float | None]:
        return [figures[str(k)][name] for figures in queries.values()]

    return Run(
        str(run["run"]),
        {int(k): dict(found) for k, found in run["means"].items()},
        {int(k): dict(found) for k, found in run["counts"].items()},
        column,
    )


def of_merged(name: str, document: Mapping[str, Any]) -> Collection:
    """Return the collection whose means `merge` wrote.

    Raises:
        ReportError: It is not what that writes.
    """
    try:
        k = int(document["k"])
        total = int(document["queryCount"])
        omitted = document["omitted"]
        means = {k: dict(document["macro"].items())}
        counts = {k: dict(document["definedQueryCounts"].items())}
        return Collection(
            source=name,
            release=str(document["release"]),
            topics=(),
            total=total,
            runs=[Run("all queries", means, counts, lambda k, figure: ())],
            # A response of another release may have a figure that is not listed here.
            labels={
                **dict[str, str](LABELS.items()),
                **{figure: figure for figure in means[k] if figure not in LABELS},
            },
            conventions=[str(line) for line in document["conventions"]],
            remarks=_omitted(total, [str(one["id"]) for one in omitted]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ReportError(f"{name}: This is not whole: it lacks what merge writes.") from None


def of_lines(name: str, lines: Sequence[bytes], results: Sequence[Mapping[str, Any]]) -> Collection | None:
    """Return the collection that the responses of a file make together; None when they cannot be joined.

    Args:
        name: The file.
        lines: Its lines.
        results: The results in them, all of ranking-evaluate.
    """
    try:
        merged = merge(lines)
    except MergeError:
        return None
    one = of_merged(name, orjson.loads(merged.document))
    queries = [query for result in results for query in result["queries"]]
    return one._replace(
        topics=[query["id"] for query in queries],
        runs=[one.runs[0]._replace(column=lambda k, figure: [query[figure] for query in queries])],
        remarks=[*one.remarks, *merged.remarks[bool(one.remarks) :]],
    )


def _omitted(total: int, ids: Sequence[str]) -> list[str]:
    if not ids:
        return []
    named = account.named([one.encode(errors="replace") for one in ids])
    return [f"{len(ids):,} of {total + len(ids):,} queries fit no input and are in no average: {named}."]
