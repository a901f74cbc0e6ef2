"""`ranking-evaluate convert` and `merge`: from other people's files to inputs, and from many answers to one mean."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from ranking_evaluate.cli.streams import name_of, say, stop, write
from ranking_evaluate.core.visible import visible
from ranking_evaluate.interchange.convert import Conversion
from ranking_evaluate.interchange.convert import convert as convert_files
from ranking_evaluate.interchange.files import Format, load_qrels, load_run
from ranking_evaluate.interchange.merge import MergeError
from ranking_evaluate.interchange.merge import merge as merge_lines
from ranking_evaluate.interchange.rows import FileError


def convert(
    qrels: Annotated[
        typer.FileBinaryRead, typer.Option(metavar="FILE", help="The judgments: TREC qrels, or a BEIR table or JSON.")
    ],
    run: Annotated[
        typer.FileBinaryRead, typer.Option(metavar="FILE", help="The ranked documents: a TREC run, or BEIR.")
    ],
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=100, help="The cutoff: ranks 1 to k count.")] = 10,
    allow_omitted: Annotated[
        bool, typer.Option("--allow-omitted", help="Write the other topics when some cannot fit an input.")
    ] = False,
    form: Annotated[
        Format, typer.Option("--format", help="The format of both files; auto looks at the first line of each.")
    ] = Format.AUTO,
) -> None:
    """Turn TREC or BEIR files into inputs for `score --lines`, one per line, ranked and judged by trec_eval's rules.

    Documents are ranked by score, then by id, both descending; an unjudged one counts as not relevant. Each input is
    within every limit of the service, and holds the first k documents of each topic and the judgments that the figures
    at k depend on. Standard error accounts for every topic of both files.

    A topic that cannot fit an input stops the command before it writes anything, unless --allow-omitted is given.

    The figures of a whole collection are then: convert ... | score --lines - | merge -

    Exit codes: 0 written; 2 a file cannot be used, or a topic cannot fit.
    """
    try:
        grades = load_qrels(name_of(qrels), qrels, form)
        conversion = convert_files(grades, load_run(name_of(run), run, form), k)
    except FileError as error:
        stop(str(error))
    say(account(conversion))
    if conversion.omitted and not allow_omitted:
        stop("Nothing was written. With --allow-omitted the topics that fit are written, without these.")
    if not conversion.inputs:
        stop("Nothing was written: no topic is left.")
    for line in conversion.inputs:
        write(line + b"\n")


def merge(
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="Responses, one per line, or - for standard input."),
    ],
) -> None:
    """Join the responses of `score --lines` into the macro averages over all their queries.

    The averages are taken over the queries, exactly as in one large answer, and not over the averages of the lines.
    Responses of different cutoffs, conventions or releases, a query that occurs twice, and refused inputs are errors.

    Exit codes: 0 joined; 2 not.
    """
    try:
        write(merge_lines(file) + b"\n")
    except MergeError as error:
        stop(f"{name_of(file)}, {error}")


def account(conversion: Conversion) -> str:
    """Return where every topic went, for people."""
    written, omitted = conversion.written, conversion.omitted
    total = len(written) + len(omitted)
    inputs = _count(len(conversion.inputs), "input")
    paragraphs = [f"{_count(total, 'judged topic')}: {len(written):,} in {inputs}, {len(omitted):,} that cannot fit."]
    if omitted:
        reasons = (f"  {visible(topic)}: {reason}" for topic, reason in omitted.items())
        paragraphs.append("\n".join(["Cannot fit:", *reasons]))
    remarks = {
        "The run ranks nothing, so nothing is retrieved": conversion.without_run,
        "No relevant judgment, so recall, reciprocal rank and average precision are undefined and not averaged, where "
        "trec_eval counts 0": conversion.without_relevant,
        "In the run without judgments, so left out, as trec_eval does": conversion.without_judgments,
        "Scores differ in double precision alone and rank as ties, as in trec_eval 9": conversion.rounded_ties,
    }
    paragraphs += [f"{remark}: {_listed(topics)}." for remark, topics in remarks.items() if topics]
    if conversion.negative_grades:
        paragraphs.append(f"{_count(conversion.negative_grades, 'negative grade')} became 0.")
    if written and len(conversion.without_run) == len(written):
        paragraphs.append("No topic is in both files: do they belong together?")
    return "\n".join(paragraphs)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _listed(topics: Collection[str]) -> str:
    return f"{_count(len(topics), 'topic')} ({', '.join(map(visible, topics))})"
