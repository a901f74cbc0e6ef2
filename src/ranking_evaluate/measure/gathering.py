"""Topics that stand in several places of a run: gathered in temporary files, so that only some are held at a time."""

from __future__ import annotations

import pickle
import tempfile
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final
from zlib import crc32

from ranking_evaluate.measure.faults import Faults
from ranking_evaluate.measure.rows import read
from ranking_evaluate.measure.runs import Ranking, scored_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ranking_evaluate.measure.formats import Format
    from ranking_evaluate.measure.sources import Source

# What is held at a time: so much of the file takes about eight times as much memory.
_HELD: Final = 8 << 20
# A process may have 1,024 files open.
_MOST_FILES: Final = 500


def gathered(source: Source, form: Format, topics: Collection[bytes], faults: Faults) -> Iterator[Ranking]:
    """Yield each of these topics whole, in no particular order.

    Args:
        source: The run, which is read again.
        form: Its format.
        topics: Those that are gathered.
        faults: Where its other faults are already known.
    """
    count = min(_MOST_FILES, 1 + source.size() * (4 if source.is_compressed else 1) // _HELD)
    file_of = {topic: crc32(topic) % count for topic in topics}
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        for given in read(source, form, Faults(source.name)):
            rows, scores = scored_rows(given, faults)
            kept: list[list[tuple[bytes, bytes, float, int]]] = [[] for _ in files]
            for row in zip(rows.topics, rows.documents, scores, rows.lines, strict=True):
                if row[0] in file_of:
                    kept[file_of[row[0]]].append(row)
            for file, chosen in zip(files, kept, strict=True):
                if chosen:
                    # These are our own objects, which nobody else can have written.
                    pickle.dump(chosen, file)
        for file in files:
            yield from _held(file)


def _held(file: IO[bytes]) -> Iterator[Ranking]:
    by_topic: dict[bytes, Ranking] = {}
    end = file.tell()
    file.seek(0)
    while file.tell() < end:
        for topic, document, score, line in pickle.load(file):  # noqa: S301
            ranking = by_topic.get(topic)
            if ranking is None:
                ranking = by_topic[topic] = Ranking(topic, [], [], [[]])
            ranking.documents.append(document)
            ranking.scores.append(score)
            ranking.lines[0].append(line)  # type: ignore[attr-defined]  # It is the list made above.
    yield from by_topic.values()
