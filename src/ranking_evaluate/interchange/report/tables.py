"""The report as Markdown for a pull request, and as CSV for a spreadsheet."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ranking_evaluate.core.visible import visible
from ranking_evaluate.interchange.csv_table import csv_table
from ranking_evaluate.interchange.report.model import Comparison, Overview, Pair, Section, Table, Value, figure

_PLAIN: Final = frozenset(string.ascii_letters + string.digits + " .,:;/-=+()'")
_COLUMNS: Final = ("response", "operation", "query", "metric", "value", "state", "reasons")


def markdown(sections: Sequence[Section]) -> str:
    """Return a text whose tables GitHub and its like show; ids are code, so nothing in them is markup or a mention."""
    return "\n".join(line for section in sections for line in _markdown(section)) + "\n"


def csv_rows(sections: Sequence[Section], *, raw_ids: bool = False) -> str:
    """Return one row for each figure, with every digit; the query is empty for averages.

    Args:
        sections: What is reported.
        raw_ids: Whether ids are written as they are, for joins with other tables and for no spreadsheet.
    """
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
        raw=raw_ids,
    )


def _markdown(section: Section) -> Iterator[str]:
    yield f"## {section.head.title}"
    yield ""
    facts = [("response", section.head.source), *section.facts, ("release", section.head.release)]
    yield ", ".join(f"{name} {_code(fact)}" for name, fact in facts)
    yield ""
    if section.overview is not None:
        yield from _overview(section.overview)
    elif section.comparison is not None:
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


def _overview(overview: Overview) -> Iterator[str]:
    yield from _texts(overview.means)
    yield from (f"- {_text(visible(note))}" for note in overview.notes)
    yield ""
    for against in overview.comparisons:
        yield f"### {_text(visible(against.title))}"
        yield ""
        yield from _texts(against.table)
        yield from (f"- {_text(note)}" for note in against.notes)
        yield ""
    for standing in overview.standings:
        if standing.topics:
            yield f"### {_text(visible(standing.title))}"
            yield ""
            yield from _table(("topic", "figure"), ((_code(topic.id), topic.text) for topic in standing.topics))
    for spread in overview.spreads:
        yield f"### {_text(visible(spread.title))}: how many topics have which figure"
        yield ""
        heading = [name for name, _, _ in spread.bars] + ["undefined"] * bool(spread.undefined)
        counts = [f"{number:,}" for _, number, _ in spread.bars] + [f"{spread.undefined:,}"] * bool(spread.undefined)
        yield from _table(("figure", *heading), [("topics", *counts)])
    for name, sha256 in overview.files:
        yield f"- {_code(name)} SHA-256 `{_text(sha256)}`"
    yield ""


def _texts(table: Table) -> Iterator[str]:
    yield from _table(table.head, ((_code(first), *rest) for first, *rest in table.rows))


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
    if section.overview is not None:
        yield from section.overview.figures()
        return
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
