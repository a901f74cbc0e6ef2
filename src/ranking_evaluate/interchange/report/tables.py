"""The report as Markdown for a pull request, and as CSV for a spreadsheet."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ranking_evaluate.core.visible import visible
from ranking_evaluate.interchange.csv_table import csv_table
from ranking_evaluate.interchange.report.model import Comparison, Pair, Section, Value, figure

_PLAIN: Final = frozenset(string.ascii_letters + string.digits + " .,:;/-=+()'")
_COLUMNS: Final = ("response", "operation", "query", "metric", "value", "state", "reasons")


def markdown(sections: Sequence[Section]) -> str:
    """Return a text whose tables GitHub and its like show; ids are code, so nothing in them is markup or a mention."""
    return "\n".join(line for section in sections for line in _markdown(section)) + "\n"


def csv_rows(sections: Sequence[Section]) -> str:
    """Return one row for each figure, with every digit; the query is empty for averages."""
    return csv_table(
        _COLUMNS,
        (
            (
                section.head.source,
                section.head.operation,
                query,
                metric,
                "" if value.number is None else value.number,
                "available" if value.number is not None else value.text,
                " ".join(value.reasons),
            )
            for section in sections
            for query, metric, value in _figures(section)
        ),
    )


def _markdown(section: Section) -> Iterator[str]:
    yield f"## {section.head.title}"
    yield ""
    facts = [("response", section.head.source), *section.facts, ("release", section.head.release)]
    yield ", ".join(f"{name} {_code(fact)}" for name, fact in facts)
    yield ""
    if section.comparison is not None:
        yield from _compared(section.comparison)
    else:
        yield from _table(
            ("metric", "average", "of"),
            ((_text(one.name), _bold(one.value), _text(one.note) + _why(one.value)) for one in section.tiles),
        )
        yield from _table(
            ("query", *section.metrics, "missed"),
            (
                (_code(query.id), *(one.text for one in query.values), str(len(query.missed)))
                for query in section.by_headline
            ),
        )
    for seal in section.head.seals:
        mark = {"holds": "✓", "broken": "✗", "unchecked": "○"}[seal.state]
        yield f"- {mark} {seal.name} SHA-256 `{seal.sha256}`: {_text(seal.reason)}"
    yield ""


def _compared(compared: Comparison) -> Iterator[str]:
    yield f"**{compared.headline}.** {_text(compared.explanation)}"
    yield ""
    yield from _table(
        ("metric", "baseline", "candidate", "queries"),
        ((name, one.text, other.text, str(count)) for name, one, other, count in compared.tiles),
    )
    yield from _table(
        ("test", "p", "statistic", "differing queries", "role"),
        (
            (
                test.name,
                test.p_text,
                test.statistic or _text(test.p.why),
                test.informative,
                "decides" if test.decides else "",
            )
            for test in compared.tests
        ),
    )
    yield from _table(
        ("query", "baseline", "candidate", "difference", "unjudged"),
        (
            (
                _code(pair.id),
                *(_or_undefined(one) for one in (pair.baseline, pair.candidate)),
                "undefined" if pair.difference is None else figure(pair.difference, signed=True),
                f"{pair.baseline_unjudged}, {pair.candidate_unjudged}",
            )
            for pair in compared.pairs
        ),
    )


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield f"|---{'|--:' * (len(heading) - 1)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _figures(section: Section) -> Iterator[tuple[str, str, Value]]:
    compared = section.comparison
    if compared is None:
        yield from (("", tile.name, tile.value) for tile in section.tiles)
        for query in section.queries:
            yield from ((query.id, name, one) for name, one in zip(section.metrics, query.values, strict=True))
        return
    for name, baseline, candidate, _ in compared.tiles:
        yield "", f"baseline {name}", baseline
        yield "", f"candidate {name}", candidate
    for test in compared.tests:
        yield "", f"p of {test.name}", test.p
    for pair in compared.pairs:
        yield from _pair_figures(pair)


def _pair_figures(pair: Pair) -> Iterator[tuple[str, str, Value]]:
    for name in ("baseline", "candidate", "difference"):
        yield pair.id, name, Value(getattr(pair, name))


def _text(text: str) -> str:
    """Return a text that Markdown shows as it stands; what is not plain is written by its number."""
    return "".join(one if one in _PLAIN else f"&#{ord(one)};" for one in text)


def _code(text: str) -> str:
    return f"<code>{_text(visible(text))}</code>"


def _bold(value: Value) -> str:
    return f"**{value.text}**"


def _why(value: Value) -> str:
    return f": {_text(value.why)}" if value.reasons else ""


def _or_undefined(number: float | None) -> str:
    return "undefined" if number is None else figure(number)
