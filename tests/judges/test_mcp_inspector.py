"""The inspector of the Model Context Protocol lists and calls every tool, by its command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Final

import pytest

from ranking_evaluate import OperationError, evaluate
from ranking_evaluate.cli.streams import problem
from ranking_evaluate.contract.schema import input_schema
from ranking_evaluate.operations.registry import OPERATIONS
from tests.judges.test_stock_clients import NODE_OF_THE_WHEEL

INSPECTOR: Final = Path(__file__).parent / "inspector"
PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"

pytestmark = pytest.mark.skipif(
    not (INSPECTOR / "node_modules").exists(), reason="scripts/judges installs the inspector"
)


def inspect(*arguments: str) -> Any:
    """Return what the inspector prints."""
    node = shutil.which("node") or str(NODE_OF_THE_WHEEL)
    command = INSPECTOR / "node_modules" / "@modelcontextprotocol" / "inspector" / "cli" / "build" / "cli.js"
    done = subprocess.run(
        [node, command, "--cli", PROGRAM, "mcp", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PATH": f"{Path(node).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call(tool: str, arguments: dict[str, Any]) -> Any:
    given = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()]
    return inspect("--method", "tools/call", "--tool-name", tool, *(f"--tool-arg={each}" for each in given))


def answered(operation: str, given: dict[str, Any]) -> str:
    """Return what the library answers, or the problem with which it refuses."""
    try:
        return evaluate(operation, given).decode()
    except OperationError as refused:
        return json.dumps(problem(refused))


def test_it_lists_every_tool_and_resource() -> None:
    tools = [tool["name"] for tool in inspect("--method", "tools/list")["tools"]]
    assert tools == [*(operation.id for operation in OPERATIONS), "measure", "verify", "preflight"]
    resources = [resource["name"] for resource in inspect("--method", "resources/list")["resources"]]
    assert {"llms.txt", "reference/errors.md"} <= set(resources)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_it_calls_every_operation_and_gets_what_the_library_answers(operation: Any) -> None:
    said = call(operation.id, dict(operation.example_input))["content"][0]["text"]
    # The inspector reads an argument as JSON only where its schema has one type; another one it sends as text.
    types = {name: schema.get("type") for name, schema in input_schema(operation)["properties"].items()}
    sent = {
        name: value if isinstance(types[name], str) else json.dumps(value)
        for name, value in operation.example_input.items()
    }
    assert said == answered(operation.id, sent)


def test_it_calls_the_tools_beside_the_operations(tmp_path: Path) -> None:
    (tmp_path / "qrels.txt").write_text("q 0 a 1\n")
    (tmp_path / "run.txt").write_text("q Q0 a 1 1.0 t\n")
    paths = {"qrels": str(tmp_path / "qrels.txt"), "run": str(tmp_path / "run.txt")}
    assert call("measure", paths)["structuredContent"]["means"]["10"]["rr"] == 1.0
    operation = OPERATIONS[0]
    body = json.dumps(dict(operation.example_input))
    bought = evaluate(operation.id, body).decode()
    assert call("verify", {"response": bought, "input": body})["structuredContent"]["holds"] is True
    assert len(call("preflight", {"requirements": {}})["structuredContent"]["comparisons"]) == len(OPERATIONS)
    assert call(operation.id, {"queries": []})["isError"] is True
