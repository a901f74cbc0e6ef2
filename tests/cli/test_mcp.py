"""The free server for agents, asked by the protocol's official client over a pipe, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from ranking_evaluate import OperationError, evaluate
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.cli.streams import problem
from ranking_evaluate.contract.reference import render
from ranking_evaluate.contract.schema import answer_schema, input_schema
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION

pytestmark = pytest.mark.anyio

PROGRAM: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
NO_NETWORK: Final = """
import socket, sys

class Forbidden(socket.socket):
    def connect(self, *given):
        raise AssertionError("a connection was opened")
    bind = sendto = connect_ex = connect

socket.socket = Forbidden
from ranking_evaluate.cli import app
sys.argv = ["ranking-evaluate", "mcp"]
app()
"""


@asynccontextmanager
async def agent() -> AsyncIterator[Client]:
    """A client of a server in which no connection can be opened."""
    async with Client(StdioServerParameters(command=sys.executable, args=["-c", NO_NETWORK])) as client:
        yield client


def text_of(result: Any) -> str:
    [content] = result.content
    return str(content.text)


async def test_every_operation_is_a_tool_with_its_own_schemas_and_nothing_is_sold() -> None:
    async with agent() as client:
        server = client.server_info
        assert server is not None
        assert (server.name, server.version) == ("ranking-evaluate", VERSION)
        assert "nothing sold" in str(client.instructions)
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(listed) == [*(operation.id for operation in OPERATIONS), "measure", "verify", "preflight"]
    for operation in OPERATIONS:
        tool = listed[operation.id]
        assert (tool.input_schema, tool.output_schema) == (input_schema(operation), answer_schema(operation))
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint


async def test_an_answer_is_byte_for_byte_that_of_the_library() -> None:
    async with agent() as client:
        for operation in OPERATIONS:
            given = dict(operation.example_input)
            said: list[float] = []

            async def note(progress: float, total: float | None, message: str | None, said: list[float] = said) -> None:
                said.append(progress)

            result = await client.call_tool(operation.id, given, progress_callback=note)
            expected = evaluate(operation.id, given)
            assert not result.is_error
            assert text_of(result).encode() == expected
            assert result.structured_content == json.loads(expected)
            assert said[0] == 0


HOSTILE: Final[list[dict[str, Any]]] = [
    {},
    {"queries": []},
    {"queries": [{"id": "q", "retrieved": ["a"], "judgments": []}]},
    {"queries": [{"id": "q", "retrieved": ["a", "a"], "judgments": [{"id": "a", "grade": 1}]}]},
    {"queries": [{"id": "q", "retrieved": ["b"], "judgments": [{"id": "a", "grade": 1}]}]},
    {"queries": [{"id": "q", "retrieved": ["a"], "judgments": [{"id": "a", "grade": 1e300}]}]},
    {"queries": "q", "more": {"deep": [[[[[[[[[[[]]]]]]]]]]]}},
    {"__proto__": 1},
    {"queries": [{"id": "\ud800".encode("utf-8", "replace").decode(), "retrieved": [], "judgments": []}] * 60},
]


async def test_what_is_refused_is_refused_with_the_same_problem() -> None:
    good = dict(OPERATIONS[0].example_input)
    async with agent() as client:
        for given in HOSTILE:
            with pytest.raises(OperationError) as refused:
                evaluate("ranking-evaluate", given)
            result = await client.call_tool("ranking-evaluate", given)
            assert (result.is_error, json.loads(text_of(result))) == (True, problem(refused.value))
            assert result.structured_content is None
        # The server lives on.
        assert text_of(await client.call_tool(OPERATIONS[0].id, good)).encode() == evaluate(OPERATIONS[0].id, good)


MISTYPED: Final[dict[str, dict[str, Any]]] = {
    "/k/0": {"k": [True]},
    "/k": {"k": 10},
    "/relevant_at_least": {"relevant_at_least": "2"},
    "/gain": {"gain": "cubic"},
    "/runs": {"runs": ["a", "b"]},
}


async def test_a_collection_is_measured_from_files_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "qrels.txt").write_text("q 0 a 1\nq 0 b 0\n")
    (tmp_path / "run.txt").write_text("q Q0 b 1 2.0 t\nq Q0 a 2 1.0 t\n")
    paths = {"qrels": str(tmp_path / "qrels.txt"), "run": str(tmp_path / "run.txt")}
    async with agent() as client:
        found = (await client.call_tool("measure", {**paths, "k": [1, 2]})).structured_content
        missing = await client.call_tool("measure", {**paths, "run": str(tmp_path / "none")})
        wrong = await client.call_tool("measure", {**paths, "k": [0]})
        broken = {
            pointer: json.loads(text_of(await client.call_tool("measure", {**paths, **given})))
            for pointer, given in MISTYPED.items()
        }
        huge = (await client.call_tool("measure", {**paths, "k": [10**15]})).structured_content
    assert (found["means"]["1"]["p"], found["means"]["2"]["rr"], found["counts"]["2"]["ap"]) == (0.0, 0.5, 1)
    assert (missing.is_error, json.loads(text_of(missing))["pointer"]) == (True, "/run")
    assert (wrong.is_error, json.loads(text_of(wrong))["violations"][0]["pointer"]) == (True, "/k/0")
    for pointer, problem_of in broken.items():
        assert (problem_of["code"], problem_of["violations"][0]["pointer"]) == ("INVALID_INPUT", pointer)
    assert huge["means"][str(10**15)]["rr"] == 0.5


async def test_whoever_asks_for_it_is_told_how_far_a_collection_is_measured(tmp_path: Path) -> None:
    topics = range(20_000)
    (tmp_path / "qrels.txt").write_text("".join(f"q{topic} 0 a 1\n" for topic in topics))
    lines = (
        f"q{topic} Q0 {letter} {rank} {9 - rank}.5 tag\n" for topic in topics for rank, letter in enumerate("bcda")
    )
    (tmp_path / "run.txt").write_text("".join(lines))
    paths = {"qrels": str(tmp_path / "qrels.txt"), "run": str(tmp_path / "run.txt")}
    said: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, total))

    async with agent() as client:
        found = (await client.call_tool("measure", paths, progress_callback=note)).structured_content
    # The only relevant document is fourth.
    assert found["means"]["10"]["rr"] == 0.25
    parts = [part for part, _ in said]
    assert (parts[0], parts[-1], {total for _, total in said}) == (0, 1, {1})
    assert parts == sorted(set(parts))
    assert len(parts) > 5


async def test_the_stream_of_the_protocol_is_no_file_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-", "qrels"):
        (tmp_path / name).write_text("q 0 a 1\n")
    async with agent() as client:
        refused = await client.call_tool("measure", {"qrels": "qrels", "run": "-"})
        assert (refused.is_error, json.loads(text_of(refused))["pointer"]) == (True, "/run")
        assert len((await client.list_tools()).tools) == len(OPERATIONS) + 3


async def test_a_response_that_was_bought_is_verified() -> None:
    operation = OPERATIONS[0]
    body = json.dumps(dict(operation.example_input))
    response = evaluate(operation.id, body).decode()
    async with agent() as client:
        holds = (await client.call_tool("verify", {"response": response, "input": body})).structured_content
        changed = response.replace('"version":"', '"version":"9')
        differs = (await client.call_tool("verify", {"response": changed, "input": body})).structured_content
        unusable = await client.call_tool("verify", {"response": "{}", "input": body})
    assert (holds["holds"], holds["differences"]) == (True, [])
    assert (differs["holds"], differs["differences"][0]["pointer"]) == (False, "/version")
    assert unusable.is_error


async def test_requirements_are_compared_and_what_is_undeclared_is_unknown() -> None:
    question = {"operation": "ranking-evaluate", "requirements": {"execution.paidMcp": False, "noSuchFact": 1}}
    async with agent() as client:
        [found] = (await client.call_tool("preflight", question)).structured_content["comparisons"]
        of_all = (await client.call_tool("preflight", {"requirements": {}})).structured_content["comparisons"]
        unknown = await client.call_tool("preflight", {"operation": "no-such", "requirements": {}})
    assert found["requirements"]["execution.paidMcp"]["status"] == "compatible"
    assert (found["requirements"]["noSuchFact"]["status"], found["overall"]) == ("unknown", "unknown")
    assert len(of_all) == len(OPERATIONS)
    said = json.loads(text_of(unknown))
    assert (unknown.is_error, said["code"], said["pointer"]) == (True, "INVALID_INPUT", "/operation")


async def test_the_reference_and_llms_txt_are_resources() -> None:
    async with agent() as client:
        listed = (await client.list_resources()).resources
        assert {resource.name for resource in listed} == set(render(WIRES))
        for resource in listed:
            [content] = (await client.read_resource(resource.uri)).contents
            assert content.text.encode() == render(WIRES)[resource.name]  # type: ignore[union-attr]
        with pytest.raises(MCPError):
            await client.read_resource("ranking-evaluate:///etc/passwd")
        with pytest.raises(MCPError):
            await client.call_tool("pay", {})


async def test_the_line_of_the_readme_starts_it() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    [line] = [line for line in readme.splitlines() if line.startswith('{"mcpServers"')]
    [named] = json.loads(line)["mcpServers"].values()
    path = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    async with Client(StdioServerParameters(**named, env=path)) as client:
        assert len((await client.list_tools()).tools) == len(OPERATIONS) + 3


def test_it_ends_when_its_input_ends_and_writes_nothing_but_the_protocol() -> None:
    done = subprocess.run([PROGRAM, "mcp"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('not installed')\n")
    done = subprocess.run(
        [sys.executable, "-c", "from ranking_evaluate.cli import app; app()", "mcp"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'ranking-evaluate[mcp]'" in done.stderr
