"""A bar chart as SVG: one group for each comparison, the length of a bar is its ratio to the group's reference."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABEL, BAR, GAP = 860, 330, 16, 5
OURS, THEIRS, GOAL = "#1f6f5c", "#9aa5b1", "#c2410c"


class Bar(NamedTuple):
    """One candidate; `ratio` is its time over the reference's."""

    label: str
    ratio: float
    is_ours: bool


class Group(NamedTuple):
    """Candidates of one comparison; `goal` is the ratio that ours should not exceed."""

    title: str
    bars: Sequence[Bar]
    goal: float | None = None


def draw(title: str, groups: Sequence[Group]) -> str:
    """Return the SVG; a bar longer than four references is cut, and its number says how long it is."""
    scale = (WIDTH - LABEL - 90) / 4
    pieces: list[str] = []
    y = 34
    for group in groups:
        pieces.append(f'<text x="10" y="{y + 12}" class="group">{escape(group.title)}</text>')
        y += 24
        top = y
        for bar in group.bars:
            length = min(bar.ratio, 4) * scale
            colour = OURS if bar.is_ours else THEIRS
            pieces.append(f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(bar.label)}</text>')
            pieces.append(f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
            pieces.append(f'<text x="{LABEL + length + 6:.1f}" y="{y + 12}">{bar.ratio:.2f}x</text>')
            y += BAR + GAP
        if group.goal is not None:
            x = LABEL + group.goal * scale
            pieces.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 3}" y2="{y}" stroke="{GOAL}" stroke-dasharray="3 3"/>'
            )
        y += 14
    style = "text{font:12px sans-serif;fill:#1f2933}.group{font-weight:bold}.title{font-size:15px;font-weight:bold}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f'<rect width="{WIDTH}" height="{y}" fill="#fff"/><text x="10" y="20" class="title">{escape(title)}</text>'
        f"{''.join(pieces)}</svg>\n"
    )
