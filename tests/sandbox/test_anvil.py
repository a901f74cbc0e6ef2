"""The chain is found or its absence explained, and it never outlives the sandbox."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranking_evaluate.sandbox import SandboxError
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


def test_without_anvil_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="Run scripts/setup, or `npm ci --ignore-scripts`"):
        find_anvil(checkout=tmp_path)


def test_an_anvil_on_the_path_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "anvil"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_anvil() == program


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
