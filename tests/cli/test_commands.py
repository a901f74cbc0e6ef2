"""The command itself: every command loads and explains itself, and the version is the release."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ranking_evaluate import __version__
from ranking_evaluate.cli import COMMANDS, app


def test_the_version_is_the_release() -> None:
    done = CliRunner().invoke(app, ["--version"])

    assert (done.exit_code, done.stdout) == (0, f"ranking-evaluate {__version__}\n")


def test_the_help_lists_every_command() -> None:
    listed = CliRunner().invoke(app, ["--help"]).stdout

    assert all(name in listed for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = CliRunner().invoke(app, [command, "--help"])

    assert done.exit_code == 0
    assert f"{command} [OPTIONS]" in done.stdout
