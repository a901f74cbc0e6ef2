"""The report as one page that needs nothing else: inline style and SVG, no script, no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ranking_evaluate.core.visible import visible
from ranking_evaluate.interchange.report.model import Section, figure
from ranking_evaluate.release import VERSION

_POLICY: Final = "default-src 'none'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'"


def render(sections: Sequence[Section]) -> str:
    """Return the page; the same sections give the same text."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template("report.html")
        .render(
            sections=sections,
            # The style is ours, and holds nothing that HTML would read as markup.
            style=Markup(style),  # noqa: S704
            # Even if an id became markup, nothing could run, load or submit.
            policy=_POLICY.format(digest),
            version=VERSION,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ranking_evaluate.interchange.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = _percent
    environment.filters["signed"] = lambda number: figure(number, signed=True)
    environment.filters["figure"] = figure
    environment.filters["visible"] = visible
    return environment


@cache
def _style() -> str:
    return resources.files(__package__).joinpath("templates/report.css").read_text(encoding="utf-8")


def _percent(number: float) -> str:
    """Return where a figure stands on an axis from 0 to 1; what lies beyond is drawn at its end."""
    return f"{100 * min(1.0, max(0.0, number)):.2f}".rstrip("0").rstrip(".") + "%"
