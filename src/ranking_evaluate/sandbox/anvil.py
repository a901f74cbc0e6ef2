"""A local chain: finds the program `anvil`, starts it on a free port and waits until it answers."""

import os
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from web3 import HTTPProvider, Web3

from ranking_evaluate.sandbox.processes import LOOPBACK, MissingError, Processes, SandboxError, free_port

START_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.01
# Another program may take the free port before anvil does.
START_ATTEMPTS: Final = 3
NPM_ARCHITECTURES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A running local chain; `web3` speaks to it."""

    chain_id: int
    rpc: str
    web3: Web3 = field(repr=False)

    @property
    def network(self) -> str:
        """The chain's CAIP-2 name."""
        return f"eip155:{self.chain_id}"


def find_anvil(*, folders: Sequence[Path] | None = None) -> Path:
    """Return the anvil program: what the variable ANVIL names, else the one on the PATH, else npm's.

    Args:
        folders: Where npm may have installed it; by default here, and in the checkout that this package belongs to.

    Raises:
        MissingError: There is none.
    """
    named = os.environ.get("ANVIL")
    if named is not None:
        program = shutil.which(named)
        if program is None:
            raise MissingError(f"the variable ANVIL names {named!r}, which is no program")
        return Path(program).absolute()
    on_path = shutil.which("anvil")
    if on_path is not None:
        return Path(on_path)
    machine = platform.machine().lower()
    package = f"anvil-{platform.system().lower()}-{NPM_ARCHITECTURES.get(machine, machine)}"
    for folder in _npm_folders() if folders is None else folders:
        installed = folder / "node_modules" / "@foundry-rs" / package / "bin" / "anvil"
        if installed.is_file():
            return installed
    raise MissingError("there is no program anvil on the PATH or in node_modules, and the variable ANVIL names none")


def _npm_folders() -> list[Path]:
    """Return the current folder and, when this package is used from a checkout's `src`, the checkout."""
    source = Path(__file__).resolve().parents[2]
    return [Path.cwd(), source.parent] if source.name == "src" else [Path.cwd()]


BLOCKS: Final = ("--block-time", "1", "--mixed-mining", "--slots-in-an-epoch", "1")
"""A block every second, and one for every transaction at once; a block is final two blocks later.

A chain's clock moves with its blocks only, and what the service learns of a payment it learns of final blocks.
"""


def start_anvil(
    processes: Processes, *, name: str = "anvil", chain_id: int = 31337, arguments: Sequence[str] = ()
) -> Chain:
    """Start a chain and return it once it answers.

    Args:
        processes: Where the process belongs.
        name: What messages and the log file call it.
        chain_id: The chain id it reports and signs for.
        arguments: More arguments for anvil, such as another network.

    Raises:
        MissingError: There is no anvil.
        SandboxError: It does not come up.
    """
    program = find_anvil()
    for attempt in range(1, START_ATTEMPTS + 1):
        port = free_port()
        listen = ["--silent", "--host", LOOPBACK, "--port", str(port), "--chain-id", str(chain_id)]
        processes.start(name, [program, *listen, *arguments])
        rpc = f"http://{LOOPBACK}:{port}"
        try:
            _wait_until_it_answers(processes, rpc, chain_id)
        except SandboxError:
            processes.end(name, kill=True)
            if attempt == START_ATTEMPTS:
                raise
        else:
            break
    return Chain(chain_id=chain_id, rpc=rpc, web3=Web3(HTTPProvider(rpc)))


def _wait_until_it_answers(processes: Processes, rpc: str, chain_id: int) -> None:
    question = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
    deadline = time.monotonic() + START_SECONDS
    with httpx.Client(trust_env=False, timeout=2.0) as client:
        while time.monotonic() < deadline:
            processes.check()
            try:
                answer = client.post(rpc, json=question).json()
            except (httpx.HTTPError, ValueError):
                time.sleep(POLL_SECONDS)
                continue
            if answer.get("result") == hex(chain_id):
                return
            break
    raise SandboxError(f"anvil did not come up as chain {chain_id} at {rpc} within {START_SECONDS:.0f} seconds.")
