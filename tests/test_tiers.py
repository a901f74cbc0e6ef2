"""Every test is run by exactly one script, and the CI calls every script that runs tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.conftest import BEYOND_UNIT

ROOT: Final = Path(__file__).parent.parent
OWN_SCRIPTS: Final = ("faults", "judges")


def called_by_pytest(script: str) -> str:
    return "\n".join(line for line in (ROOT / "scripts" / script).read_text().splitlines() if not line.startswith("#"))


def test_a_folder_with_a_script_of_its_own_is_run_by_that_and_left_out_by_the_other() -> None:
    ignored = re.findall(r"--ignore tests/(\S+)", called_by_pytest("test"))
    assert ignored == list(OWN_SCRIPTS)
    for folder in OWN_SCRIPTS:
        assert re.findall(r" tests/(\w+)(?: |$)", called_by_pytest(folder), re.MULTILINE) == [folder]
        assert folder in BEYOND_UNIT


def test_the_ci_calls_every_script_that_runs_tests() -> None:
    called = re.findall(r"^scripts/(\w+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert {"check", "test", *OWN_SCRIPTS, "drill", "wheel"} <= set(called)
    assert len(called) == len(set(called))


def test_the_ci_drills_what_takes_minutes_and_leaves_the_rest_to_people() -> None:
    assert "scripts/drill --short" in (ROOT / ".ci" / "run").read_text().splitlines()
    assert called_by_pytest("drill").splitlines()[-1] == 'exec .venv/bin/python -m tests.drill "$@"'


def test_what_is_named_as_beyond_the_unit_tier_is_there() -> None:
    assert [name for name in BEYOND_UNIT if not (ROOT / "tests" / name).exists()] == []
