"""How far large files are read, for whoever looks at a terminal."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# A smaller file is read before anybody has looked at a bar.
_WORTH_A_BAR: Final = 20_000_000


@contextlib.contextmanager
def reading(paths: Sequence[str]) -> Iterator[Callable[[int], None] | None]:
    """Show a bar of the bytes read, on a terminal and where it takes long enough to look; yield what moves it."""
    sizes = [Path(path).stat().st_size if Path(path).is_file() else 0 for path in paths]
    if not sys.stderr.isatty() or sum(sizes) < _WORTH_A_BAR:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    # It is drawn when something was read and by no thread, for processes are forked.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task("Reading", total=sum(sizes))

        def advance(size: int) -> None:
            progress.advance(task, size)
            progress.refresh()

        yield advance
