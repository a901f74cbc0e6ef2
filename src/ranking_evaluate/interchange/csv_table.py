"""CSV that spreadsheets and programs read alike, and in which no text is a formula, whoever wrote it.

Every cell is quoted: an id may hold a line break of any kind, and whoever reads the file must not take what follows for
a row. A text gets an apostrophe before whatever a spreadsheet would run: at its beginning, on each of its lines, and
behind the separators that spreadsheets elsewhere use. A number is written as it is, a negative one too: it is no
formula, and pandas and spreadsheets read it as a number though it is quoted.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

_FORMULA: Final = frozenset("=+-@")
_BREAKS: Final = frozenset("\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029")
# Between cells, where the comma is between the digits of a number.
_SEPARATORS: Final = frozenset("\t;")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zs"})


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[str | float]], *, raw: bool = False) -> str:
    """Return the columns' names and the rows as CSV, UTF-8 when encoded; lines end with a line feed.

    Args:
        columns: Their names.
        rows: The cells of each row.
        raw: Whether texts are written as they are: for programs that join tables by ids, and for no spreadsheet.
    """
    text = io.StringIO()
    table = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow(columns)
    table.writerows([cell if raw or isinstance(cell, int | float) else guarded(cell) for cell in row] for row in rows)
    return text.getvalue()


def guarded(text: str) -> str:
    """Return a text with an apostrophe before each place from which a spreadsheet would run it.

    That is a line, or what follows a tab or a semicolon, whose first character that can be seen is `=`, `+`, `-` or
    `@`, or another form of one of them, such as the full-width ones; and a line that begins with a tab.
    """
    guarded, begins = [], True
    for place, character in enumerate(text):
        if begins and (character == "\t" or _first_seen(text, place) in _FORMULA):
            guarded.append("'")
        guarded.append(character)
        begins = character in _BREAKS or character in _SEPARATORS
    return "".join(guarded)


def _first_seen(text: str, place: int) -> str:
    """Return what the first character from there on stands for, of those that a spreadsheet does not skip."""
    for character in text[place:]:
        if character in _BREAKS or character in _SEPARATORS:
            return ""
        if character != '"' and unicodedata.category(character) not in _UNSEEN:
            # The full-width, small, raised and lowered forms stand for the plain one.
            return unicodedata.normalize("NFKC", character)[0]
    return ""
