"""Answers to parts of a collection into the macro averages of the whole, over its queries and not over the parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson

from ranking_evaluate.core import canonical, metrics
from ranking_evaluate.core.visible import visible
from ranking_evaluate.interchange import omitted
from ranking_evaluate.interchange.omitted import Omitted
from ranking_evaluate.operations.figures import METRICS
from ranking_evaluate.operations.ranking_evaluate import OPERATION

# What all answers must agree on, else their figures are not of one kind: name and place in the response.
_SHARED: Final = {
    "release": ("version",),
    "profile": ("result", "profile"),
    "cutoff k": ("result", "k"),
    "conventions": ("result", "conventions"),
}


class MergeError(Exception):
    """The answers cannot be joined; the text says in which line and why."""


class Merged(NamedTuple):
    """The averages as JSON, and what whoever reads them should know."""

    document: bytes
    remarks: Sequence[str]


class _Relevance:
    """Which grades the responses take for relevant: one threshold must separate them over all lines."""

    def __init__(self) -> None:
        self._relevant: tuple[float, int] | None = None
        self._irrelevant: tuple[float, int] | None = None

    def add(self, line: int, queries: Iterable[dict[str, Any]]) -> None:
        """Look at the rankings of one line."""
        for row in (row for query in queries for row in query.get("ranking") or ()):
            grade = row.get("grade")
            if grade is None:
                continue
            if row.get("relevant"):
                self._relevant = min(self._relevant or (grade, line), (grade, line))
            else:
                self._irrelevant = max(self._irrelevant or (grade, line), (grade, line), key=lambda found: found[0])
        if self._relevant and self._irrelevant and self._irrelevant[0] >= self._relevant[0]:
            (lowest, one), (highest, other) = self._relevant, self._irrelevant
            raise MergeError(
                f"line {line}: grade {lowest:g} is relevant in line {one}, and grade {highest:g} is not in line "
                f"{other}: the lines have different values of relevantAtLeast"
            )


def merge(lines: Iterable[bytes]) -> Merged:
    """Return the averages over the queries of all responses, one response per line, and by which rules they are made.

    The sums run over the queries from left to right, as they would in one large answer. Blank lines are skipped; a line
    {"omitted": [...]}, which `convert --allow-omitted` writes, tells which queries are in no response, and what it
    tells stands in the document.

    Raises:
        MergeError: A line is no response of ranking-evaluate, two responses were made by different rules, or a query
            occurs twice.
    """
    line_by_query: dict[str, int] = {}
    figures: dict[str, list[float | None]] = {name: [] for name in METRICS}
    first: tuple[int, dict[str, object]] | None = None
    relevance = _Relevance()
    left_out: list[Omitted] = []
    unjudged = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        missing = omitted.read(line)
        if missing is not None:
            left_out += missing
            continue
        response = _response(number, line)
        shared = {name: _at(response, path) for name, path in _SHARED.items()}
        first = first or (number, shared)
        _refuse_other_rules(number, shared, *first)
        relevance.add(number, response["result"]["queries"])
        for query in response["result"]["queries"]:
            if query["id"] in line_by_query:
                raise MergeError(
                    f"line {number}: query {visible(query['id'])} is scored a second time; it was in line "
                    f"{line_by_query[query['id']]} before"
                )
            line_by_query[query["id"]] = number
            unjudged += bool(query.get("unjudgedAtKCount"))
            for name in METRICS:
                figures[name].append(query[name])
    if first is None:
        raise MergeError("there is no response to merge")
    rules = first[1]
    means = {name: metrics.mean(values) for name, values in figures.items()}
    document = {
        "release": rules["release"],
        "profile": rules["profile"],
        "k": rules["cutoff k"],
        "queryCount": len(line_by_query),
        "macro": {name: canonical.number(mean) for name, (mean, _) in means.items()},
        "definedQueryCounts": {name: count for name, (_, count) in means.items()},
        "omitted": left_out,
        "conventions": rules["conventions"],
    }
    return Merged(canonical.dump(document), [*_remarks(len(line_by_query), unjudged, left_out)])


def _remarks(count: int, unjudged: int, left_out: Sequence[Omitted]) -> Iterator[str]:
    if left_out:
        yield f"{len(left_out):,} of {count + len(left_out):,} queries fit no input and are in no average: see omitted."
    if unjudged:
        yield (
            f"{unjudged:,} of {count:,} queries have unjudged documents within k, which count as not relevant there; a "
            'line without any may have been scored with "unjudged": "error" as well.'
        )


def _response(number: int, line: bytes) -> dict[str, Any]:
    """Return a line as a response of ranking-evaluate whose queries hold an id and every figure."""
    try:
        response = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise MergeError(f"line {number}: this is not JSON") from None
    if not isinstance(response, dict):
        raise MergeError(f"line {number}: this is not a response")
    if "operation" not in response and "code" in response:
        raise MergeError(
            f"line {number}: this input was refused ({visible(str(response['code']))}); its queries would be missing"
        )
    if response.get("operation") != OPERATION.id:
        raise MergeError(f"line {number}: this is not a response of {OPERATION.id}")
    result = response.get("result")
    queries = result.get("queries") if isinstance(result, dict) else None
    if not isinstance(queries, list) or not all(map(_has_figures, queries)):
        raise MergeError(f"line {number}: this response has no list of queries with their figures")
    if _at(response, ("result", "queryCount")) != len(queries):
        raise MergeError(f"line {number}: this response states another number of queries than it lists")
    return response


def _has_figures(query: object) -> bool:
    return (
        isinstance(query, dict)
        and isinstance(query.get("id"), str)
        and all(name in query and _is_figure(query[name]) for name in METRICS)
    )


def _is_figure(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _at(response: dict[str, Any], path: tuple[str, ...]) -> object:
    value: object = response
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _refuse_other_rules(
    number: int, shared: dict[str, object], first_number: int, first_shared: dict[str, object]
) -> None:
    for name, value in shared.items():
        if value is None:
            raise MergeError(f"line {number}: this response does not state its {name}")
        if value != first_shared[name]:
            raise MergeError(f"line {number}: the {name} differs from that of line {first_number}")
