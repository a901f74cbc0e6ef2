"""Files of responses and inputs into responses that are known to be whole, with what could be verified of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from ranking_evaluate.contract.verify import Sealed, Unusable, read_sealed, verify
from ranking_evaluate.core import intake
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.interchange import omitted
from ranking_evaluate.operations.operation import Operation


class ReportError(Exception):
    """A file cannot be used; the text says which and why."""


class Named(NamedTuple):
    """The content of a file, and what people call it."""

    name: str
    content: bytes


class State(StrEnum):
    """What is known of a digest."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNCHECKED = "unchecked"


class Seal(NamedTuple):
    """One digest, whether it holds, and the reason for saying so."""

    name: str
    sha256: str
    state: State
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """One response, where it came from, and its seals."""

    name: str
    response: Sealed
    seals: tuple[Seal, Seal]


class Inputs:
    """The inputs given, by the digest that each has for an operation that accepts it."""

    def __init__(self, files: Sequence[Named]) -> None:
        self._bodies = [part.content for file in files for part in parts(file)]
        self._by_digest: dict[str, dict[str, bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._bodies)

    def find(self, operation: Operation[Any], sha256: str) -> bytes | None:
        """Return the input that has this digest for an operation, None when there is none."""
        if operation.id not in self._by_digest:
            self._by_digest[operation.id] = dict(self._digests(operation))
        return self._by_digest[operation.id].get(sha256)

    def _digests(self, operation: Operation[Any]) -> Iterator[tuple[str, bytes]]:
        for body in self._bodies:
            with contextlib.suppress(OperationError):
                yield operation.input_sha256(intake.read(body)), body


def parts(file: Named) -> Iterator[Named]:
    """Yield the JSON texts of a file: it is one itself, or each of its lines is one."""
    lines = [(number, line) for number, line in enumerate(file.content.split(b"\n"), 1) if line.strip()]
    if len(lines) < 2 or _is_json(file.content):
        yield file
        return
    for number, line in lines:
        # What `convert` omitted is no response; who joins them reads that line.
        if omitted.read(line) is None:
            yield Named(f"{file.name}, line {number}", line)


def _is_json(content: bytes) -> bool:
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError:
        return False
    return True


def checked(part: Named, inputs: Inputs) -> Checked:
    """Return one response with its seals.

    Raises:
        ReportError: It is none.
    """
    try:
        response = read_sealed(part.content)
    except Unusable as error:
        raise ReportError(f"{part.name}: {error}") from None
    if response.actual_output_sha256 == response.output_sha256:
        output = Seal("output", response.output_sha256, State.HOLDS, "it is that of the result shown here")
    else:
        output = Seal("output", response.output_sha256, State.BROKEN, "the result shown here has another digest")
    state, reason = _compare(part.content, response, inputs)
    return Checked(part.name, response, (Seal("input", response.input_sha256, state, reason), output))


def _compare(content: bytes, response: Sealed, inputs: Inputs) -> tuple[State, str]:
    """Return whether the response is the right one for the input that it states, and the reason for saying so."""
    if not inputs:
        return State.UNCHECKED, "not checked: no input was given"
    body = inputs.find(response.operation, response.input_sha256)
    if body is None:
        return State.BROKEN, "none of the inputs given has this digest"
    try:
        found = verify(content, body)
    except OperationError as error:
        return State.BROKEN, f"the input is refused: {error.code}"
    if not found.differences:
        return State.HOLDS, "the whole response was computed again from this input, byte for byte the same"
    if found.version != response.version:
        return State.UNCHECKED, f"release {found.version} is installed here and cannot compute it again"
    return State.BROKEN, f"computed again, {found.differences[0].pointer or 'the response'} differs"
