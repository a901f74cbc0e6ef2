"""A command on a terminal of its own, and what that terminal is sent."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_a_terminal(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str], *, output_too: bool = True
) -> tuple[int, bytes]:
    """Return the exit code, and all that the terminal was sent.

    Args:
        command: The program and its arguments.
        folder: In which folder it runs; it is its home too.
        environment: What it knows beside PATH, HOME and a language.
        output_too: Whether the terminal has its standard output, beside its standard error.
    """
    leader, follower = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=follower if output_too else subprocess.DEVNULL,
        stderr=follower,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(folder), **environment},
    ) as process:
        os.close(follower)
        sent = b""
        while True:
            try:
                more = os.read(leader, 65536)
            except OSError:  # Linux tells so that nobody holds the other end any more.
                break
            if not more:
                break
            sent += more
    os.close(leader)
    return process.returncode, sent
