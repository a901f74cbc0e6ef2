"""`ranking-evaluate verify`: does a response belong to an input, to the last byte?"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from ranking_evaluate.cli.streams import refuse, stop, tell
from ranking_evaluate.contract import verify as contract
from ranking_evaluate.core.errors import OperationError

DIFFERS: Final = 1


def verify(
    response: Annotated[
        typer.FileBinaryRead,
        typer.Argument(metavar="RESPONSE", help="The response, as it was delivered; - for standard input."),
    ],
    input_file: Annotated[
        typer.FileBinaryRead, typer.Option("--input", metavar="FILE", help="The input that it is said to answer.")
    ],
) -> None:
    """Check that a response is the right one for an input: both digests and every figure are computed again.

    Needs no network: the operation is the one that the response names. What differs is listed, one place per line, as
    a JSON pointer into the response. White space around the response does not matter.

    Exit codes: 0 it holds; 1 it differs; 2 this is not a response, or the input is refused, so nothing can be compared.
    """
    try:
        found = contract.verify(response.read(), input_file.read())
    except contract.Unusable as error:
        stop(str(error))
    except OperationError as error:
        refuse(error)
    if not found.differences:
        tell(f"The response holds: {found.operation} {found.version}, byte for byte.")
        tell(f"  input  SHA-256 {found.input_sha256}")
        tell(f"  output SHA-256 {found.output_sha256}")
        return
    count = len(found.differences)
    places = "1 place" if count == 1 else f"{count:,} places"
    tell(f"The response differs in {places} from what {found.operation} {found.version} answers to this input:")
    for difference in found.differences:
        tell(f"  {difference.pointer or 'the response'} {difference.text}")
    raise typer.Exit(DIFFERS)
