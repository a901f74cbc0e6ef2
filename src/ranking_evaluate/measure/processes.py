"""A large run is read in parts by several processes; a part ends where a topic does."""

from __future__ import annotations

import os
import signal
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from ranking_evaluate.measure.faults import Faults, FileError
from ranking_evaluate.measure.formats import Columns
from ranking_evaluate.measure.parts import Part, scored
from ranking_evaluate.measure.rows import read
from ranking_evaluate.measure.runs import rankings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ranking_evaluate.measure.figures import Scorer
    from ranking_evaluate.measure.formats import Format
    from ranking_evaluate.measure.sources import Source

# So small that at the end no process waits long for another.
_PART: Final = 4 << 20
# Of fewer parts reading takes no longer than starting processes for them.
_FEWEST: Final = 4
# Each process has memory of its own.
_MOST_PROCESSES: Final = 4


class _Work(NamedTuple):
    source: Source
    form: Format
    scorer: Scorer


def usable_processes() -> int:
    """Return by how many processes a file is read at most on this machine."""
    return min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def parts_of(source: Source, form: Format, scorer: Scorer, processes: int) -> Iterator[Part]:
    """Yield the parts of a run in their order; a small file, and one that cannot be read from within, is one part.

    Args:
        source: The run.
        form: Its format.
        scorer: The judgments and rules.
        processes: How many at most read it.

    Raises:
        FileError: It cannot be used.
    """
    work = _Work(source, form, scorer)
    if processes > 1 and isinstance(form, Columns) and source.is_plain and source.size() > _FEWEST * _PART:
        yield from _in_processes(work, _parts(source), processes)
    else:
        yield _read(work, 0, None)


def _read(work: _Work, start: int, end: int | None) -> Part:
    faults = Faults(work.source.name)
    counted: list[int] = []
    part = scored(
        rankings(read(work.source, work.form, faults, start, end, counted.append), faults), work.scorer, faults
    )
    part.lines = sum(counted)
    return part


def _in_processes(work: _Work, parts: list[tuple[int, int]], processes: int) -> Iterator[Part]:
    # These take 20 ms to import, which a small file would wait for.
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # Forked processes share the judgments; nothing here has started a thread before. This process reads parts too: one
    # that only waited would hold its memory for nothing.
    pool = ProcessPoolExecutor(
        min(processes, len(parts)) - 1, mp_context=get_context("fork"), initializer=_begin, initargs=(work,)
    )
    with pool:
        begun = [pool.submit(_read_part, part) for part in parts]
        own: dict[int, Part] = {}
        for at in reversed(range(len(parts))):
            # From the end on, as long as no other process has begun with a part.
            if not begun[at].cancel():
                break
            own[at] = _read(work, *parts[at])
        try:
            for at, (start, end) in enumerate(parts):
                if at in own:
                    yield own[at]
                else:
                    yield begun[at].result()
                    work.source.advance(end - start)
        except BrokenProcessPool:
            raise FileError(f"{work.source.name}: a process that read it was stopped; is the memory used up?") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


# What a process reads from, set once when it starts.
_work: _Work


def _begin(work: _Work) -> None:
    global _work
    work.source.advance = lambda size: None
    _work = work
    # Who interrupts the command interrupts its first process, which ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read_part(part: tuple[int, int]) -> Part:
    return _read(_work, *part)


def _parts(source: Source) -> list[tuple[int, int]]:
    """Return where parts of about the same length begin and end."""
    size = source.size()
    cuts = [0]
    with source.open() as file:
        for wanted in range(_PART, size - _PART // 2, _PART):
            if wanted > cuts[-1]:
                cut = _topic_start(file, wanted)
                if cut < size:
                    cuts.append(cut)
    return [*zip(cuts, [*cuts[1:], size], strict=True)]


def _topic_start(file: IO[bytes], wanted: int) -> int:
    """Return where the first topic begins that is not the one before it, from a place on."""
    file.seek(wanted)
    position = wanted + len(file.readline())
    before = b""
    for line in iter(file.readline, b""):
        fields = line.split(None, 1)
        if fields and not fields[0].startswith(b"#"):
            if before not in {b"", fields[0]}:
                break
            before = fields[0]
        position += len(line)
    return position
