"""The leash: a process that ends what the sandbox started when the sandbox itself is gone.

It reads `watch PID` and `forget PID` from its standard input. That input ends when the sandbox closes it or dies, in
whatever way; then every process group still watched is ended and the sandbox's directory is removed. It imports the
standard library alone, so that it starts at once.
"""

import os
import shutil
import signal
import sys
import time

PATIENCE_SECONDS = 5.0
POLL_SECONDS = 0.02


def signal_group(leader: int, number: int) -> bool:
    """Send a signal (0: none) to the process group of `leader`; return whether there is such a group."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_groups(leaders: list[int]) -> None:
    """End the process groups, the newest first: all are asked, and those that take too long are killed."""
    left = [leader for leader in reversed(leaders) if signal_group(leader, signal.SIGTERM)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        left = [leader for leader in left if signal_group(leader, 0)]
    for leader in left:
        signal_group(leader, signal.SIGKILL)


def main() -> None:
    """Keep the list of process groups until the input ends, then end them and remove the directory."""
    directory = sys.argv[1]
    watched: list[int] = []
    for line in sys.stdin:
        order, pid = line.split()
        if order == "watch":
            watched.append(int(pid))
        else:
            watched.remove(int(pid))
    end_groups(watched)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
