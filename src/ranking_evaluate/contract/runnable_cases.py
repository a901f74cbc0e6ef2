"""The answer key of first-usable-rank as files to edit and to run: CSV, Python and JavaScript, made from its cases."""

from __future__ import annotations

import csv
import io
import json
from typing import Final

from ranking_evaluate.operations.first_usable_rank import CASES

_COLUMNS: Final = ("Case", "Supplied input", "Expected structured output", "Decision and reason")

_PYTHON: Final = '''\
"""First usable rank, with its answer key: needs nothing but Python 3.9. Run it, and it checks itself."""

import json
from fractions import Fraction

CASES = json.loads(r"""
@CASES@
""")


def score(value):
    """Return the ranks and the exact mean of 1/rank, or {"error": code}."""
    if not isinstance(value, dict):
        return {"error": "INVALID_INPUT"}
    queries = value.get("queries")
    if not isinstance(queries, list) or not all(map(is_labelled, queries)):
        return {"error": "usable-labels"}
    if len(queries) > 10 or any(len(query["hits"]) > 10 for query in queries):
        return {"error": "score-bounds"}
    if set(value) != {"queries"} or not all(map(is_valid, queries)):
        return {"error": "INVALID_INPUT"}
    ranks = [first_usable(query["hits"], set(query["usable"])) for query in queries]
    if not ranks:
        return {"ranks": [], "numerator": 0, "denominator": 0}
    mean = sum((Fraction(1, rank) for rank in ranks if rank), Fraction()) / len(ranks)
    return {"ranks": ranks, "numerator": mean.numerator, "denominator": mean.denominator}


def is_labelled(query):
    return isinstance(query, dict) and isinstance(query.get("hits"), list) and isinstance(query.get("usable"), list)


def is_valid(query):
    ids = query["hits"] + query["usable"]
    return set(query) == {"hits", "usable"} and all(isinstance(one, str) and 1 <= len(one) <= 80 for one in ids)


def first_usable(hits, usable):
    return next((rank for rank, hit in enumerate(hits, 1) if hit in usable), None)


if __name__ == "__main__":
    for case in CASES:
        answer = score(case["input"])
        if answer != case["expected"]:
            raise SystemExit(f"{case['id']}: expected {case['expected']}, got {answer}")
    checked = {"checked": len(CASES), "caseIds": [case["id"] for case in CASES]}
    print(json.dumps(checked, separators=(",", ":")))
'''

_JAVASCRIPT: Final = """\
// First usable rank, with its answer key: needs nothing but Node 18. Run it, and it checks itself.

import { deepStrictEqual } from "node:assert";
import { realpathSync } from "node:fs";
import { argv } from "node:process";
import { pathToFileURL } from "node:url";

export const cases = @CASES@;

/** Returns the ranks and the exact mean of 1/rank, or {error: code}. */
export function score(value) {
  if (!isObject(value)) return { error: "INVALID_INPUT" };
  const queries = Object.hasOwn(value, "queries") ? value.queries : undefined;
  if (!Array.isArray(queries) || !queries.every(isLabelled)) return { error: "usable-labels" };
  if (queries.length > 10 || queries.some(({ hits }) => hits.length > 10)) return { error: "score-bounds" };
  if (Object.keys(value).length !== 1 || !queries.every(isValid)) return { error: "INVALID_INPUT" };
  const ranks = queries.map(({ hits, usable }) => {
    const wanted = new Set(usable);
    return hits.findIndex((hit) => wanted.has(hit)) + 1 || null;
  });
  if (ranks.length === 0) return { ranks, numerator: 0, denominator: 0 };
  let numerator = 0;
  let denominator = 1;
  // At most ten ranks of at most ten: every integer on the way is exact.
  for (const rank of ranks.filter((rank) => rank !== null)) {
    [numerator, denominator] = reduced(numerator * rank + denominator, denominator * rank);
  }
  [numerator, denominator] = reduced(numerator, denominator * ranks.length);
  return { ranks, numerator, denominator };
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isLabelled(query) {
  return isObject(query) && Array.isArray(query.hits) && Array.isArray(query.usable);
}

function isValid(query) {
  // Code points are counted, not UTF-16 units.
  const isId = (one) => typeof one === "string" && one.length > 0 && [...one].length <= 80;
  return Object.keys(query).length === 2 && query.hits.every(isId) && query.usable.every(isId);
}

function reduced(numerator, denominator) {
  let [divisor, rest] = [numerator, denominator];
  while (rest !== 0) [divisor, rest] = [rest, divisor % rest];
  return [numerator / divisor, denominator / divisor];
}

if (argv[1] !== undefined && import.meta.url === pathToFileURL(realpathSync(argv[1])).href) {
  for (const { id, input, expected } of cases) deepStrictEqual(score(input), expected, id);
  console.log(JSON.stringify({ checked: cases.length, caseIds: cases.map(({ id }) => id) }));
}
"""


def render() -> dict[str, bytes]:
    """Return the content of each file by its path under the reference."""
    written = [{"id": case.id, "input": case.input, "expected": case.expected} for case in CASES]
    cases = "[\n" + ",\n".join(f"  {_compact(case)}" for case in written) + "\n]"
    return {
        "cases/first-usable-rank.csv": _csv(),
        "examples/first-usable-rank.py": _PYTHON.replace("@CASES@", cases).encode(),
        "examples/first-usable-rank.mjs": _JAVASCRIPT.replace("@CASES@", cases).encode(),
    }


def _csv() -> bytes:
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(_COLUMNS)
    table.writerows((case.id, _compact(case.input), _compact(case.expected), case.reason) for case in CASES)
    return text.getvalue().encode()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
