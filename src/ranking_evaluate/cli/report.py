"""`ranking-evaluate report`: saved responses as a page that people look at."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Annotated

import typer

from ranking_evaluate.cli.streams import name_of, stop, write
from ranking_evaluate.interchange.report.read import Named, ReportError
from ranking_evaluate.interchange.report.render import Form, render


def report(
    responses: Annotated[
        list[typer.FileBinaryRead],
        typer.Argument(
            metavar="RESPONSE...",
            help="Saved responses, one in a file or in each line, or whole collections; - for standard input.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="What to write; - for standard output.")
    ],
    inputs: Annotated[
        list[typer.FileBinaryRead] | None,
        typer.Option(
            "--input", metavar="FILE", help="An input that a response answers; may be repeated, in any order."
        ),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="A page, a text for a pull request, or a table.")] = Form.HTML,
    raw_ids: Annotated[
        bool, typer.Option("--raw-ids", help="In CSV, write ids as they are: for joins, and for no spreadsheet.")
    ] = False,
) -> None:
    """Show saved responses: averages with their denominators, every query and ranking, what was missed, and why not.

    What `measure --json` and `merge` write is shown too, and so are the responses of many lines: the overall averages
    first, how the topics are spread, the best and the worst of them.

    The page stands alone: it needs no network and runs no script. The digest of each result is checked; with --input
    the whole response is computed again. The same files give the same bytes.

    In CSV every cell is quoted, and a text that a spreadsheet would take for a formula gets an apostrophe before it, on
    each of its lines, unless --raw-ids is given.

    Exit codes: 0 written, whatever the digests say; 2 a file is no response.
    """
    if output.resolve() in {Path(name_of(file)).resolve() for file in (*responses, *(inputs or ()))}:
        stop(f"{output} would be written over: choose another file.")
    try:
        text = render(
            [_named(file) for file in responses], [_named(file) for file in inputs or ()], form, raw_ids=raw_ids
        )
    except ReportError as error:
        stop(str(error))
    content = text.encode()
    if str(output) == "-":
        write(content)
    else:
        try:
            output.write_bytes(content)
        except OSError as error:
            stop(f"{output}: {error.strerror}")


def _named(file: IO[bytes]) -> Named:
    # The folder is the business of the machine, not of the reader.
    return Named(Path(name_of(file)).name, file.read())
