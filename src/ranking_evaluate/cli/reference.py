"""`ranking-evaluate reference`: writes the documents that are rendered from what runs, or says which are stale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.cli.streams import say, stop
from ranking_evaluate.contract.reference import FOLDER, render
from ranking_evaluate.core.visible import visible
from ranking_evaluate.settings import document as settings_document


def reference(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; name what is stale, and exit 1 if anything is.")
    ] = False,
    directory: Annotated[Path, typer.Option(help="The top of the checkout.")] = Path(),
) -> None:
    """Write reference/ and llms.txt, as this release would serve them, docs/settings.md and deploy/example.env.

    For a checkout of this project alone: what else is in its reference/ is removed.
    """
    if not _is_checkout(directory):
        stop(f"{visible(str(directory.absolute()))} is no checkout of ranking-evaluate: go there, or name it.")
    rendered = {**render(WIRES), settings_document.PATH: settings_document.render().encode()}
    rendered[settings_document.EXAMPLE_PATH] = settings_document.render_example().encode()
    written = {path.relative_to(directory).as_posix() for path in (directory / FOLDER).rglob("*") if path.is_file()}
    stale = [path for path, content in rendered.items() if _content(directory / path) != content]
    left = sorted(written - rendered.keys())
    if check:
        for path in (*stale, *left):
            say(f"{visible(path)} is stale: run `ranking-evaluate reference`.")
        raise typer.Exit(1 if stale or left else 0)
    for path in stale:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(rendered[path])
    for path in left:
        (directory / path).unlink()
    say(f"{len(rendered)} documents, {len(stale)} of them written, {len(left)} removed.")


def _is_checkout(directory: Path) -> bool:
    project = _content(directory / "pyproject.toml")
    return project is not None and b'\nname = "ranking-evaluate"\n' in project


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
