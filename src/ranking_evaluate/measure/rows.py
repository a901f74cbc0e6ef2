"""The rows of a file, whatever its format: topics, documents and figures in columns, a block of lines at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ranking_evaluate.measure import json_object
from ranking_evaluate.measure.faults import shown
from ranking_evaluate.measure.formats import BOM, Columns, JsonObject, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ranking_evaluate.measure.faults import Faults
    from ranking_evaluate.measure.formats import Format, JsonLines
    from ranking_evaluate.measure.sources import Source

# Of C's white space, a tab counts as a blank between columns; all else that is no white space is taken out.
_BLANKS: Final = bytes.maketrans(b"\t", b" ")
_NO_SPACE: Final = bytes(byte for byte in range(256) if byte not in b" \t\n\r\v\f")


class Rows(NamedTuple):
    """Rows that follow each other in a file."""

    topics: list[bytes]
    documents: list[bytes]
    figures: list[bytes]
    """What is written for the grade or the score; empty where the format has none."""
    ranks: list[bytes]
    """What is written for the rank; empty where the format has none."""
    lines: Sequence[int]
    """The number of each row's line; empty in a JSON object."""

    def place(self, index: int) -> int | str:
        """Return where a row stands, for `Faults`."""
        return (
            self.lines[index]
            if self.lines
            else f"query {shown(self.topics[index])}, document {shown(self.documents[index])}"
        )

    def without(self, bad: Iterable[int]) -> Rows:
        """Return the rows but these."""
        left = sorted(set(range(len(self.topics))).difference(bad))
        return Rows(
            [self.topics[index] for index in left],
            [self.documents[index] for index in left],
            [self.figures[index] for index in left] if self.figures else [],
            [self.ranks[index] for index in left] if self.ranks else [],
            [self.lines[index] for index in left] if self.lines else (),
        )


def read(
    source: Source,
    form: Format,
    faults: Faults,
    start: int = 0,
    end: int | None = None,
    count_lines: Callable[[int], object] = lambda count: None,
) -> Iterator[Rows]:
    """Yield the rows of a file, or of a part of it.

    Lines that are blank, and those that begin with `#`, hold none. A line of another form is a fault.

    Args:
        source: The file.
        form: Its format.
        faults: Where faults are remembered.
        start: Where the part begins, at the start of a line.
        end: Where it ends, at the end of one.
        count_lines: Called with the number of lines of each block.
    """
    if isinstance(form, JsonObject):
        yield from json_object.read(source, faults)
        return
    first = 1
    for block in source.blocks(start, end):
        content = block.removeprefix(BOM) if first == 1 and not start else block
        count = content.count(b"\n")
        count_lines(count)
        if isinstance(form, Columns):
            yield _regular(content, count, first, form) or _each_line(content, first, form, faults)
        else:
            pick = _tabs(form) if isinstance(form, Table) else _member(form)
            yield _picked(
                content, first, pick, faults, 1 if isinstance(form, Table) and first == 1 and not start else 0
            )
        first += count


def _regular(block: bytes, count: int, first: int, form: Columns) -> Rows | None:
    """Return the rows of a block in which every line has the least columns, None when it is not so.

    That is so when each line has one blank less than columns, and all of them together have so many columns.
    """
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    columns = form.least
    if block.translate(_BLANKS, _NO_SPACE) != (b" " * (columns - 1) + b"\n") * count:
        return None
    if b"#" in block and (block.startswith(b"#") or b"\n#" in block):
        return None
    fields = block.split()
    if len(fields) != count * columns or not _is_utf8(block):
        return None
    return Rows(
        fields[form.topic :: columns],
        fields[form.document :: columns],
        [] if form.figure is None else fields[form.figure :: columns],
        [] if form.rank is None else fields[form.rank :: columns],
        range(first, first + count),
    )


def _each_line(block: bytes, first: int, form: Columns, faults: Faults) -> Rows:
    """Return the rows of a block line by line: white space of any length, comments, further columns."""
    rows = Rows([], [], [], [], [])
    for number, line in enumerate(block.split(b"\n"), first):
        # As in C, only ASCII white space separates, so an id may hold any other.
        fields = line.split()
        if not fields or fields[0].startswith(b"#"):
            continue
        if len(fields) < form.least or (form.most is not None and len(fields) > form.most):
            faults.add(number, f"{form.words}; this has {len(fields)}")
            continue
        topic, document = fields[form.topic], fields[form.document]
        figure = b"" if form.figure is None else fields[form.figure]
        _add(rows, number, (topic, document, figure), faults)
        if form.rank is not None and len(rows.ranks) < len(rows.topics):
            rows.ranks.append(fields[form.rank])
    return rows if form.figure is not None else rows._replace(figures=[])


def _picked(
    block: bytes,
    first: int,
    pick: Callable[[bytes], tuple[bytes, bytes, bytes] | str],
    faults: Faults,
    headers: int,
) -> Rows:
    """Return the rows of a block, each picked from its line; or the fault of the line in words."""
    rows = Rows([], [], [], [], [])
    for number, line in enumerate(block.split(b"\n"), first):
        content = line.rstrip(b"\r")
        if not content.strip() or content.lstrip().startswith(b"#"):
            continue
        if headers:
            headers -= 1
            continue
        row = pick(content)
        if isinstance(row, str):
            faults.add(number, row)
        else:
            _add(rows, number, row, faults)
    return rows


def _add(rows: Rows, number: int, row: tuple[bytes, bytes, bytes], faults: Faults) -> None:
    topic, document, figure = row
    if not _is_utf8(b"\n".join(row)):
        faults.add(number, "this is not UTF-8 text")
    elif not topic or not document:
        faults.add(number, f"the {'document' if topic else 'topic'} id is empty")
    else:
        rows.topics.append(topic)
        rows.documents.append(document)
        rows.figures.append(figure)
        rows.lines.append(number)  # type: ignore[attr-defined]  # Where rows are added, the lines are a list.


def _tabs(form: Table) -> Callable[[bytes], tuple[bytes, bytes, bytes] | str]:
    """Return how a row is picked from tab separated columns; ids may hold blanks."""

    def pick(line: bytes) -> tuple[bytes, bytes, bytes] | str:
        fields = line.split(b"\t")
        if len(fields) != form.width:
            return f"a row has the {form.width} columns of the header with tabs between; this has {len(fields)}"
        if form.is_quoted:
            fields = [field[1:-1] if field[:1] == field[-1:] == b'"' else field for field in fields]
        return fields[form.topic], fields[form.document], fields[form.figure].strip()

    return pick


def _member(form: JsonLines) -> Callable[[bytes], tuple[bytes, bytes, bytes] | str]:
    """Return how a row is picked from an object on a line."""

    def pick(line: bytes) -> tuple[bytes, bytes, bytes] | str:
        try:
            row = json.loads(line, parse_int=str.encode, parse_float=str.encode, parse_constant=str.encode)
            topic, document, figure = (row[name] for name in form)
        except (ValueError, RecursionError):
            return "this is not a JSON object"
        except (KeyError, TypeError, IndexError):
            return f"this is no object with the members {', '.join(form)}"
        ids = [one.encode(errors="surrogatepass") if isinstance(one, str) else one for one in (topic, document)]
        if not all(isinstance(one, bytes) for one in ids) or not isinstance(figure, bytes):
            return f"{form.topic} and {form.document} are texts and {form.figure} is a number"
        return ids[0], ids[1], figure

    return pick


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
