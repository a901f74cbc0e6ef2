"""The internals of uvicorn that we use are written down, and are there in the one version that we name."""

from __future__ import annotations

import asyncio
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server, ServerState

from ranking_evaluate.server import start
from tests.server.test_start import configured

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "decisions" / "uvicorn-subclassed.md").read_text(encoding="utf-8")


def listed() -> list[tuple[str, str]]:
    """Return the class and name of each internal in the page's table."""
    found = []
    for row in re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE):
        owner, _, _ = row.strip("`").partition(".")
        found += [(owner, name.rpartition(".")[2]) for name in re.findall(r"`([\w.]+)`", row)]
    return found


def owners() -> dict[str, object]:
    """Return an object of each class of uvicorn's; what it has is often set by its constructor."""
    config, state, loop = configured(), ServerState(), asyncio.new_event_loop()
    loop.close()
    protocol = HttpToolsProtocol(config, state, {}, loop)
    cycle = RequestResponseCycle(
        scope={"type": "http"},  # type: ignore[typeddict-item]
        transport=asyncio.Transport(),
        flow=FlowControl(asyncio.Transport()),
        logger=protocol.logger,
        access_logger=protocol.access_logger,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=protocol.on_response_complete,
    )
    return {one.__class__.__name__: one for one in (config, state, protocol, cycle, Server(config))}


def test_the_installed_uvicorn_is_the_one_that_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"uvicorn=={version('uvicorn')}" in project["dependencies"]
    assert version("uvicorn") == uvicorn.__version__


@pytest.mark.parametrize(("owner", "name"), listed(), ids=lambda part: part)
def test_each_internal_is_there(owner: str, name: str) -> None:
    assert hasattr(owners()[owner], name)


def test_every_attribute_of_uvicorn_that_our_connection_uses_is_listed() -> None:
    folder = Path(start.__file__).parent
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("connection.py", "buffered_transport.py"))
    used = set(re.findall(r"\b(?:self|super\(\)|cycle|server_state)(?=\.(\w+))", source))
    used |= set(re.findall(r"def (\w+)", source)) - {"__init__"}
    there = {name for one in owners().values() for name in dir(one)} - set(dir(asyncio.Protocol))
    assert used & there == {name for _, name in listed()} - {"http", "startup", "should_exit", "handle_exit"}
