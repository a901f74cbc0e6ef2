"""How many files, connections among them, this process may have open at once."""

from __future__ import annotations

import contextlib
import resource
import sys
from typing import Final

RESERVED: Final = 256
"""Open files that connections of callers never take: the store's, the providers', the workers' and the logs'."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return what it is then.

    The usual soft limit of 1,024 is for programs that use select(); this one does not.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A hard limit without a bound may be more than the kernel grants; then the soft one stays.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
