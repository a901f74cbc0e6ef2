"""`ranking-evaluate score`: the paid answer, free and on this machine."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Event, Semaphore
from typing import IO, Annotated, Any, Final, TypeAlias

import orjson
import typer

from ranking_evaluate.cli.streams import problem, refuse, stop, write, write_answer
from ranking_evaluate.contract.answer import Answer, answer
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.core.intake import RAW_BYTES
from ranking_evaluate.evaluations.processes import Evaluated, WorkerLost, Workers, cores
from ranking_evaluate.interchange import omitted
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.operation import Operation

# One byte over the limit is enough for the operation to refuse a body, however long it goes on.
_ENOUGH: Final = RAW_BYTES + 1

SECONDS_ALONE: Final = 1.0
"""How long lines are scored by this process alone: for fewer it is not worth while to start others."""

BATCH_BYTES: Final = 65_536
"""What is read at once, and how much of it one worker is given: alone, short lines would cost more than they save."""

BATCHES_AHEAD: Final = 3
"""How many batches are read ahead for each core."""

Batch: TypeAlias = tuple[int, list[bytes]]
"""The bodies of some lines, and their size in the file."""


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
    with _progress(file) as advance:
        written = _Written(advance)
        batches = _batches(file)
        began = time.monotonic()
        for size, bodies in batches:
            written.add(size, bodies, map(partial(_outcome, operation), bodies))
            if time.monotonic() - began > SECONDS_ALONE:
                _score_on_every_core(operation, batches, written)
    if written.refused:
        stop(
            f"Refused: {written.refused} of {written.count} inputs, the first in line {written.first_refused}. "
            "Each problem is in its own line."
        )


class _Written:
    """Writes outcomes, a line each, and counts them."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance
        self.count = self.refused = self.first_refused = 0

    def add(self, size: int, bodies: Iterable[bytes], outcomes: Iterable[Answer | OperationError]) -> None:
        """Write the outcomes of the next inputs, which have that size in the file."""
        for body, outcome in zip(bodies, outcomes, strict=True):
            self.count += 1
            if isinstance(outcome, Answer):
                output = outcome.body
            elif omitted.read(body) is not None:
                # What `convert` omitted is no input: it is told to whoever merges.
                output = body
            else:
                self.refused += 1
                self.first_refused = self.first_refused or self.count
                output = orjson.dumps(problem(outcome))
            # Written at once, so that a program at the other end of a pipe can wait for its answer.
            write(output + b"\n")
        self._advance(size)


def _outcome(operation: Operation[Any], body: bytes) -> Answer | OperationError:
    try:
        return answer(operation, body)
    except OperationError as error:
        return error


def _score_on_every_core(operation: Operation[Any], batches: Iterator[Batch], written: _Written) -> None:
    """Score the rest in worker processes; this thread reads, another one writes the outcomes in their order."""
    workers = Workers(cores())
    coming: SimpleQueue[tuple[int, list[bytes], Future[list[Evaluated]]] | None] = SimpleQueue()
    room, ended = Semaphore(BATCHES_AHEAD * cores()), Event()

    def write_all() -> None:
        try:
            while (next_one := coming.get()) is not None:
                size, bodies, evaluations = next_one
                written.add(size, bodies, (evaluated.outcome for evaluated in evaluations.result()))
                room.release()
        finally:
            # The reader must not wait for a writer that is gone.
            ended.set()
            room.release()

    with ThreadPoolExecutor(1) as writer, contextlib.closing(workers):
        writing = writer.submit(write_all)
        try:
            for size, bodies in batches:
                room.acquire()
                if ended.is_set():
                    break
                coming.put((size, bodies, workers.submit(operation, bodies)))
        finally:
            coming.put(None)
        try:
            writing.result()
        except WorkerLost as error:
            stop(f"Line {written.count + 1} or one soon after it was not scored: {error}.", code=1)


def _batches(file: IO[bytes]) -> Iterator[Batch]:
    """Yield the bodies of all lines that are there already, and their size in the file.

    A body above the limit is cut short there, which is still above it.
    """
    # What was opened for reading bytes has this method.
    read_what_is_there: Callable[[int], bytes] = file.read1  # type: ignore[attr-defined]
    begun = b""
    size = 0
    while chunk := read_what_is_there(BATCH_BYTES):
        *lines, begun = (begun + chunk).split(b"\n")
        begun = begun[:_ENOUGH]
        size += len(chunk)
        if lines:
            yield size, [line[:_ENOUGH] for line in lines]
            size = 0
    if begun:
        yield size, [begun]


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
