"""What judgments and runs have in common in every file format: rows, what a row may hold, and errors that name it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from ranking_evaluate.core.visible import visible

# Grades by topic and document, and scores by topic and document, each in the order of its file.
Qrels: TypeAlias = Mapping[str, Mapping[str, float]]
Run: TypeAlias = Mapping[str, Mapping[str, float]]

ID_LENGTH: Final = 80
HIGHEST_GRADE: Final = 10

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY: Final = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)


class FileError(Exception):
    """A file cannot be used; the text says which, where and why."""


class Row(NamedTuple):
    """One judgment or one ranked document, as its file writes it; `place` says where, for people."""

    place: str
    topic: str
    document: str
    figure: str


def numbered(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield every line that is not blank with its place; a byte order mark is no part of the first one."""
    for number, line in enumerate(lines, 1):
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if content.strip():
            yield f"line {number}", content


def text(place: str, field: bytes) -> str:
    """Return a field of a file as text.

    Raises:
        FileError: It is not UTF-8.
    """
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise FileError(f"{place}: this is not UTF-8 text") from None


def read_qrels(rows: Iterable[Row]) -> Qrels:
    """Return the grades by topic and document; an integral grade is an int, a negative one is kept as it is.

    A judgment that is repeated with the same grade counts once.

    Raises:
        FileError: An id is empty or too long, a grade is no number or above 10, or two judgments contradict each other.
    """
    qrels: dict[str, dict[str, float]] = {}
    for row in rows:
        _check_ids(row)
        grade = _grade(row)
        if qrels.setdefault(row.topic, {}).setdefault(row.document, grade) != grade:
            earlier = qrels[row.topic][row.document]
            raise FileError(
                f"{row.place}: document {shown(row.document)} of topic {shown(row.topic)} is judged {grade} here and "
                f"{earlier} before"
            )
    return qrels


def read_run(rows: Iterable[Row]) -> Run:
    """Return the scores by topic and document.

    Raises:
        FileError: An id is empty or too long, a score is no number, or a document is ranked twice for one topic.
    """
    run: dict[str, dict[str, float]] = {}
    for row in rows:
        _check_ids(row)
        if not (_NUMBER.fullmatch(row.figure) or _INFINITY.fullmatch(row.figure)):
            raise FileError(f"{row.place}: the score {shown(row.figure)} is not a number")
        scores = run.setdefault(row.topic, {})
        if row.document in scores:
            document, topic = shown(row.document), shown(row.topic)
            raise FileError(f"{row.place}: document {document} is ranked a second time for topic {topic}")
        scores[row.document] = float(row.figure)
    return run


def _check_ids(row: Row) -> None:
    for kind, one in (("topic", row.topic), ("document", row.document)):
        if not one:
            raise FileError(f"{row.place}: the {kind} id is empty")
        if len(one) > ID_LENGTH:
            raise FileError(f"{row.place}: the {kind} id {shown(one)} is longer than {ID_LENGTH} characters")


def _grade(row: Row) -> float:
    if not _NUMBER.fullmatch(row.figure):
        raise FileError(f"{row.place}: the grade {shown(row.figure)} is not a number")
    grade = float(row.figure)
    if grade > HIGHEST_GRADE:
        raise FileError(f"{row.place}: the grade {shown(row.figure)} is above {HIGHEST_GRADE}, the highest accepted")
    return int(grade) if grade.is_integer() else grade


def shown(field: str) -> str:
    """Return a field of a file as people see it in an error."""
    return visible(field) if len(field) <= ID_LENGTH else f"{visible(field[:ID_LENGTH])}..."
