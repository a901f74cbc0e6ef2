"""A file that is read from its beginning as often as needed, whatever it is: plain, compressed with gzip, or a pipe."""

from __future__ import annotations

import gzip
import hashlib
import stat
import sys
import tempfile
import weakref
import zlib
from contextlib import nullcontext
from pathlib import Path
from shutil import copyfileobj
from typing import IO, TYPE_CHECKING, Final, cast

from ranking_evaluate.core.visible import visible
from ranking_evaluate.measure.faults import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Larger blocks are slower, because what they are split into no longer fits into the processor's caches.
BLOCK: Final = 1 << 18
_LONGEST_LINE: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_COPIED: Final = 1 << 20


class Source:
    """One file of judgments or of a run.

    Args:
        path: Where it is; `-` is standard input.
        advance: Called with the number of bytes of the file each time that some were read.
    """

    def __init__(self, path: str, advance: Callable[[int], object] | None = None) -> None:
        self.path = path
        self.name = "standard input" if path == "-" else visible(path)
        self.advance = advance or (lambda size: None)
        self._copy: IO[bytes] | None = None
        with self.raw() as file:
            self.is_compressed = file.read(2) == _GZIP

    @property
    def is_plain(self) -> bool:
        """Whether any part of the content can be read without what is before it."""
        return not self.is_compressed and self._copy is None

    def raw(self) -> IO[bytes]:
        """Open the file as it is stored, at its beginning.

        Raises:
            FileError: It cannot be read.
        """
        try:
            return Path(self._readable()).open("rb")
        except OSError as error:
            raise FileError(f"{self.name}: {error.strerror}") from None

    def open(self) -> IO[bytes]:
        """Open the content at its beginning."""
        if not self.is_compressed:
            return self.raw()
        return cast("IO[bytes]", gzip.open(self._readable()))

    def _readable(self) -> str:
        """Return the path of a file that can be read several times: a pipe is copied to a temporary one first."""
        if self._copy is None:
            is_input = self.path == "-"
            if not is_input and not stat.S_ISFIFO(Path(self.path).stat().st_mode):
                return self.path
            self._copy = tempfile.TemporaryFile()  # noqa: SIM115  # It lives as long as this.
            weakref.finalize(self, self._copy.close)
            with nullcontext(sys.stdin.buffer) if is_input else Path(self.path).open("rb") as pipe:
                copyfileobj(pipe, self._copy, _COPIED)
            self._copy.flush()
        return f"/dev/fd/{self._copy.fileno()}"

    def head(self) -> bytes:
        """Return the beginning of the content."""
        with self.open() as file:
            return self._read(file, BLOCK)

    def size(self) -> int:
        """Return how many bytes the file has as it is stored."""
        with self.raw() as file:
            return file.seek(0, 2)

    def sha256(self) -> str:
        """Return the SHA-256 of the file as it is stored."""
        with self.raw() as file:
            digest = hashlib.sha256()
            while block := file.read(_COPIED):
                digest.update(block)
            return digest.hexdigest()

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the content in blocks of whole lines, each of which ends with a newline.

        Args:
            start: Where to begin, in a plain file only; a line begins there.
            end: Where to stop; a line ends there.
        """
        with self.open() as file:
            if start:
                file.seek(start)
            rest = b""
            left = end - start if end is not None else None
            while True:
                block = self._read(file, BLOCK if left is None else min(BLOCK, left))
                if left is not None:
                    left -= len(block)
                self._advance(block)
                if not block:
                    break
                cut = block.rfind(b"\n") + 1
                if cut:
                    yield rest + block[:cut]
                    rest = block[cut:]
                else:
                    rest += block
                    if len(rest) > _LONGEST_LINE:
                        raise FileError(f"{self.name}: a line is longer than 1 MB; lines end with a line feed")
            if rest:
                yield rest + b"\n"

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces that end anywhere."""
        with self.open() as file:
            while block := self._read(file, BLOCK):
                self._advance(block)
                yield block

    def _advance(self, block: bytes) -> None:
        # Of compressed content nobody knows how far the file is read.
        if not self.is_compressed:
            self.advance(len(block))

    def _read(self, file: IO[bytes], size: int) -> bytes:
        try:
            return file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise FileError(f"{self.name}: the gzip data is broken or ends too early") from None
        except OSError as error:
            raise FileError(f"{self.name}: {error.strerror}") from None
