"""`ranking-evaluate measure`: the figures of whole collections, free and on this machine."""

from __future__ import annotations

import contextlib
import io
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ranking_evaluate.cli.options import Gain
from ranking_evaluate.cli.progress import reading
from ranking_evaluate.cli.streams import say, stop, stop_at_lines, tell, write
from ranking_evaluate.measure import account, table
from ranking_evaluate.measure.gate import Bound, bound_of, check
from ranking_evaluate.measure.processes import usable_processes
from ranking_evaluate.measure.rules import Rules
from ranking_evaluate.measure.session import Session, measure_runs
from ranking_evaluate.measure.sources import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ranking_evaluate.measure.compare import Comparison

FAILED: Final = 1

REPORTS: Final = {".html": "html", ".md": "markdown"}


class Like(StrEnum):
    """Whose figures to equal."""

    TREC_EVAL = "trec_eval"
    TREC_EVAL9 = "trec_eval9"


def measure(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ranked documents; one file may be - .")],
    qrels: Annotated[str, typer.Option(metavar="FILE", help="The judgments; - for standard input.")],
    k: Annotated[
        list[int] | None, typer.Option("--k", "-k", min=1, help="A cutoff; may be repeated. [default: 10]")
    ] = None,
    relevant_at_least: Annotated[
        float, typer.Option(metavar="GRADE", help="The lowest grade that is relevant (trec_eval's -l).")
    ] = 1,
    gain: Annotated[Gain, typer.Option(help="What a grade is worth to NDCG: itself, or 2^grade - 1.")] = Gain.LINEAR,
    like: Annotated[
        Like | None, typer.Option(help="Equal trec_eval 10 -c in every digit, or trec_eval 9 and pytrec_eval.")
    ] = None,
    condensed: Annotated[bool, typer.Option("--condensed", help="Drop unjudged documents before the cutoff.")] = False,
    ignore_identical_ids: Annotated[
        bool, typer.Option("--ignore-identical-ids", help="Drop documents that have the id of their topic.")
    ] = False,
    baseline: Annotated[
        str | None, typer.Option(metavar="RUN", help="The run that the others are held against. [of two: the first]")
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write every topic's figures: run, topic, k, figure, value.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page (.html), or a text for a pull request (.md).")
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write all in full; - for standard output."),
    ] = None,
    fail_under: Annotated[
        list[str] | None, typer.Option(metavar="FIGURE@K=X", help="Exit with 1 when a mean is below X.")
    ] = None,
    max_drop: Annotated[
        list[str] | None,
        typer.Option(metavar="FIGURE@K=X", help="Exit with 1 when a mean is more than X below the baseline's."),
    ] = None,
) -> None:
    """Measure whole runs against judgments: a row for each run and cutoff, of any size, free.

    Read are TREC, MS MARCO and BEIR files, JSON and JSON Lines, each also compressed with gzip. Documents are ranked by
    score, then by id, both descending; an unjudged one is not relevant. A topic whose figure is undefined is left out
    of that mean, and the table says over how many it is. Where figures differ from trec_eval's, a line says so and why.

    Figures are p, recall, rr, ap, ndcg, success (hit rate) and judged. Of several runs `*` marks the best.

    Exit codes: 0 measured, and every threshold holds; 1 a threshold fails; 2 a file or an option cannot be used.
    """
    try:
        bounds = [
            *(bound_of(text, is_drop=False) for text in fail_under or ()),
            *(bound_of(text, is_drop=True) for text in max_drop or ()),
        ]
        rules = Rules(
            cutoffs=tuple(sorted({*(k or [10]), *(bound.k for bound in bounds)})),
            relevant_at_least=relevant_at_least,
            gain=gain.value,
            like=None if like is None else like.value,
            condensed=condensed,
            ignore_identical_ids=ignore_identical_ids,
        )
        paths = runs if baseline is None or baseline in runs else [baseline, *runs]
        _refuse_options(qrels, paths, baseline, bounds, report)
        _refuse_outputs([qrels, *paths], json_file, per_query, report)
        with reading(paths) as advance:
            judged = Source(qrels)
            sources = [Source(path, advance) for path in paths]
            chosen = sources[paths.index(baseline)] if baseline is not None else None
            session = measure_runs(judged, sources, rules, chosen, usable_processes())
    except ValueError as error:
        stop_at_lines(str(error))
    compared = _compared(session)
    gate = check(bounds, session.results, session.baseline)
    if json_file != "-":
        for line in _lines(session, compared):
            tell(line)
    for line in _remarks(session):
        say(line)
    outcome = [next(checked.lines()) for checked in gate]
    _write(session, compared, [judged, *sources], outcome, per_query, report, json_file)
    for checked in gate:
        for line in checked.lines():
            (say if json_file == "-" else tell)(line)
    if not all(checked.holds for checked in gate):
        raise typer.Exit(FAILED)


