"""The command `ranking-evaluate`: a command's module is imported when the command is used, so the free ones start fast.

A new command is a function of the same name in a module of this package, or a `typer.Typer` with commands of its own,
and a line in `COMMANDS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ranking_evaluate.release import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    # typer carries its own copy of click and exports these types nowhere else.
    from typer._click import Command, Context

# In the order of the help: the command, and the module of this package that holds it.
COMMANDS: Final[Mapping[str, str]] = {
    "demo": "demo",
    "measure": "measure",
    "score": "score",
    "verify": "verify",
    "convert": "convert",
    "merge": "convert",
    "report": "report",
    "pay": "pay",
    "serve": "serve",
    "attempts": "attempts",
    "sales": "sales",
    "sandbox": "sandbox",
    "mcp": "mcp",
    "reference": "reference",
}


class LazyCommands(TyperGroup):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return all names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return the command of that name, or None."""
        # Behind a mistyped name typer suggests those that are loaded: then all of them.
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.add_command(_load(name))
        return self.commands.get(cmd_name)


def _load(name: str) -> Command:
    module = import_module(f"{__name__}.{COMMANDS[name]}")
    member = getattr(module, name)
    if isinstance(member, typer.Typer):
        group = get_command(member)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(member)
    return get_command(alone)


app: Final = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ranking-evaluate {VERSION}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Score rankings against relevance judgments: free on this machine, or as a paid service with the same bytes.

    Start with `ranking-evaluate demo`, which shows a whole purchase with test money, or with
    `ranking-evaluate score FILE`, which needs no money, no network and no account.
    """
