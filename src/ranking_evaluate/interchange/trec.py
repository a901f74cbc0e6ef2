"""The files of trec_eval: judgments `topic iteration document grade`, runs `topic Q0 document rank score tag`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ranking_evaluate.interchange.rows import FileError, Row, numbered, text


def qrels_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the judgments of a qrels file; the iteration is ignored, as trec_eval does.

    Raises:
        FileError: A line has not its four columns, or is not UTF-8.
    """
    for place, line in numbered(lines):
        # As in C: only ASCII white space separates, so an id may hold any other.
        columns = line.split()
        if len(columns) != 4:
            raise FileError(
                f"{place}: a judgment has the four columns topic, iteration, document, grade; this has {len(columns)}"
            )
        topic, _, document, grade = columns
        yield Row(place, text(place, topic), text(place, document), text(place, grade))


def run_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the ranked documents of a run; the rank column is ignored, as trec_eval does, and so is all after the tag.

    Raises:
        FileError: A line has not its six columns, or is not UTF-8.
    """
    for place, line in numbered(lines):
        columns = line.split()
        if len(columns) < 6:
            raise FileError(
                f"{place}: a ranked document has the six columns topic, Q0, document, rank, score, tag; "
                f"this has {len(columns)}"
            )
        topic, _, document, _, score = columns[:5]
        yield Row(place, text(place, topic), text(place, document), text(place, score))
