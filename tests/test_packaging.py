"""What a stranger who installs the wheel relies on: declared dependencies, complete locks and metadata."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

import ranking_evaluate
from ranking_evaluate.cli.sandbox import NEEDS

ROOT: Final = Path(__file__).parent.parent
# The installed package: `scripts/wheel` runs these tests against the wheel.
SOURCE: Final = Path(ranking_evaluate.__file__).parent
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: Final[dict[str, Any]] = PYPROJECT["project"]

# Declared, though no module of ours names them: another library picks each up where it is installed.
USED_BY_OTHERS: Final = {
    "sniffio": "httpcore asks it for the running event loop",
    "uvloop": "uvicorn runs on it",
}


def canonical(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    """Return the distributions that requirement lines name; this project's own extras are none."""
    found = {canonical(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in requirements}
    return found - {canonical(PROJECT["name"])}


def imported(folder: Path) -> dict[str, str]:
    """Return each distribution that the modules below a folder import, and one module that does."""
    providers = packages_distributions()
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                modules = [node.module]
            for module in (name.split(".")[0] for name in modules):
                if module not in sys.stdlib_module_names and module != "ranking_evaluate":
                    # What nobody provides is looked for under its own name, and not found.
                    for provider in providers.get(module, [module]):
                        found[canonical(provider)] = str(path.relative_to(SOURCE))
    return found


def base() -> set[str]:
    return names(PROJECT["dependencies"])


def extra(name: str) -> set[str]:
    return names(PROJECT["optional-dependencies"][name])


def test_every_imported_package_is_declared() -> None:
    everything = imported(SOURCE)
    sandbox = imported(SOURCE / "sandbox")
    undeclared = everything.keys() - base() - every_extra()
    assert not {name: everything[name] for name in undeclared}
    assert not {name: sandbox[name] for name in sandbox.keys() - base() - extra("sandbox")}


def test_the_core_and_the_operations_import_no_other_package() -> None:
    assert imported(SOURCE / "core").keys() <= {"orjson"}
    assert imported(SOURCE / "operations").keys() <= {"orjson", "pydantic", "pydantic-core", "typing-extensions"}


def test_nothing_but_the_sandbox_imports_what_the_extra_sandbox_brings() -> None:
    outside = {name: where for name, where in imported(SOURCE).items() if name in extra("sandbox")}
    assert {where.split("/")[0] for where in outside.values()} == {"sandbox"}


def every_extra() -> set[str]:
    return set[str]().union(*(extra(name) for name in ("postgres", "redis", "cdp", "sandbox", "statistics", "mcp")))


def test_every_declared_package_is_imported_or_has_its_reason() -> None:
    assert (base() | every_extra()) - imported(SOURCE).keys() == set(USED_BY_OTHERS)


def test_the_decision_about_dependencies_has_a_reason_for_each() -> None:
    page = (ROOT / "docs" / "decisions" / "dependencies.md").read_text(encoding="utf-8")
    libraries = " ".join(re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE))
    assert not (base() | every_extra()) - set(re.findall(r"[\w-]+", libraries))


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements.lock", ["postgres", "redis"]),
        ("requirements-cdp.lock", ["postgres", "redis", "cdp"]),
        ("requirements-test.lock", ["postgres", "redis", "cdp", "sandbox", "statistics", "mcp", "test"]),
        ("requirements-dev.lock", ["postgres", "redis", "cdp", "sandbox", "statistics", "mcp", "test", "dev"]),
    ],
)
def test_every_lock_pins_what_is_declared(lock: str, extras: list[str]) -> None:
    pinned = set(re.findall(r"^([a-z0-9][a-z0-9.-]*)==", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))
    wanted = base().union(*(extra(name) for name in extras))
    assert not wanted - pinned


def pins(lock: str) -> set[str]:
    """Return what a lock file pins, with the versions."""
    return set(re.findall(r"^([a-z0-9][a-z0-9.-]*==\S+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


def test_what_builds_the_wheel_is_pinned_with_the_versions_that_are_tested() -> None:
    """No build fetches anything that no lock names: docs/install.md builds without isolation."""
    build, tested = (pins(name) for name in ("requirements-build.lock", "requirements-dev.lock"))
    assert build <= tested
    assert set(PYPROJECT["build-system"]["requires"]) <= {pin.partition("==")[0] for pin in build}


def test_the_licence_is_in_the_metadata_and_the_types_are_marked() -> None:
    assert PROJECT["license"] == "MIT"
    assert [(ROOT / name).read_text(encoding="utf-8").splitlines()[0] for name in PROJECT["license-files"]] == [
        "MIT License"
    ]
    assert (SOURCE / "py.typed").exists()


def test_the_sandbox_names_the_anvil_that_the_lock_file_installs() -> None:
    named = re.search(r"npm install (\S+)@([0-9.]+) in this folder", NEEDS)
    assert named
    packages = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert packages[named[1]] == named[2]
