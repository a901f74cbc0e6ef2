"""First usable rank, with its answer key: needs nothing but Python 3.9. Run it, and it checks itself."""

import json
from fractions import Fraction

CASES = json.loads(r"""
[
  {"id":"two-ranks","input":{"queries":[{"hits":["X","D"],"usable":["D"]},{"hits":["A","B","C","E"],"usable":["E"]}]},"expected":{"ranks":[2,4],"numerator":3,"denominator":8}},
  {"id":"one-miss","input":{"queries":[{"hits":["D"],"usable":["D"]},{"hits":["X"],"usable":["E"]}]},"expected":{"ranks":[1,null],"numerator":1,"denominator":2}},
  {"id":"missing-usable-channel","input":{"queries":[{"hits":[]}]},"expected":{"error":"usable-labels"}},
  {"id":"no-queries","input":{"queries":[]},"expected":{"ranks":[],"numerator":0,"denominator":0}}
]
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
