"""What docs/install.md makes of a machine without an engine: unit, settings, proxy and commands agree."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ranking_evaluate.recording import RECORD_FOR
from ranking_evaluate.server import open_files
from ranking_evaluate.server.limits import Limits
from ranking_evaluate.settings import VARIABLES, document, read_settings
from ranking_evaluate.settings.variables import Group

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
COMMANDS: Final = "\n".join(re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE))
AS_SERVICE: Final = (ROOT / "deploy" / "ranking-evaluate-as-service").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # As configparser documents it.
    parser.read(ROOT / "deploy" / "ranking-evaluate.service", encoding="utf-8")
    return parser["Service"]


def test_the_unit_waits_for_payments_and_has_files_for_every_connection(unit: configparser.SectionProxy) -> None:
    settings = read_settings({})
    assert float(unit["TimeoutStopSec"]) > settings.verify_timeout + settings.settle_timeout + 15 + RECORD_FOR
    assert int(unit["LimitNOFILE"]) >= Limits().max_connections + open_files.RESERVED
    assert unit["KillMode"] == "mixed", "the workers are the service's to end"
    assert unit["RestartPreventExitStatus"] == "2", "a wrong setting is not mended by starting again"
    assert unit["Restart"] == "on-failure", "a store that is away ends the start with 1, and comes back"


def test_the_unit_gives_the_service_no_more_than_it_needs(unit: configparser.SectionProxy) -> None:
    assert unit["User"] == unit["Group"] == "ranking-evaluate"
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == ""
    assert (unit["ProtectSystem"], unit["UMask"], unit["StateDirectoryMode"]) == ("strict", "0077", "0700")
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        assert unit[name] == "yes"
    assert "MemoryMax" in unit
    assert "TasksMax" in unit


def test_unit_page_and_script_speak_of_the_same_places(unit: configparser.SectionProxy) -> None:
    program, *arguments = shlex.split(unit["ExecStart"])
    assert arguments[:3] == ["serve", "--host", "127.0.0.1"]
    assert f"python3 -m venv {Path(program).parents[1]}" in COMMANDS
    assert f'{program} "$@"' in AS_SERVICE
    for place in (unit["EnvironmentFile"], unit["WorkingDirectory"]):
        assert place in COMMANDS
        assert place in AS_SERVICE
    assert f"--uid={unit['User']} " in AS_SERVICE
    assert f"sqlite:///{unit['WorkingDirectory']}/" in PAGE
    assert os.access(ROOT / "deploy" / "ranking-evaluate-as-service", os.X_OK)


def test_every_file_that_the_page_names_is_there() -> None:
    named = {word for word in COMMANDS.split() if re.fullmatch(r"(deploy/|requirements)[\w./-]+", word)}
    assert {"deploy/nginx.conf", "deploy/example.env", "requirements.lock", "requirements-build.lock"} <= named
    for name in named:
        assert (ROOT / name).is_file(), name


def test_the_example_has_every_variable_of_the_service_and_no_other() -> None:
    text = (ROOT / document.EXAMPLE_PATH).read_text(encoding="utf-8")
    assert text == document.render_example(), "run `ranking-evaluate reference`"
    lines = re.findall(r"^#?([A-Z][A-Z0-9_]+)=(.*)$", text, re.MULTILINE)
    wanted = [each for each in VARIABLES.values() if each.group is not Group.BUYER]
    assert [name for name, _ in lines] == [each.full_name for each in wanted]
    for each, (_, value) in zip(wanted, lines, strict=True):
        # What is written there is taken: the default, or an example.
        assert not value or each.value(value) is not None
        assert not each.required or f"\n{each.full_name}=" in text
        assert len(value.split()) < 2, "a shell would take it apart"


def test_the_documented_changes_make_the_proxy_s_configuration_one_for_a_host() -> None:
    (command,) = re.findall(r"(sed .*?) deploy/nginx\.conf > ", COMMANDS.replace("\\\n", " "), re.DOTALL)
    made = subprocess.run(
        ["sh", "-euc", f"{command} deploy/nginx.conf"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for line in ("listen 443 ssl;", "pid /run/nginx.pid;", "server 127.0.0.1:8402 max_fails=0;"):
        assert made.count(line) == 1, line
    # Under systemd nginx has a socket for its output, which it cannot open by a name.
    for gone in ("8443", "resolver ", "resolve;", "service:8402", "/dev/std"):
        assert gone not in made
    assert made.count("\n") == (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8").count("\n") - 1
