"""`sandbox` and `demo` say what an installation lacks, and where to get it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ranking_evaluate.cli import app
from ranking_evaluate.cli.sandbox import NEEDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("command", ["sandbox", "demo"])
def test_without_anvil_it_says_what_is_needed(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANVIL", str(tmp_path / "anvil"))
    done = CliRunner().invoke(app, [command])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Something is missing: the variable ANVIL names")
    assert done.stderr.endswith(f"{NEEDS}\n")


@pytest.mark.parametrize("command", ["sandbox", "demo"])
@pytest.mark.parametrize("package", ["web3", "ranking_evaluate.sandbox"])
def test_without_its_python_packages_it_says_what_is_needed(
    command: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("ranking_evaluate.sandbox"):
            monkeypatch.delitem(sys.modules, name)
    # None makes an import fail as if there were no such package.
    monkeypatch.setitem(sys.modules, package, None)
    done = CliRunner().invoke(app, [command])
    assert (done.exit_code, done.stdout) == (2, "")
    assert package in done.stderr.splitlines()[0]
    assert done.stderr.endswith(f"{NEEDS}\n")
