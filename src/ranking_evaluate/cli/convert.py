"""`ranking-evaluate convert` and `merge`: from other people's files to inputs, and from many answers to one mean."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from ranking_evaluate.cli.options import Gain
from ranking_evaluate.cli.progress import reading
from ranking_evaluate.cli.streams import name_of, say, stop, stop_at_lines, write
from ranking_evaluate.core.visible import visible
from ranking_evaluate.interchange.convert import Conversion
from ranking_evaluate.interchange.convert import convert as convert_files
from ranking_evaluate.interchange.merge import MergeError
from ranking_evaluate.interchange.merge import merge as merge_lines
from ranking_evaluate.measure.account import count, named
from ranking_evaluate.measure.best import read_best
from ranking_evaluate.measure.faults import TOLD
from ranking_evaluate.measure.figures import Scorer
from ranking_evaluate.measure.formats import Named
from ranking_evaluate.measure.qrels import read_qrels
from ranking_evaluate.measure.rules import Rules
from ranking_evaluate.measure.sources import Source


def convert(
    qrels: Annotated[str, typer.Option(metavar="FILE", help="The judgments; - for standard input.")],
    run: Annotated[str, typer.Option(metavar="FILE", help="The ranked documents; - for standard input.")],
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=100, help="The cutoff: ranks 1 to k count.")] = 10,
    relevant_at_least: Annotated[
        float, typer.Option(metavar="GRADE", help="The lowest grade that is relevant (trec_eval's -l).")
    ] = 1,
    gain: Annotated[Gain, typer.Option(help="What a grade is worth to NDCG: itself, or 2^grade - 1.")] = Gain.LINEAR,
    allow_omitted: Annotated[
        bool, typer.Option("--allow-omitted", help="Write the other topics when some cannot fit an input.")
    ] = False,
    form: Annotated[
        Named, typer.Option("--format", help="The format of both files; auto looks at the beginning of each.")
    ] = Named.AUTO,
) -> None:
    """Turn judgments and a run into inputs for `score --lines`, one per line; ranked and judged as trec_eval 10 does.

    Reads what `measure` reads. Documents are ranked by score (in double precision), then by id, both descending; an
    unjudged one counts as not relevant. Fractional grades are kept, where trec_eval cuts them to integers. Each input
    is within every limit of the service, and holds the first k documents of each topic and the judgments that the
    figures at k depend on. Standard error accounts for every topic of both files.

    A topic that cannot fit an input stops the command before it writes anything, unless --allow-omitted is given: then
    a last line tells which are omitted, and `score --lines` and `merge` pass it on.

    The figures of a whole collection are then: convert ... | score --lines - | merge - ; `measure` gives them at once,
    without the service's limits.

    Exit codes: 0 written; 2 a file cannot be used, or a topic cannot fit.
    """
    if qrels == run == "-":
        stop("standard input can be one file only")
    try:
        rules = Rules(cutoffs=(k,), relevant_at_least=relevant_at_least, gain=gain.value)
        judgments = read_qrels(Source(qrels), rules, form)
        with reading([run]) as advance:
            best = read_best(Source(run, advance), Scorer(judgments, rules), form)
        conversion = convert_files(judgments, best, rules)
    except ValueError as error:
        stop_at_lines(str(error))
    say(account(conversion))
    if conversion.omitted and not allow_omitted:
        stop("Nothing was written. With --allow-omitted the topics that fit are written, without these.")
    if not conversion.inputs:
        stop("Nothing was written: no topic is left.")
    for line in conversion.inputs:
        write(line + b"\n")
    if conversion.trailer is not None:
        write(conversion.trailer + b"\n")


def merge(
    file: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="FILE", help="Responses, one per line, or - for standard input."),
    ],
) -> None:
    """Join the responses of `score --lines` into the macro averages over all their queries.

    The averages are taken over the queries, exactly as in one large answer, and not over the averages of the lines.
    Responses of different cutoffs, thresholds of relevance, conventions or releases, a query that occurs twice, and
    refused inputs are errors. The output states the release, k and the conventions, and what `convert` omitted.

    Exit codes: 0 joined; 2 not.
    """
    try:
        merged = merge_lines(file)
    except MergeError as error:
        stop(f"{name_of(file)}, {error}")
    write(merged.document + b"\n")
    for remark in merged.remarks:
        say(remark)


def account(conversion: Conversion) -> str:
    """Return where every topic went, for people."""
    written, omitted = conversion.written, conversion.omitted
    total = len(written) + len(omitted)
    inputs = count(len(conversion.inputs), "input")
    paragraphs = [f"{count(total, 'judged topic')}: {len(written):,} in {inputs}, {len(omitted):,} that cannot fit."]
    if omitted:
        told = [f"  {visible(topic)}: {reason}" for topic, reason in islice(omitted.items(), TOLD)]
        more = [f"  and {len(omitted) - TOLD:,} more"] if len(omitted) > TOLD else []
        paragraphs.append("\n".join(["Cannot fit:", *told, *more]))
    undefined = [topic for topic in conversion.without_relevant if topic not in set(conversion.without_gain)]
    remarks = {
        "The run ranks nothing, so nothing is retrieved": conversion.without_run,
        "No grade above 0, so recall, reciprocal rank, average precision and NDCG are undefined and not averaged, "
        "where trec_eval counts 0": conversion.without_gain,
        "No relevant judgment, so recall, reciprocal rank and average precision are undefined and not averaged, where "
        "trec_eval counts 0": undefined,
        "In the run without judgments, so left out, as trec_eval does": conversion.without_judgments,
    }
    paragraphs += [
        f"{remark}: {named([topic.encode() for topic in topics])}." for remark, topics in remarks.items() if topics
    ]
    if conversion.negative_grades:
        paragraphs.append(f"{count(conversion.negative_grades, 'negative grade')} became 0.")
    if conversion.fractional_grades:
        paragraphs.append(
            f"{count(conversion.fractional_grades, 'fractional grade')} kept; trec_eval cuts them to integers."
        )
    return "\n".join(paragraphs)
