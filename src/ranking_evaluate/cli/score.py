"""`ranking-evaluate score`: the paid answer, free and on this machine."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import IO, Annotated, Any, Final

import orjson
import typer

from ranking_evaluate.cli.streams import problem, refuse, stop, write, write_answer
from ranking_evaluate.contract.answer import answer
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.core.intake import RAW_BYTES
from ranking_evaluate.interchange import omitted
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation

# One byte over the limit is enough for the operation to refuse a body, however long it goes on.
_ENOUGH: Final = RAW_BYTES + 1


def score(
    file: Annotated[
        typer.FileBinaryRead, typer.Argument(metavar="FILE", help="The input JSON, or - for standard input.")
    ],
    operation: Annotated[
        str, typer.Option(metavar="ID", help="What to compute; the service sells it under the same id.")
    ] = registry.OPERATIONS[0].id,
    lines: Annotated[
        bool, typer.Option("--lines", help="One input per line in, one response or problem per line out.")
    ] = False,
) -> None:
    """Score an input on this machine, free: the output is byte for byte what the paid service answers.

    Exit codes: 0 scored; 2 refused, with the reason as a JSON problem on standard error.

    With --lines, output line n always answers input line n: a refused input gets its problem there, also a blank line.
    The exit code is then 2 when any line was refused. The line in which `convert` tells what it omitted stays as it is.
    """
    try:
        chosen = registry.find(operation)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--operation") from None
    if lines:
        _score_lines(chosen, file)
        return
    try:
        write_answer(answer(chosen, file.read(_ENOUGH)).body)
    except OperationError as error:
        refuse(error)


def _score_lines(operation: Operation[Any], file: IO[bytes]) -> None:
    count = refused = first_refused = 0
    with _progress(file) as advance:
        for count, (size, body) in enumerate(_bodies(file), 1):
            try:
                # What `convert` omitted is no input: it is told to whoever merges.
                output = body if omitted.read(body) is not None else answer(operation, body).body
            except OperationError as error:
                output = orjson.dumps(problem(error))
                refused += 1
                first_refused = first_refused or count
            # Written at once, so that a program at the other end of a pipe can wait for its answer.
            write(output + b"\n")
            advance(size)
    if refused:
        stop(
            f"Refused: {refused} of {count} inputs, the first in line {first_refused}. Each problem is in its own line."
        )


def _bodies(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the size and the body of every line; a body above the limit is cut short there, which is still above it."""
    while line := file.readline(_ENOUGH):
        size = len(line)
        body = line.removesuffix(b"\n")
        while not line.endswith(b"\n") and (line := file.readline(_ENOUGH)):
            size += len(line)
        yield size, body


@contextlib.contextmanager
def _progress(file: IO[bytes]) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error where somebody sees it and nothing is printed in between."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import Progress

    status = os.fstat(file.fileno())
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Scoring", total=total)
        yield lambda size: progress.advance(task, size)
