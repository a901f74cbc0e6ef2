"""Everything that a command writes: exact bytes, and words for people, which reach a terminal without its commands.

Much of it was written by others: a server, a chain, a file. A terminal obeys control characters (it sets the clipboard,
or types for its owner), so none is printed. `tests/cli/test_terminal.py` holds every command against a hostile one.
"""

from __future__ import annotations

import json
import sys
from typing import IO, TYPE_CHECKING, Final, NoReturn

import typer

from ranking_evaluate.contract.errors import refusal
from ranking_evaluate.core.visible import visible

if TYPE_CHECKING:
    from ranking_evaluate.core.errors import OperationError

REFUSED: Final = 2


def name_of(file: IO[bytes]) -> str:
    """Return what error messages call a file."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) and name != "<stdin>" else "standard input"


def printable(text: str) -> str:
    """Return our own lines as they may be printed; what others wrote in them is made visible where it is put in.

    Here is the second look: after it, line breaks alone are left of what a terminal obeys.
    """
    return "\n".join(map(visible, text.split("\n")))


def tell(text: str) -> None:
    """Print what was asked for, for people, on standard output."""
    typer.echo(printable(text))


def say(text: str) -> None:
    """Print what happens, or went wrong, on standard error."""
    typer.echo(printable(text), err=True)


def write(data: bytes) -> None:
    """Write bytes to standard output, and nothing else; a terminal is shown them as far as they are harmless."""
    if sys.stdout.isatty():
        data = printable(data.decode(errors="backslashreplace")).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_answer(body: bytes) -> None:
    """Write a response to standard output: exactly its bytes, but a terminal is shown it on one line of its own."""
    if sys.stdout.isatty():
        tell(visible(body.decode(errors="backslashreplace")))
    else:
        write(body)


def problem(error: OperationError) -> dict[str, object]:
    """Return the problem with which the service would refuse, without the id of a request: there was none."""
    document = refusal(error).problem(request_id="", paid=False)
    del document["requestId"]
    return document


def refuse(error: OperationError) -> NoReturn:
    """End the command with the problem on standard error."""
    # In ASCII, since it is JSON: a character that was made visible would be another one.
    say(json.dumps(problem(error), indent=2))
    raise typer.Exit(REFUSED)


def stop_at_lines(text: str) -> NoReturn:
    """End the command with several reasons on standard error, a line each."""
    say(text)
    raise typer.Exit(REFUSED)


def stop(text: str, code: int = REFUSED) -> NoReturn:
    """End the command with a reason on standard error, which is one line."""
    say(visible(text))
    raise typer.Exit(code)
