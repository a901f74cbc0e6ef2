"""The bodies that cost most to evaluate: of a given size, or as large as the limits allow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, product
from string import ascii_letters, digits
from typing import Any, Final, NamedTuple

from ranking_evaluate.core.intake import CANONICAL_BYTES

_INSTANT: Final = "2026-01-01T00:00:00Z"
_LETTERS: Final = ascii_letters + digits
_NAMES: Final = tuple(map("".join, chain(product(_LETTERS), product(_LETTERS, repeat=2))))


class Expensive(NamedTuple):
    """A body, and what makes it expensive."""

    why: str
    body: bytes


def _dumped(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _ranking_evaluate(queries: int, depth: int) -> dict[str, Any]:
    made = [{"id": _NAMES[query], "retrieved": _NAMES[:depth], "judgments": []} for query in range(queries)]
    return {"queries": made, "k": 100, "unjudged": "nonrelevant", "gain": "exponential"}


def _ranking_compare(queries: int, depth: int) -> dict[str, Any]:
    documents = _NAMES[:depth]
    judgments = [{"id": document, "grade": 1} for document in documents[::2]]
    made = [
        {
            "id": _NAMES[query],
            "baseline": documents,
            # No two queries differ alike, so Wilcoxon's test has as many ranks as it can.
            "candidate": documents[query % depth :] + documents[: query % depth],
            "judgments": judgments,
        }
        for query in range(queries)
    ]
    return {"queries": made, "k": 100, "unjudged": "nonrelevant"}


def _retrieval_measure(queries: int, depth: int) -> dict[str, Any]:
    same = {
        "corpus": {"id": "c", "sha256": "3f" * 32},
        "cutoff": _INSTANT,
        "retrievalUnit": "d",
        "k": 100,
        "referenceVersion": "v",
    }
    evidence = {"labels": [], "populationComplete": True, "scan": "complete", "access": "permitted"}
    # Everything ties with everything.
    ranked = {"returned": _NAMES[:depth], "scores": [1] * depth, "tiePolicy": "t"}
    observations = [{"queryId": _NAMES[query], **same, **ranked, **evidence} for query in range(queries)]
    return {"protocol": {"method": "supplied", **same}, "observations": observations}


def _lexical_retrieval(queries: int, documents: int) -> dict[str, Any]:
    names = _NAMES[:documents]
    published = {"text": "a", "publishedAt": _INSTANT, "access": "granted"}
    # Each word of each query adds to the score of each document.
    text = " ".join(["a"] * 200)
    return {
        "workflow": {
            "kind": "retrieval",
            "method": "lexical",
            "topK": 100,
            "cutoff": _INSTANT,
            "documentIds": names,
            "referenceVersion": "v",
        },
        "corpus": {"id": "c", "sha256": None, "documents": [{"id": name, **published} for name in names]},
        "queries": [{"id": _NAMES[query], "text": text} for query in range(queries)],
        "reference": {"version": "v", "populationComplete": True, "labels": []},
    }


def _first_usable_rank(queries: int, usable: int) -> dict[str, Any]:
    return {"queries": [{"hits": _NAMES[-10:], "usable": _NAMES[:usable]} for _ in range(queries)]}


class _Shape(NamedTuple):
    """How a body grows: by its queries, and by what stands in each (`depth`), each up to its limit."""

    make: Callable[[int, int], dict[str, Any]]
    most_queries: int
    most_depth: int


_SHAPES: Final = {
    "ranking-evaluate": _Shape(_ranking_evaluate, 50, 100),
    "ranking-compare": _Shape(_ranking_compare, 50, 100),
    "retrieval-measure": _Shape(_retrieval_measure, 50, 100),
    "lexical-retrieval": _Shape(_lexical_retrieval, 50, 500),
    "first-usable-rank": _Shape(_first_usable_rank, 10, len(_NAMES)),
}


@cache
def evaluated(operation_id: str, size: int = CANONICAL_BYTES) -> tuple[Expensive, ...]:
    """Return inputs of at most so many bytes, each as deep as its number of queries allows."""
    shape = _SHAPES[operation_id]
    found = []
    for queries in (1, 2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 40, 50):
        if queries <= shape.most_queries:
            depth = _deepest(shape, queries, size)
            if depth:
                found.append(Expensive(f"{queries} x {depth}", _dumped(shape.make(queries, depth))))
    return tuple(found)


def _deepest(shape: _Shape, queries: int, size: int) -> int:
    """Return the greatest depth with which a body still fits, 0 when none does."""
    fits, too_deep = 0, shape.most_depth + 1
    while too_deep - fits > 1:
        depth = (fits + too_deep) // 2
        if len(_dumped(shape.make(queries, depth))) <= size:
            fits = depth
        else:
            too_deep = depth
    return fits


def refused(size: int) -> Iterator[Expensive]:
    """Yield bodies of about so many bytes that every operation refuses, each after as much work as it can make."""
    pieces = {
        "a member twice": b'{"a":1,"a":1}',
        "a member twice, far within": b'{"a":' * 17 + b'{"b":1,"b":1}' + b"}" * 17,
        "numbers beyond binary64, far within": b"[" * 18 + b"1e999" + b"]" * 18,
        "half a surrogate pair, far within": b"[" * 18 + b'"\\ud800"' + b"]" * 18,
        "integral numbers as floats": b"1.0",
        "unknown members": b'{"x":0}',
        "values of the wrong type": b"0",
    }
    for why, piece in pieces.items():
        times = max(1, (size - 14) // (len(piece) + 1))
        yield Expensive(why, b'{"queries":[' + b",".join([piece] * times) + b"]}")
    members = b",".join(b'"%x":0' % number for number in range(size // 9))
    yield Expensive("members without end", b"{" + members + b"}")
    yield Expensive(
        "cut off", (b'{"queries":[' + b'{"id":"q","retrieved":["a","b"],"judgments":[]},' * (size // 48))[:size]
    )
    yield Expensive("escapes", b'["' + b'\\"' * (size // 2 - 2) + b'"]')


OUTPUT_LIMIT: Final = _dumped(_lexical_retrieval(50, 500))
"""An input within every limit, and the one that takes longest; it is refused for the size of its result."""

LARGE_SALE: Final = _dumped(_lexical_retrieval(20, 500))
"""An input that takes a tenth of a second, and is sold."""
