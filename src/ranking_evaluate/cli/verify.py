"""`ranking-evaluate verify`: does a response belong to an input, to the last byte?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import orjson
import typer

from ranking_evaluate.cli.streams import REFUSED, refuse, say, stop, tell
from ranking_evaluate.contract import verify as contract
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.interchange import omitted
from ranking_evaluate.measure.account import count

DIFFERS: Final = 1


def verify(
    response: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="RESPONSE", help="The response, as it was delivered; - for standard input."),
    ],
    input_file: Annotated[
        typer.FileBinaryRead, typer.Option("--input", metavar="FILE", help="The input that it is said to answer.")
    ],
    lines: Annotated[
        bool, typer.Option("--lines", help="One response and one input per line; also taken where there are several.")
    ] = False,
) -> None:
    """Check that a response is the right one for an input: both digests and every figure are computed again.

    Needs no network: the operation is the one that the response names. What differs is listed, one place per line, as
    a JSON pointer into the response. White space around the response does not matter.

    The output of `score --lines` is checked line by line against the lines of its input.

    Exit codes: 0 it holds; 1 it differs; 2 this is not a response, or the input is refused, so nothing can be compared.
    """
    given, body = response.read(), input_file.read()
    if lines or _has_lines(given):
        _verify_lines(given.splitlines(), body.splitlines())
        return
    try:
        found = contract.verify(given, body)
    except contract.Unusable as error:
        stop(str(error))
    except OperationError as error:
        refuse(error)
    if not found.differences:
        tell(f"The response holds: {found.operation} {found.version}, byte for byte.")
        tell(f"  input  SHA-256 {found.input_sha256}")
        tell(f"  output SHA-256 {found.output_sha256}")
        return
    tell(
        f"The response differs in {count(len(found.differences), 'place')} from what {found.operation} {found.version} "
        "answers to this input:"
    )
    for difference in found.differences:
        tell(f"  {difference.pointer or 'the response'} {difference.text}")
    raise typer.Exit(DIFFERS)


def _has_lines(given: bytes) -> bool:
    """Return whether this is a response on each of several lines, and not one that is written over several."""
    content = [line for line in given.splitlines() if line.strip()]
    if len(content) < 2:
        return False
    try:
        orjson.loads(content[0])
    except orjson.JSONDecodeError:
        return False
    return True


def _verify_lines(responses: Sequence[bytes], inputs: Sequence[bytes]) -> None:
    """Check each response against the input in the line of the same number, and say which lines do not hold."""
    if len(responses) != len(inputs):
        stop(f"There are {count(len(responses), 'response')} and {count(len(inputs), 'input')}: line n answers line n.")
    holding = unusable = 0
    for number, (given, body) in enumerate(zip(responses, inputs, strict=True), 1):
        if omitted.read(body) is not None and given == body:
            continue
        try:
            found = contract.verify(given, body)
        except contract.Unusable as error:
            say(f"line {number}: {error}")
            unusable += 1
        except OperationError as error:
            say(f"line {number}: the input is refused ({error.code}): {error.detail}")
            unusable += 1
        else:
            holding += not found.differences
            for difference in found.differences:
                tell(f"line {number}: {difference.pointer or 'the response'} {difference.text}")
    checked = sum(omitted.read(body) is None for body in inputs)
    tell(f"{holding:,} of {count(checked, 'response')} {'holds' if holding == 1 else 'hold'}, byte for byte.")
    if unusable:
        raise typer.Exit(REFUSED)
    if holding < checked:
        raise typer.Exit(DIFFERS)
