"""Who waits at a terminal while a large file is read sees how far it is; nobody else is sent a bar."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.cli.on_a_terminal import on_a_terminal

PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
COMMANDS: Final = {
    "convert": ("convert", "--qrels", "qrels.txt", "--run", "run.txt"),
    "measure": ("measure", "--qrels", "qrels.txt", "run.txt"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of 36 MB, of which one topic is judged."""
    folder = tmp_path_factory.mktemp("large")
    ranks = [f"document-{rank:04d} {rank} {1001 - rank} mine" for rank in range(1, 1001)]
    with (folder / "run.txt").open("w") as run:
        for topic in range(1, 901):
            run.writelines(f"topic-{topic} Q0 {rank}\n" for rank in ranks)
    (folder / "qrels.txt").write_text("topic-1 0 document-0002 1\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_large_file_is_read_under_a_bar_on_a_terminal(command: str, folder: Path) -> None:
    wide = {"TERM": "xterm", "COLUMNS": "100"}
    code, sent = on_a_terminal([PROGRAM, *COMMANDS[command]], folder, wide, output_too=False)
    said = sent.decode()
    assert code == 0, said
    assert "Reading" in said
    # A bar that moves was drawn at several sizes.
    assert len(set(re.findall(r"([0-9.]+)/[0-9.]+ MB", said))) > 3, said[:2000]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_sent_no_bar(command: str, folder: Path) -> None:
    done = subprocess.run([PROGRAM, *COMMANDS[command]], cwd=folder, capture_output=True, check=True)
    assert b"Reading" not in done.stderr + done.stdout