def _refuse_options(
    qrels: str, paths: Sequence[str], baseline: str | None, bounds: Sequence[Bound], report: Path | None
) -> None:
    """Raise ValueError for options that do not go together."""
    if [qrels, *paths].count("-") > 1:
        raise ValueError("standard input can be one file only")
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is given twice")
    if any(bound.is_drop for bound in bounds) and baseline is None and len(paths) != 2:
        raise ValueError("--max-drop needs a baseline: name one of the runs with --baseline")
    if baseline is not None and len(paths) == 1:
        raise ValueError("there is nothing to hold against the baseline: give another run")
    if report is not None and report.suffix not in REPORTS:
        raise ValueError(f"--report writes {' or '.join(REPORTS)}, and {report} ends in neither")


def _refuse_outputs(inputs: Sequence[str], json_file: str | None, per_query: Path | None, report: Path | None) -> None:
    """Raise ValueError where a file would be written over one that is read, or over another one that is written."""
    if str(per_query) == "-":
        raise ValueError("--per-query writes a file; --json - writes every figure to standard output")
    taken = {Path(path).resolve() for path in inputs if path != "-"}
    for output in (json_file, per_query, report):
        if output is None or output == "-":
            continue
        if Path(output).resolve() in taken:
            raise ValueError(f"{output} would be written over: choose another file")
        taken.add(Path(output).resolve())


def _compared(session: Session) -> Sequence[Comparison]:
    if session.baseline is None:
        return ()
    from ranking_evaluate.measure.compare import compare

    return compare(session.baseline, session.others)


def _lines(session: Session, compared: Sequence[Comparison]) -> Iterator[str]:
    yield from table.means(session.results)
    if session.baseline is not None:
        yield ""
        yield from table.comparisons(compared, session.baseline.name)


def _remarks(session: Session) -> Iterator[str]:
    """Yield what should be known of the runs; what is true of all of them once."""
    told: dict[str, list[str]] = {}
    for result in session.results:
        for text in account.remarks(result):
            told.setdefault(text, []).append(result.name)
    for text, names in told.items():
        yield text if len(names) == len(session.results) else f"{', '.join(names)}: {text}"


def _write(
    session: Session,
    compared: Sequence[Comparison],
    files: Sequence[Source],
    gate: Sequence[str],
    per_query: Path | None,
    report: Path | None,
    json_file: str | None,
) -> None:
    try:
        if json_file is not None:
            from ranking_evaluate.measure.documents import write_json

            if json_file == "-" and sys.stdout.isatty():
                shown = io.BytesIO()
                write_json(shown, session, files, compared)
                write(shown.getvalue())
            else:
                with (
                    contextlib.nullcontext(sys.stdout.buffer)
                    if json_file == "-"
                    else Path(json_file).open("wb") as file
                ):
                    write_json(file, session, files, compared)
        if per_query is not None:
            from ranking_evaluate.measure.documents import write_rows

            with per_query.open("w", encoding="utf-8", newline="") as text:
                write_rows(text, session.results)
        if report is not None:
            from ranking_evaluate.interchange.report.render import Form, collection_section, written
            from ranking_evaluate.interchange.report.whole import of_session

            section = collection_section(1, "Whole collection", of_session(session, compared, files, gate))
            report.write_text(written([section], Form(REPORTS[report.suffix])), encoding="utf-8")
    except OSError as error:
        stop(f"{error.filename or 'standard output'}: {error.strerror}")
