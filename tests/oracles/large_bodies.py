"""The bodies of the answer keys that are too large to keep, each made by its recipe."""

from __future__ import annotations

import json


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _query(index: int, retrieved: list[str], judged: list[str]) -> dict[str, object]:
    return {"id": f"q{index}", "retrieved": retrieved, "judgments": [{"id": one, "grade": 1} for one in judged]}


HEXADECIMAL = [f"{number:x}" for number in range(100)]
PADDED = [f"{number:016d}" for number in range(100)]
EMPTY: dict[str, list[str]] = {"retrieved": [], "judgments": []}
ONE_QUERY = b'{"queries": [{"id": "q1", "retrieved": ["a"], "judgments": [{"id": "a", "grade": 1}]}]}'

LARGE_BODIES = {
    "J36": b"[" * 100_000,
    "J37": b"[" * 1000 + b"]" * 1000,
    "J40": b'{"a":' * 500 + b"1" + b"}" * 500,
    "J41": b"[" + b"0," * 12_000 + b"0]",
    "S33": json.dumps({"queries": [{"id": f"q{index}", **EMPTY} for index in range(51)]}).encode(),
    "S35": b"{" + b'"a":1,' * 14_000 + b'"a":1}',
    "S36": ONE_QUERY.ljust(131_072),
    "S38": _compact({"queries": [_query(q, [], [f"{q}-{j}-".ljust(80, "x") for j in range(20)]) for q in range(50)]}),
    "max-nodes": _compact({"queries": [_query(q, HEXADECIMAL, HEXADECIMAL[:57]) for q in range(50)], "k": 100}),
    "output-limit": _compact(
        {"queries": [_query(q, PADDED, []) for q in range(50)], "k": 100, "unjudged": "nonrelevant"}
    ),
}
