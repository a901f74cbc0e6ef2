"""Which format a file of judgments or a run has, told by its beginning; what is not read is named as what it is."""

from __future__ import annotations

import json
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from ranking_evaluate.measure.faults import FileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ranking_evaluate.measure.sources import Source

BOM: Final = b"\xef\xbb\xbf"

# The first bytes of files that people have, and what they call them.
_SIGNATURES: Final = (
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"\x04\x22\x4d\x18", "compressed with lz4"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"SQLite format 3", "a SQLite database"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)

_TOPIC: Final = frozenset({"query-id", "queryid", "qid", "query", "query-text", "topic", "topic-id", "topicid"})
_DOCUMENT: Final = frozenset(
    {"corpus-id", "corpusid", "doc-id", "docid", "did", "document-id", "document", "doc", "docno", "pid", "passage-id"}
)
_FIGURE: Final = frozenset({"score", "relevance", "rel", "grade", "label", "rating", "relevance-score"})


class Kind(Enum):
    """What a file is read for."""

    QRELS = auto()
    RUN = auto()

    @property
    def formats(self) -> str:
        """The formats that are read, in words."""
        if self is Kind.QRELS:
            return (
                "TREC qrels (topic, iteration, document, grade), MS MARCO qrels (topic, document), a BEIR table "
                "(with its header), JSON {query: {document: grade}} or JSON Lines, each also compressed with gzip"
            )
        return (
            "TREC runs (topic, Q0, document, rank, score, tag), MS MARCO runs (topic, document, rank), a BEIR table "
            "(with its header), JSON {query: {document: score}} or JSON Lines, each also compressed with gzip"
        )


class Columns(NamedTuple):
    """Lines of white space separated columns, and at which positions what is read stands."""

    least: int
    most: int | None
    topic: int
    document: int
    figure: int | None
    """None when each line says relevant."""
    rank: int | None
    words: str


class Table(NamedTuple):
    """Lines of tab separated columns under a header."""

    topic: int
    document: int
    figure: int
    width: int
    is_quoted: bool


class JsonObject:
    """One object {topic: {document: number}}."""


class JsonLines(NamedTuple):
    """An object on each line, and the members in which what is read stands."""

    topic: str
    document: str
    figure: str


Format = Columns | Table | JsonObject | JsonLines

TREC_QRELS: Final = Columns(4, 4, 0, 2, 3, None, "a judgment has the four columns topic, iteration, document, grade")
TREC_RUN: Final = Columns(
    6, None, 0, 2, 4, 3, "a ranked document has the six columns topic, Q0, document, rank, score, tag"
)
MSMARCO_QRELS: Final = Columns(2, 2, 0, 1, None, None, "the first line has the two columns topic, document")
MSMARCO_RUN: Final = Columns(3, 3, 0, 1, None, 2, "the first line has the three columns topic, document, rank")


class Named(StrEnum):
    """The formats that can be named; AUTO looks at the beginning of each file."""

    AUTO = "auto"
    TREC = "trec"
    BEIR = "beir"


def sniff(source: Source, kind: Kind, named: Named = Named.AUTO) -> Format:
    """Return the format of a file.

    Raises:
        FileError: It is one that is not read, or not the named one.
    """
    if named is Named.TREC:
        return TREC_QRELS if kind is Kind.QRELS else TREC_RUN
    form = _told(source, kind)
    if named is Named.BEIR and isinstance(form, Columns):
        raise FileError(
            f"{source.name}: a BEIR table starts with the header query-id, corpus-id, score, with tabs between"
        )
    return form


def _told(source: Source, kind: Kind) -> Format:
    """Return the format that the beginning of a file tells."""
    head = source.head()

    def refused(words: str) -> FileError:
        return FileError(f"{source.name}: this is {words}. Read are {kind.formats}.")

    for signature, words in _SIGNATURES:
        if head.startswith(signature):
            raise refused(words)
    if b"\0" in head:
        raise refused("UTF-16 text" if head.count(b"\0") > len(head) // 4 else "a binary file")
    line = next(filter(_is_content, head.removeprefix(BOM).splitlines()), b"").strip(b"\r\n")
    if line.lstrip().startswith(b"{"):
        return _json(line)
    if line.lstrip().startswith(b"["):
        raise refused("a JSON array")
    columns = line.split()
    table = _table(line)
    if table is not None:
        return table
    counts = {4: TREC_QRELS, 2: MSMARCO_QRELS} if kind is Kind.QRELS else {3: MSMARCO_RUN}
    if line.count(b",") >= 2 and (len(columns) == 1 or _header(line.split(b",")) is not None):
        raise refused("a table with commas")
    if len(columns) in counts:
        return counts[len(columns)]
    return TREC_QRELS if kind is Kind.QRELS else TREC_RUN


def _is_content(line: bytes) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(b"#")


def _json(line: bytes) -> Format:
    """Return whether an object on the first line holds a row, or begins with the first query of all."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return JsonObject()
    members = [name for name, value in row.items() if not isinstance(value, dict)]
    positions = _header(members)
    return JsonLines(*(members[position] for position in positions)) if positions else JsonObject()


def _table(line: bytes) -> Table | None:
    """Return how a table with this header is read, None when this is none."""
    fields = line.split(b"\t")
    positions = _header(fields)
    return positions and Table(*positions, len(fields), fields[0].startswith(b'"'))


def _header(fields: Sequence[bytes] | Sequence[str]) -> tuple[int, int, int] | None:
    """Return where topic, document and figure stand under these names, None when any of them is missing."""
    names = [
        (field.decode(errors="replace") if isinstance(field, bytes) else field).strip().strip("\"'").lower()
        for field in fields
    ]
    names = [name.replace("_", "-").replace(" ", "-") for name in names]
    found = [
        next((position for position, name in enumerate(names) if name in known), None)
        for known in (_TOPIC, _DOCUMENT, _FIGURE)
    ]
    topic, document, figure = found
    return None if topic is None or document is None or figure is None else (topic, document, figure)
