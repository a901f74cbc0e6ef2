"""`ranking-evaluate sandbox`: a whole paid service on this machine, for trying it out."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ranking_evaluate.cli.streams import say, tell

if TYPE_CHECKING:
    from ranking_evaluate.sandbox import FundedProtocol, Sandbox

SMALL_INPUT = (
    '{"queries":[{"id":"q","retrieved":["b","a"],"judgments":[{"id":"a","grade":3},{"id":"b","grade":1}]}],"k":2}'
)

NEEDS = """The sandbox needs
- Python packages: pip install 'ranking-evaluate[sandbox]'
- anvil, a local chain: npm install @foundry-rs/anvil@1.7.1 in this folder (Node 20 or newer);
  or Foundry's anvil on the PATH; or its path in the variable ANVIL
In a checkout of this project, scripts/setup installs both."""


def require_sandbox() -> None:
    """Return when this installation has what the sandbox needs; otherwise say what is missing and exit with code 2."""
    try:
        from ranking_evaluate.sandbox import MissingError
        from ranking_evaluate.sandbox.anvil import find_anvil
    except ImportError as error:
        missing = str(error)
    else:
        try:
            find_anvil()
        except MissingError as error:
            missing = str(error)
        else:
            return
    say(f"Something is missing: {missing}.\n{NEEDS}")
    raise typer.Exit(2)


@contextlib.contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block as an interrupt at the terminal does, so that everything is tidied up.

    SIGINT is set too: a shell starts what a script puts into the background with interrupts ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def info_text(info: dict[str, Any]) -> str:
    """Return the info file: addresses and keys, for programs."""
    return f"{json.dumps(info, indent=2)}\n"


def exports_text(exports: Mapping[str, str]) -> str:
    """Return what a shell takes in for the example clients, a line for each variable."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in exports.items())


def write_private(path: Path, text: str) -> None:
    """Write a file in one step, so that whoever waits for it never reads half of it.

    It holds private keys of the sandbox's wallets: its owner alone may read it.
    """
    # mkstemp gives mode 0600.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def summary(sandbox: Sandbox) -> Table:
    """Return what a person needs to know about a running sandbox."""
    # Without a frame a private key fits on one line of 80 columns, where it can be copied.
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("service", sandbox.origin)
    table.add_row("database", sandbox.database)
    for funded in sandbox.protocols:
        table.add_row()
        table.add_row(f"{funded.protocol} network", funded.network)
        table.add_row("asset", f"{funded.asset} ({funded.asset_name})")
        table.add_row("payer", funded.payer.address)
        table.add_row("payer's key", funded.payer.key)
        table.add_row("node", funded.rpc)
        table.add_row("payer has", f"{funded.balance(funded.payer.address) / 10**funded.decimals:,.2f}")
        table.add_row("paid to", funded.payee)
        for other in funded.others:
            table.add_row(f"{funded.protocol} network", other.network)
            table.add_row("asset", f"{other.asset} ({other.asset_name})")
            table.add_row("node", other.rpc)
            table.add_row("payer has", f"{other.balance(funded.payer.address) / 10**funded.decimals:,.2f}")
    return table


def first_call(sandbox: Sandbox, funded: FundedProtocol) -> str:
    """Return a command line that buys a first answer over one of the protocols."""
    settings = [f"RANKING_EVALUATE_WALLET_KEY={funded.payer.key}"]
    if "RANKING_EVALUATE_MPP_RPC_URL" in funded.environment:
        # An MPP buyer asks the chain what to sign; x402 needs no node for that.
        settings.append(f"RANKING_EVALUATE_MPP_RPC_URL={funded.rpc}")
    return (
        f"echo '{SMALL_INPUT}' |\n"
        + "".join(f"  {setting} \\\n" for setting in settings)
        + f"  ranking-evaluate pay {sandbox.origin}/v1/{funded.protocol}/ranking-evaluate"
        f" --protocol {funded.protocol} --input -"
    )


def sandbox(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The service's port; 0 takes a free one.")] = 8402,
    info: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write addresses and keys to FILE, as JSON, when all is ready.")
    ] = None,
    env: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write to FILE, for a shell to read, what the example clients need."),
    ] = None,
    base_sepolia: Annotated[
        bool,
        typer.Option(
            "--base-sepolia",
            help="Let the x402 chain pass for Base Sepolia and its token for USDC, for clients that know no other.",
        ),
    ] = False,
    two_networks: Annotated[
        bool,
        typer.Option("--two-networks", help="Take x402 payments on a second chain too, with a token of its own."),
    ] = False,
) -> None:
    """Run everything on this machine until interrupted: chains, token, facilitator, funded wallets and the service.

    Nothing in it is worth anything, and nothing of it stays behind.

    Exit codes: 0 interrupted; 1 something broke down; 2 something must be installed first.
    """
    require_sandbox()
    from ranking_evaluate.sandbox import Sandbox, SandboxError
    from ranking_evaluate.sandbox.x402 import BASE_SEPOLIA, LOCAL, SECOND_LOCAL

    console = Console()
    written: list[Path] = []
    networks = (BASE_SEPOLIA if base_sepolia else LOCAL, *([SECOND_LOCAL] if two_networks else []))
    try:
        with termination_as_interrupt(), Sandbox(port=port, x402_networks=networks) as running:
            console.print(summary(running))
            for funded in running.protocols:
                console.print(f"\nA first call over {funded.protocol}:", style="bold")
                # Printed raw: a command line that was wrapped or coloured could not be copied.
                tell(first_call(running, funded))
            console.print(f"\nFor the clients of {running.origin}/reference/ (--env FILE writes this):", style="bold")
            tell(exports_text(running.exports))
            console.print("Interrupt (Ctrl+C) to stop.")
            for path, text in ((info, info_text(running.info)), (env, exports_text(running.exports))):
                if path is not None:
                    write_private(path, text)
                    written.append(path)
            running.watch()
    except KeyboardInterrupt:
        console.print("Stopped.")
    except (SandboxError, OSError) as error:
        say(f"The sandbox failed. {error}")
        raise typer.Exit(1) from error
    finally:
        for path in written:
            path.unlink(missing_ok=True)
