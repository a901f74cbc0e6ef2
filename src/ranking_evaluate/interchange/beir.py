"""The files of BEIR: tables of query-id, corpus-id, score, and JSON {query: {document: score}}."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from ranking_evaluate.interchange.rows import FileError, Row, numbered, shown, text

HEADER: Final = (b"query-id", b"corpus-id", b"score")


def is_header(line: bytes) -> bool:
    """Return whether this is the first line of a BEIR table."""
    return tuple(_columns(line.removeprefix(b"\xef\xbb\xbf"))) == HEADER


def is_json(line: bytes) -> bool:
    """Return whether this can be the first line of a JSON object."""
    return line.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def table_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the rows of a table of judgments or of a run; ids may hold spaces, for only tabs separate.

    Raises:
        FileError: The header is missing, a line has not its three columns, or is not UTF-8.
    """
    content = numbered(lines)
    for place, line in content:
        if not is_header(line):
            raise FileError(
                f"{place}: a BEIR table starts with the header query-id, corpus-id, score, with tabs between"
            )
        break
    for place, line in content:
        columns = _columns(line)
        if len(columns) != 3:
            raise FileError(
                f"{place}: a row has the three columns query-id, corpus-id, score with tabs between; "
                f"this has {len(columns)}"
            )
        topic, document, figure = (text(place, column) for column in columns)
        yield Row(place, topic, document, figure.strip())


def json_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the rows of a JSON object {query: {document: number}}; their places name the query and the document.

    Raises:
        FileError: This is not such an object, or a query is named twice.
    """
    content = text("the file", b"".join(lines).removeprefix(b"\xef\xbb\xbf"))
    try:
        # Numbers stay as they are written, so that both formats read them by the same rule; members stay in pairs, so
        # that a repeated document is seen.
        document = json.loads(content, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_Members)
    except json.JSONDecodeError as error:
        raise FileError(f"line {error.lineno}: this is not JSON ({error.msg})") from None
    except RecursionError:
        raise FileError("the file: this JSON is nested too deeply") from None
    if not isinstance(document, _Members):
        raise FileError("the file: this is not an object of the form {query: {document: score}}")
    seen: set[str] = set()
    for topic, scores in document:
        place = f"query {shown(_encodable(topic))}"
        if topic in seen:
            raise FileError(f"{place}: this query is named twice")
        seen.add(topic)
        if not isinstance(scores, _Members):
            raise FileError(f"{place}: its value is not an object of the form {{document: score}}")
        for name, figure in scores:
            inner = f"{place}, document {shown(_encodable(name))}"
            if not isinstance(figure, str):
                raise FileError(f"{inner}: its value is not a number")
            yield Row(inner, topic, name, figure)


class _Members(list[tuple[str, object]]):
    """The members of a JSON object as written, repeated names included."""


def _columns(line: bytes) -> list[bytes]:
    return line.rstrip(b"\r\n").split(b"\t")


def _encodable(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise FileError(f"query or document {name!a}: this id is not Unicode text") from None
    return name
