"""The cap of connections stays below what the process may have open."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.start import StartFailed, within_open_files


@pytest.mark.parametrize(
    ("files", "connections"), [(512, 256), (1_024, 768), (2_304, 2_048), (20_000, 2_048), (sys.maxsize, 2_048)]
)
def test_connections_leave_256_files_for_everything_else(files: int, connections: int) -> None:
    assert within_open_files(Limits(), files).max_connections == connections


def test_a_process_with_too_few_files_does_not_start_and_says_how_many_it_needs() -> None:
    with pytest.raises(StartFailed, match="may have 511 open files, and needs 512 or more: raise the hard limit"):
        within_open_files(Limits(), 511)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = """
import json, resource
from ranking_evaluate.server import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 700))
print(json.dumps([open_files.raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stdout) == [700, 700, 700]
