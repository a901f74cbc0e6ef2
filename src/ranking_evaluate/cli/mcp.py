"""`ranking-evaluate mcp`: the free operations over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, cast

import typer
from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from ranking_evaluate import evaluate
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.cli.streams import problem, say
from ranking_evaluate.contract import verify as contract
from ranking_evaluate.contract.reference import render
from ranking_evaluate.contract.requirements import QUESTION, answer
from ranking_evaluate.contract.schema import answer_schema, input_schema
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.core.intake import body_of, read
from ranking_evaluate.core.metrics import GainFunction
from ranking_evaluate.measure.rules import Like
from ranking_evaluate.operations.fields import STRICT
from ranking_evaluate.operations.operation import check
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext

    Context = ServerRequestContext[Any, Any]
    Arguments = Mapping[str, Any]
    # Takes which part of the work is done, from 0 to 1.
    Report = Callable[[float], None]

NAME: Final = "ranking-evaluate"
URI: Final = "ranking-evaluate:///"
UNUSABLE: Final = 2

INSTRUCTIONS: Final = (
    "Scores ranked document ids against judgments, on this machine and for nothing: no wallet, no network, nothing sold"
    ". An answer is byte for byte what the paid service of this release sells. A missing label is never quietly zero: "
    "what cannot be computed is refused, with a problem that says where and what to do. Documents of the service are "
    "resources."
)


@with_config(STRICT)
class MeasureInput(TypedDict):
    """What `measure` takes: two paths on this machine, and the rules."""

    qrels: Annotated[str, Field(description="The path of a file of judgments on this machine.")]
    run: Annotated[str, Field(description="The path of a file of ranked documents on this machine.")]
    k: NotRequired[Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, default=[10])]]
    relevant_at_least: NotRequired[Annotated[float, Field(gt=0, default=1)]]
    gain: NotRequired[Annotated[GainFunction, Field(default="linear")]]
    like: NotRequired[Annotated[Like | None, Field(default=None)]]
    condensed: NotRequired[Annotated[bool, Field(default=False)]]
    ignore_identical_ids: NotRequired[Annotated[bool, Field(default=False)]]


@with_config(STRICT)
class VerifyInput(TypedDict):
    """What `verify` takes: two texts."""

    response: Annotated[str, Field(description="The response, as it was delivered: its very text.")]
    input: Annotated[str, Field(description="The input that it is said to answer, as JSON text.")]


MEASURE_INPUT: Final = TypeAdapter(MeasureInput)
VERIFY_INPUT: Final = TypeAdapter(VerifyInput)


class _Refused(Exception):
    """The call is refused; `problem` says why, in the form of the service's own refusals."""

    def __init__(self, document: Mapping[str, object]) -> None:
        super().__init__(str(document.get("detail")))
        self.problem = dict(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """A tool: `run` returns the text of its answer, which is JSON, and reports meanwhile where that takes long."""

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    run: Callable[[Arguments, Report], str]


def mcp() -> None:
    """Serve the free operations to an agent on this machine, over the Model Context Protocol (stdio).

    A tool for each operation with the bytes that the service sells, and `measure`, `verify` and `preflight`; the
    reference and llms.txt are resources. It needs the extra: `pip install 'ranking-evaluate[mcp]'`. A client starts it
    by itself; it ends when its input ends.
    """
    try:
        import mcp  # noqa: F401 - Whether it is there.
    except ImportError:
        say("The Model Context Protocol needs its SDK: pip install 'ranking-evaluate[mcp]'")
        raise typer.Exit(UNUSABLE) from None
    asyncio.run(_serve())


async def _serve() -> None:
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    server = Server(
        NAME,
        version=VERSION,
        title="ranking-evaluate",
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
    )
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


# Tools.


@cache
def tools() -> Mapping[str, _Tool]:
    """Return every tool by its name."""
    made = [
        _Tool(
            name=operation.id,
            title=operation.name,
            description=f"{operation.description} The answer is byte for byte what the paid service sells.",
            input_schema=input_schema(operation),
            output_schema=answer_schema(operation),
            run=partial(_evaluate, operation.id),
        )
        for operation in OPERATIONS
    ]
    made += [
        _Tool(
            name="measure",
            title="Measure a run",
            description="Means of P, recall, RR, AP, NDCG, success and judged at each cutoff, over whole collections "
            "of any size. It reads the two files of this machine that the paths name: TREC, MS MARCO, BEIR, JSON, gz.",
            input_schema=MEASURE_INPUT.json_schema(),
            run=_measure,
        ),
        _Tool(
            name="verify",
            title="Verify a response",
            description="Recomputes digests and figures of a response that was bought, and says where it differs.",
            input_schema=VERIFY_INPUT.json_schema(),
            run=_verify,
        ),
        _Tool(
            name="preflight",
            title="Compare requirements",
            description="Compares what you require with the facts that an operation declares; undeclared is unknown. "
            "With an `operation` of that one, else of each.",
            input_schema=QUESTION.json_schema(),
            run=_preflight,
        ),
    ]
    return {tool.name: tool for tool in made}


def _checked(adapter: TypeAdapter[Any], arguments: Arguments) -> dict[str, Any]:
    """Return the arguments, which meet the tool's schema; raises OperationError where they do not."""
    value = read(body_of(arguments))
    check(adapter, value)
    return cast("dict[str, Any]", value)


def _evaluate(operation: str, arguments: Arguments, _report: Report) -> str:
    return evaluate(operation, body_of(arguments)).decode()


def _measure(arguments: Arguments, report: Report) -> str:
    from ranking_evaluate.measure.api import measured

    given = _checked(MEASURE_INPUT, arguments)
    for name in ("qrels", "run"):
        # "-" would be the protocol's own stream.
        if given[name] == "-" or not Path(given[name]).is_file():
            raise _Refused(_plain(f"There is no file {given[name]} on this machine.", f"/{name}"))
    qrels, run, k = given.pop("qrels"), given.pop("run"), given.pop("k", [10])
    advance = _in_steps(Path(qrels).stat().st_size + Path(run).stat().st_size, report)
    try:
        found = measured(qrels, run, tuple(k), advance=advance, **given)
    except (ValueError, TypeError, OSError) as error:
        raise _Refused(_plain(str(error))) from error
    figures = {
        "release": VERSION,
        "means": {str(k): mean._asdict() for k, mean in found.means.items()},
        "counts": {str(k): count._asdict() for k, count in found.counts.items()},
    }
    return json.dumps(figures)


def _in_steps(size: int, report: Report) -> Callable[[int], None]:
    """Return what takes how many of `size` bytes were just read, and reports each whole hundredth."""
    done = told = 0

    def advance(read: int) -> None:
        nonlocal done, told
        done += read
        if told < (hundredths := done * 100 // size) < 100:
            told = hundredths
            report(told / 100)

    return advance


def _verify(arguments: Arguments, _report: Report) -> str:
    given = _checked(VERIFY_INPUT, arguments)
    try:
        found = contract.verify(given["response"].encode(), given["input"].encode())
    except contract.Unusable as error:
        raise _Refused(_plain(str(error))) from error
    return json.dumps(
        {
            "holds": not found.differences,
            "operation": found.operation,
            "version": found.version,
            "inputSha256": found.input_sha256,
            "outputSha256": found.output_sha256,
            "differences": [difference._asdict() for difference in found.differences],
        }
    )


def _preflight(arguments: Arguments, _report: Report) -> str:
    found = answer(body_of(arguments), WIRES)
    return json.dumps({"comparisons": found if isinstance(found, list) else [found]})


def _plain(detail: str, pointer: str | None = None) -> dict[str, object]:
    """Return a problem of a tool that the service does not have."""
    found: dict[str, object] = {"title": "The call cannot be made", "status": 422, "detail": detail, "code": "UNUSABLE"}
    return found if pointer is None else {**found, "pointer": pointer}


# What the protocol asks.


async def _list_tools(ctx: Context, params: object) -> Any:  # noqa: ANN401 - imported with the SDK.
    from mcp.types import ListToolsResult, Tool, ToolAnnotations

    harmless = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    return ListToolsResult(
        tools=[
            Tool(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
                annotations=harmless,
            )
            for tool in tools().values()
        ]
    )


async def _call_tool(ctx: Context, params: Any) -> Any:  # noqa: ANN401 - imported with the SDK.
    from mcp.shared.exceptions import MCPError
    from mcp.types import INVALID_PARAMS, CallToolResult, TextContent

    tool = tools().get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"There is no tool {params.name}: tools/list names all.")
    await ctx.session.report_progress(0, 1, "computing")
    loop = asyncio.get_running_loop()

    def report(done: float) -> None:
        asyncio.run_coroutine_threadsafe(ctx.session.report_progress(done, 1, "computing"), loop)

    try:
        # In a thread, so that what takes long holds up neither a cancellation nor another call.
        text = await asyncio.to_thread(tool.run, params.arguments or {}, report)
    except OperationError as error:
        refused: Mapping[str, object] = problem(error)
    except _Refused as error:
        refused = error.problem
    else:
        await ctx.session.report_progress(1, 1, "computed")
        return CallToolResult(content=[TextContent(text=text)], structured_content=json.loads(text))
    # Clients hold structured content against the schema of answers, that of a refusal too: it is told as text alone.
    return CallToolResult(content=[TextContent(text=json.dumps(refused))], is_error=True)


async def _list_resources(ctx: Context, params: object) -> Any:  # noqa: ANN401 - imported with the SDK.
    from mcp.types import ListResourcesResult, Resource

    return ListResourcesResult(
        resources=[
            Resource(name=path, uri=URI + path, mime_type=_media_type(path), size=len(content))
            for path, content in render(WIRES).items()
        ]
    )


async def _read_resource(ctx: Context, params: Any) -> Any:  # noqa: ANN401 - imported with the SDK.
    from mcp.shared.exceptions import MCPError
    from mcp.types import INVALID_PARAMS, ReadResourceResult, TextResourceContents

    path = params.uri.removeprefix(URI)
    content = render(WIRES).get(path) if params.uri.startswith(URI) else None
    if content is None:
        raise MCPError(INVALID_PARAMS, "There is no such resource: resources/list names all.")
    return ReadResourceResult(
        contents=[TextResourceContents(uri=params.uri, mime_type=_media_type(path), text=content.decode())]
    )


def _media_type(path: str) -> str:
    kinds = {"json": "application/json", "md": "text/markdown", "csv": "text/csv"}
    return kinds.get(path.rpartition(".")[2], "text/plain")
