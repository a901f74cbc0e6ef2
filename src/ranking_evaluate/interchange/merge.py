"""Answers to parts of a collection into the macro averages of the whole, over its queries and not over the parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from ranking_evaluate.core import canonical, metrics
from ranking_evaluate.core.visible import visible
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


def merge(lines: Iterable[bytes]) -> bytes:
    """Return `{"queryCount", "macro", "definedQueryCounts"}` over the queries of all responses, one response per line.

    The sums run over the queries from left to right, as they would in one large answer. Blank lines are skipped.

    Raises:
        MergeError: A line is no response of ranking-evaluate, two responses were made by different rules, or a query
            occurs twice.
    """
    line_by_query: dict[str, int] = {}
    figures: dict[str, list[float | None]] = {name: [] for name in METRICS}
    first: tuple[int, dict[str, object]] | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        response = _response(number, line)
        shared = {name: _at(response, path) for name, path in _SHARED.items()}
        first = first or (number, shared)
        _refuse_other_rules(number, shared, *first)
        for query in response["result"]["queries"]:
            if query["id"] in line_by_query:
                raise MergeError(
                    f"line {number}: query {visible(query['id'])} is scored a second time; it was in line "
                    f"{line_by_query[query['id']]} before"
                )
            line_by_query[query["id"]] = number
            for name in METRICS:
                figures[name].append(query[name])
    if first is None:
        raise MergeError("there is no response to merge")
    means = {name: metrics.mean(values) for name, values in figures.items()}
    return canonical.dump(
        {
            "queryCount": len(line_by_query),
            "macro": {name: None if mean is None else canonical.number(mean) for name, (mean, _) in means.items()},
            "definedQueryCounts": {name: count for name, (_, count) in means.items()},
        }
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
