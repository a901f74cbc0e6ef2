"""A JSON object {topic: {document: number}}, one topic at a time."""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Final, NoReturn, cast

from ranking_evaluate.measure.faults import FileError, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ranking_evaluate.measure.faults import Faults
    from ranking_evaluate.measure.rows import Rows
    from ranking_evaluate.measure.sources import Source

# Of a text that is cut within an escape, the error may stand so far before its end.
_LONGEST_ESCAPE: Final = 16
_SPACE: Final = re.compile(r"[ \t\n\r]*")


class _Members(list[tuple[str, object]]):
    """The members of an object as written, repeated names included."""


# Numbers stay as they are written, so that every format reads them by the same rule; a text in their place is seen.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Members,
    parse_int=str.encode,
    parse_float=str.encode,
    parse_constant=str.encode,
)


def read(source: Source, faults: Faults) -> Iterator[Rows]:
    """Yield the rows of each topic.

    Raises:
        FileError: This is no such object.
    """
    from ranking_evaluate.measure.rows import Rows

    seen: set[str] = set()
    for topic, members in _Text(source).members():
        place = f"query {told(topic)}"
        if topic in seen:
            faults.add(place, "this query is named twice")
            continue
        seen.add(topic)
        if not isinstance(members, _Members):
            faults.add(place, "its value is not an object of the form {document: number}")
            continue
        rows = Rows([], [], [], [], ())
        for document, figure in members:
            inner = f"{place}, document {told(document)}"
            if not isinstance(figure, bytes):
                faults.add(inner, "its value is not a number")
            elif not topic or not document:
                faults.add(inner, f"the {'document' if topic else 'topic'} id is empty")
            elif not _is_text(topic + document):
                faults.add(inner, "this id is not Unicode text")
            else:
                rows.topics.append(topic.encode())
                rows.documents.append(document.encode())
                rows.figures.append(figure)
        yield rows


class _Text:
    """The text of a file, of which so much is held as the next member of the object needs."""

    def __init__(self, source: Source) -> None:
        self._name = source.name
        self._blocks = source.chunks()
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._lines_before = 1

    def members(self) -> Iterator[tuple[str, object]]:
        """Yield the members of the object in their order."""
        self._expect("{")
        if self._next() == "}":
            self._at += 1
        else:
            yield self._member()
            while self._next() == ",":
                self._at += 1
                yield self._member()
            self._expect("}")
        if self._next():
            self._refuse("something follows after the object", self._at)

    def _member(self) -> tuple[str, object]:
        if self._next() != '"':
            self._refuse("the name of a member is missing", self._at)
        name = cast("str", self._value())
        self._expect(":")
        self._next()
        return name, self._value()

    def _expect(self, sign: str) -> None:
        if self._next() != sign:
            self._refuse(f"{sign} is missing", self._at)
        self._at += 1

    def _next(self) -> str:
        """Return the next character that is no white space, where the text then stands; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> object:
        """Return the value at which the text stands, reading on as long as it does not end."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - _LONGEST_ESCAPE
                if not is_cut or not self._more():
                    self._refuse(error.msg, error.pos)
            except RecursionError:
                raise FileError(f"{self._name}: this JSON is nested too deeply") from None
            else:
                # A number at the end of what is held may go on.
                if end < len(self._text) or not self._more():
                    self._at = end
                    return cast("object", value)

    def _more(self) -> bool:
        """Read on, at least as much as is held and not yet taken, and return whether there was anything."""
        self._lines_before += self._text.count("\n", 0, self._at)
        parts = [self._text[self._at :]]
        self._at = 0
        wanted = max(len(parts[0]), 1)
        while wanted > 0:
            block = next(self._blocks, b"")
            try:
                part = self._decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                raise FileError(f"{self._name}: this is not UTF-8 text") from None
            parts.append(part)
            wanted -= len(part)
            if not block:
                break
        self._text = "".join(parts)
        return len(parts) > 1 and any(parts[1:])

    def _refuse(self, reason: str, position: int) -> NoReturn:
        line = self._lines_before + self._text.count("\n", 0, position)
        raise FileError(f"{self._name}, line {line}: this is not JSON ({reason})")


def _is_text(one: str) -> bool:
    try:
        one.encode()
    except UnicodeEncodeError:
        return False
    return True
