"""The chain is found or its absence explained, and it never outlives the sandbox."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranking_evaluate.sandbox import MissingError, SandboxError
from ranking_evaluate.sandbox.anvil import find_anvil, start_anvil
from ranking_evaluate.sandbox.processes import Processes, is_port_free

STARTS_AND_WAITS = """
import time
from ranking_evaluate.sandbox.anvil import start_anvil
from ranking_evaluate.sandbox.processes import Processes
processes = Processes()
chain = start_anvil(processes)
print(chain.rpc, processes.directory, flush=True)
time.sleep(60)
"""


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the only one on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ANVIL", raising=False)
    return tmp_path


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_without_anvil_the_error_says_where_it_was_looked_for(nowhere: Path) -> None:
    with pytest.raises(MissingError, match="no program anvil on the PATH or in node_modules, and the variable ANVIL"):
        find_anvil(folders=[nowhere])


def test_npms_anvil_is_found_then_one_on_the_path_then_the_one_that_is_named(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    by_npm = program(nowhere / "node_modules" / "@foundry-rs" / "anvil-linux-amd64" / "bin" / "anvil")
    assert find_anvil(folders=[nowhere]) == by_npm
    on_path = program(nowhere / "anvil")
    assert find_anvil(folders=[nowhere]) == on_path
    named = program(nowhere / "elsewhere" / "my-anvil")
    monkeypatch.setenv("ANVIL", str(named))
    assert find_anvil(folders=[nowhere]) == named


def test_an_anvil_that_is_named_and_missing_is_not_replaced_by_another(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(nowhere / "anvil")
    monkeypatch.setenv("ANVIL", "/no/such/program")
    with pytest.raises(MissingError, match="the variable ANVIL names '/no/such/program'"):
        find_anvil()


def test_two_chains_live_side_by_side() -> None:
    processes = Processes()
    try:
        one = start_anvil(processes, name="one")
        two = start_anvil(processes, name="two", chain_id=84532)
        assert (one.web3.eth.chain_id, two.web3.eth.chain_id) == (31337, 84532)
        assert two.network == "eip155:84532"
    finally:
        processes.stop()
    assert not processes.directory.exists()
    processes.stop()


def test_an_anvil_that_cannot_start_is_quoted() -> None:
    processes = Processes()
    try:
        with pytest.raises(SandboxError, match=r"(?s)anvil process ended.*unexpected argument"):
            start_anvil(processes, arguments=["--no-such-option"])
    finally:
        processes.stop()


def test_the_chain_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTS_AND_WAITS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as output:
        rpc, directory = output.readline().split()
    port = int(rpc.rsplit(":", 1)[1])
    assert not is_port_free(port)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (Path(directory).exists() or not is_port_free(port)):
        time.sleep(0.05)
    assert is_port_free(port)
    assert not Path(directory).exists()
