"""The commands of the README and of the pages that it leads to, run as they stand there, in their order."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ranking_evaluate.sandbox.processes import free_port

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "ranking_evaluate"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, heading: str, language: str) -> list[str]:
    """Return the code blocks of one section of a page."""
    section = page(name).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


class Shell:
    """A terminal in an empty folder, with the project's commands on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("readme"))


@pytest.fixture(scope="module")
def sandbox_port(shell: Shell) -> Iterator[int]:
    """Run the README's sandbox command in a terminal of its own, on a free port instead of the one it names."""
    port = free_port()
    command, _ = blocks("README.md", "Make a first paid call", "sh")
    assert command in blocks("docs/pay.md", "A first paid call by hand", "sh")
    running = subprocess.Popen(
        command.replace("8402", str(port)).split(), cwd=shell.folder, env=shell.environment, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not (shell.folder / "sandbox.json").exists():
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield port
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(timeout=30)


def test_the_readme_scores_and_reports_as_written(shell: Shell) -> None:
    [block] = blocks("README.md", "Score a ranking", "sh")
    shell.run(block)
    assert "computed again from this input" in (shell.folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "heading"),
    [("README.md", "Measure a collection"), ("docs/measure.md", "One table"), ("docs/measure.md", "Compare")],
)
def test_measuring_prints_the_table_that_stands_there(shell: Shell, name: str, heading: str) -> None:
    shutil.copytree(ROOT / "docs/questions", shell.folder / "docs/questions", dirs_exist_ok=True)
    [command] = blocks(name, heading, "sh")
    [table] = blocks(name, heading, "text")
    printed = shell.run(command)
    assert printed[: len(table)] == table


def test_the_gate_and_the_python_lines_of_measuring_work_as_written(shell: Shell) -> None:
    shutil.copytree(ROOT / "docs/questions", shell.folder / "docs/questions", dirs_exist_ok=True)
    [command] = blocks("docs/measure.md", "Hold a threshold in CI", "sh")
    assert "holds: text.run: NDCG@10 must be at least 0.7: it is 0.7941" in shell.run(command)
    assert (shell.folder / "report.md").read_text(encoding="utf-8").startswith("## Whole collection")
    [block] = blocks("docs/measure.md", "In Python", "python")
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=shell.folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("0.794")


def test_scoring_converting_and_merging_work_as_written(shell: Shell) -> None:
    (shell.folder / "my.qrels").write_text("1 0 a 1\n1 0 b 0\n2 0 c 2\n", encoding="utf-8")
    (shell.folder / "my.run").write_text("1 Q0 a 1 9.5 me\n1 Q0 b 2 9.1 me\n2 Q0 x 1 3.0 me\n", encoding="utf-8")
    [scoring] = blocks("docs/score.md", "Score for free", "sh")
    shell.run(scoring)
    [converting] = blocks("docs/score.md", "Score TREC and BEIR files", "sh")
    shell.run(converting)
    assert json.loads((shell.folder / "merged.json").read_text(encoding="utf-8"))["queryCount"] == 2
    assert "merged.json" in (shell.folder / "merged.html").read_text(encoding="utf-8")


def test_a_report_is_made_as_written(shell: Shell) -> None:
    [block] = blocks("docs/score.md", "Report", "sh")
    shell.run(block)
    assert (shell.folder / "report.md").read_text(encoding="utf-8").startswith("## Supplied ranking evaluation")


def test_the_python_lines_print_nothing_when_the_input_is_good(shell: Shell) -> None:
    [block] = blocks("docs/score.md", "Score in Python", "python")
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=shell.folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""


def test_the_first_paid_call_works_as_written_and_its_repetition_is_the_same_bytes(
    shell: Shell, sandbox_port: int
) -> None:
    _, from_the_readme = blocks("README.md", "Make a first paid call", "sh")
    scoring, _, *purchases = blocks("docs/pay.md", "A first paid call by hand", "sh")
    from_the_readme, asking, paying, looking, paying_over_mpp = (
        block.replace("8402", str(sandbox_port)) for block in (from_the_readme, *purchases)
    )
    shell.run(scoring)
    shell.run(from_the_readme)
    assert shell.run(asking).startswith("HTTP/1.1 402")
    shell.run(paying)
    first = (shell.folder / "paid.json").read_bytes()
    shell.run(paying)
    assert (shell.folder / "paid.json").read_bytes() == first
    assert json.loads(shell.run(looking))["state"] == "settled"
    shell.run(paying_over_mpp)
    assert (shell.folder / "paid-over-mpp.json").read_bytes() == first


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "docs/install.md", "docs/measure.md", "docs/score.md", "docs/pay.md"]
)
def test_every_file_that_a_page_names_is_there(name: str) -> None:
    quoted = re.findall(r"`([A-Za-z_0-9./-]+/[A-Za-z_0-9./-]*)`", page(name))
    linked = [link for link in re.findall(r"\]\(([^)#]+)", page(name)) if "://" not in link]
    made_by_setup = (".venv", "node_modules", ".ranking-evaluate", "/")
    named = [path for path in quoted if not path.startswith(made_by_setup)]
    missing = [path for path in named if not (ROOT / path).exists() and not (PACKAGE / path).exists()]
    assert not missing + [path for path in linked if not (ROOT / name).parent.joinpath(path).exists()]


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(page("README.md").splitlines()) < 120
