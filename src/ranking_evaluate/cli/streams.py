"""What the free commands write: answers byte for byte on standard output, reasons on standard error."""

from __future__ import annotations

import json
import sys
from typing import IO, TYPE_CHECKING, Final, NoReturn

import typer

from ranking_evaluate.contract.errors import refusal

if TYPE_CHECKING:
    from ranking_evaluate.core.errors import OperationError

REFUSED: Final = 2


def name_of(file: IO[bytes]) -> str:
    """Return what error messages call a file."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) and name != "<stdin>" else "standard input"


def write(data: bytes) -> None:
    """Write bytes to standard output, and nothing else."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_answer(body: bytes) -> None:
    """Write a response to standard output: exactly its bytes, but on a terminal the prompt gets a line of its own."""
    write(body + b"\n" if sys.stdout.isatty() else body)


def problem(error: OperationError) -> dict[str, object]:
    """Return the problem with which the service would refuse, without the id of a request: there was none."""
    document = refusal(error).problem(request_id="", paid=False)
    del document["requestId"]
    return document


def refuse(error: OperationError) -> NoReturn:
    """End the command with the problem on standard error."""
    stop(json.dumps(problem(error), indent=2, ensure_ascii=False))


def stop(text: str, code: int = REFUSED) -> NoReturn:
    """End the command with a reason on standard error."""
    typer.echo(text, err=True)
    raise typer.Exit(code)
