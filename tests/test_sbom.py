"""The bill of materials is valid CycloneDX, names all that the image holds and nothing else, and is not stale."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from ranking_evaluate.release import VERSION

ROOT: Final = Path(__file__).parent.parent
TEXT: Final = (ROOT / "deploy" / "sbom.cdx.json").read_text(encoding="utf-8")
DOCUMENT: Final[dict[str, Any]] = json.loads(TEXT)
PURLS: Final = {component["purl"] for component in DOCUMENT["components"]}


def sbom(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "sbom", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_is_valid_and_of_this_release() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(TEXT) is None
    assert DOCUMENT["metadata"]["component"]["name"] == "ranking-evaluate"
    assert DOCUMENT["metadata"]["component"]["version"] == VERSION


def test_it_names_the_base_by_its_digest_and_every_debian_package() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (digest,) = set(re.findall(r"^FROM \S+@sha256:(\S+)", dockerfile, re.MULTILINE))
    assert any(purl.startswith(f"pkg:oci/debian@sha256:{digest}") for purl in PURLS)
    lines = (ROOT / "deploy" / "packages.run").read_text(encoding="utf-8").splitlines()
    wanted = {line.partition("=")[0] for line in lines if not line.startswith("#")}
    assert {purl.split("/")[2].partition("@")[0] for purl in PURLS if purl.startswith("pkg:deb/")} == wanted


def test_it_names_every_python_package_that_the_lock_brings_to_linux() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = set(re.findall(r"^([a-z0-9][a-z0-9.-]*)(?:\[.*?\])?==([^ ;\\]+)", lock, re.MULTILINE))
    found = set(re.findall(r"^pkg:pypi/(.*)@(.*)$", "\n".join(PURLS), re.MULTILINE))
    assert found <= pins
    # What is left out is for Windows, and for newer Pythons than Debian's 3.11.
    assert {name for name, _ in pins - found} == {"colorama", "deprecated", "pywin32", "tzdata"}
    assert len([name for name, _ in found if name == "deprecated"]) == 1
    names = {name for name, _ in found}
    assert {"starlette", "uvicorn", "x402", "pympp", "apsw", "psycopg"} <= names
    assert "pytest" not in names


def test_it_is_what_the_files_make_and_says_when_it_is_not(tmp_path: Path) -> None:
    assert sbom("--check").returncode == 0
    stale = tmp_path / "sbom.json"
    stale.write_text(TEXT.replace(VERSION, "0.0.1"), encoding="utf-8")
    told = sbom("--check", "-o", stale)
    assert (told.returncode, "sbom.json is stale" in told.stderr) == (1, True)


@pytest.mark.parametrize("lock", ["requirements-cdp.lock"])
def test_another_lock_has_its_own(tmp_path: Path, lock: str) -> None:
    file = tmp_path / "sbom.json"
    assert sbom("--lock", ROOT / lock, "-o", file).returncode == 0
    more = {component["purl"] for component in json.loads(file.read_text(encoding="utf-8"))["components"]}
    assert more > PURLS
    assert any(purl.startswith("pkg:pypi/cdp-sdk@") for purl in more)
