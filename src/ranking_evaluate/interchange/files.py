"""Which format a file of judgments or a run has, and its content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import chain
from typing import TypeVar

from ranking_evaluate.interchange import beir, trec
from ranking_evaluate.interchange.rows import FileError, Qrels, Row, Run, read_qrels, read_run

T = TypeVar("T")
RowReader = Callable[[Iterable[bytes]], Iterator[Row]]


class Format(StrEnum):
    """The formats that `convert` reads; AUTO looks at the first line, of each file for itself."""

    AUTO = "auto"
    TREC = "trec"
    BEIR = "beir"


def load_qrels(name: str, lines: Iterable[bytes], form: Format = Format.AUTO) -> Qrels:
    """Return the judgments in a file.

    Args:
        name: The file's name, for error messages.
        lines: Its content.
        form: Its format.

    Raises:
        FileError: It cannot be used; the text names the file and the place.
    """
    return _load(name, lines, form, trec.qrels_rows, read_qrels)


def load_run(name: str, lines: Iterable[bytes], form: Format = Format.AUTO) -> Run:
    """Return the run in a file, as `load_qrels` does the judgments."""
    return _load(name, lines, form, trec.run_rows, read_run)


def _load(
    name: str, lines: Iterable[bytes], form: Format, trec_rows: RowReader, collect: Callable[[Iterable[Row]], T]
) -> T:
    # Only one line is read ahead, so that a pipe will do for a file.
    content = iter(lines)
    first = next(content, b"")
    content = chain((first,), content)
    try:
        if beir.is_json(first) and form is not Format.TREC:
            return collect(beir.json_rows(content))
        if form is Format.BEIR or (form is Format.AUTO and beir.is_header(first)):
            return collect(beir.table_rows(content))
        return collect(trec_rows(content))
    except FileError as error:
        raise FileError(f"{name}, {error}") from None
