"""A disk that can lose its power: a file layer of SQLite that keeps apart what was synced and what was only written."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw

SECTOR: Final = 512
"""Bytes that a disk writes whole or not at all."""

_NUMBERS: Final = itertools.count(1)


@dataclass(slots=True)
class _Kept:
    """One file: what outlives a loss of power for certain, and what was done to it since.

    Attributes:
        synced: Its content at its last sync; None while its very name may be lost.
        since: Writes (offset, bytes) and truncations (size, None), in their order.
    """

    synced: bytearray | None = None
    since: list[tuple[int, bytes | None]] = field(default_factory=list)


class Disk(apsw.VFS):
    """The files of one machine; the power goes when it is told to.

    Attributes:
        name: How a store is told to use it.
        steps: How often something was written, synced, cut off or deleted.
        cut_at: The step at which the power goes; that step itself may be done in part.
        is_dead: Whether it has gone.
    """

    def __init__(self) -> None:
        self.name = f"power-{next(_NUMBERS)}"
        self.steps = 0
        self.cut_at: int | None = None
        self.is_dead = False
        self._files: dict[str, _Kept] = {}
        self._deleted: dict[str, _Kept] = {}
        self._lock = threading.Lock()
        super().__init__(self.name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        """Open a file."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _File(self, name, flags, path)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Delete a file; unless its folder is synced, its name may come back."""
        self.step()
        super().xDelete(filename, syncdir)
        gone = self._files.pop(filename, _Kept())
        if not syncdir:
            self._deleted[filename] = gone

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        """Say nothing of what fails once the power is gone."""
        return True

    def kept(self, path: str) -> _Kept:
        """Return what is known of a file; one that was there before is taken as synced."""
        with self._lock:
            if path not in self._files:
                content = Path(path).read_bytes() if Path(path).exists() else b""
                self._files[path] = _Kept(bytearray(content) if content else None)
            return self._files[path]

    def sync_folder(self) -> None:
        """Let what was deleted stay so."""
        self._deleted.clear()

    def step(self, in_part: Callable[[], None] = lambda: None) -> None:
        """Count a step; at the one that is the last the power goes, and it may be done in part."""
        with self._lock:
            if not self.is_dead:
                self.steps += 1
                if self.steps == self.cut_at:
                    in_part()
                    self.is_dead = True
            if self.is_dead:
                raise apsw.IOError("the power is gone")

    def survivors(self, chance: random.Random, folder: Path) -> None:
        """Write into a folder what the disk holds when the power is back."""
        self.is_dead = True
        how = chance.choice(("all is lost", "all is kept", "a part is kept", "a part is kept", "torn"))
        for name, file in {**self._deleted, **self._files}.items():
            comes_back = name in self._files or chance.random() < 0.5
            if not comes_back or (file.synced is None and how == "all is lost"):
                continue
            if file.synced is None and how != "all is kept" and chance.random() < 0.5:
                continue
            content = bytearray(file.synced or b"")
            for offset, data in file.since:
                _apply(content, offset, data, how, chance)
            (folder / Path(name).name).write_bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None, how: str, chance: random.Random) -> None:
    """Do to a file's content what was written to it and not synced, or a part of it, or nothing."""
    if how == "all is lost" or (how != "all is kept" and chance.random() < 0.4):
        return
    if data is None:
        del content[offset:]
        return
    for start in range(0, len(data), SECTOR):
        if how == "torn" and chance.random() < 0.3:
            continue
        piece, at = data[start : start + SECTOR], offset + start
        content.extend(bytes(max(0, at + len(piece) - len(content))))
        content[at : at + len(piece)] = piece


class _File(apsw.VFSFile):
    """An open file of a `Disk`."""

    def __init__(self, disk: Disk, name: Any, flags: list[int], path: str | None) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._kept = _Kept() if path is None else disk.kept(path)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Write, which need not reach the disk."""
        written = (offset, bytes(data))
        self._disk.step(lambda: self._kept.since.append(written))
        super().xWrite(data, offset)
        self._kept.since.append(written)

    def xTruncate(self, newsize: int) -> None:
        """Cut off, which need not reach the disk."""
        self._disk.step(lambda: self._kept.since.append((newsize, None)))
        super().xTruncate(newsize)
        self._kept.since.append((newsize, None))

    def xSync(self, flags: int) -> None:
        """Let what was written reach the disk."""
        self._disk.step()
        super().xSync(flags)
        if self._kept.synced is None:
            self._disk.sync_folder()  # SQLite does so with the first sync of a new journal or log.
        content = self._kept.synced if self._kept.synced is not None else bytearray()
        for offset, data in self._kept.since:
            _apply(content, offset, data, "all is kept", random.Random(0))
        self._kept.synced, self._kept.since = content, []

    def xRead(self, amount: int, offset: int) -> bytes:
        """Read, as long as there is power."""
        if self._disk.is_dead:
            raise apsw.IOError("the power is gone")
        return super().xRead(amount, offset)
