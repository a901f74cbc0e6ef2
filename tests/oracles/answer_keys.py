"""Answer keys: bodies, and the code or the figures and digests that each must get.

The `source` of a row says where it comes from: `owner/repository#number` is an issue or a pull request on GitHub, and
"the contract" is `contract.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.oracles.large_bodies import LARGE_BODIES

_HERE = Path(__file__).parent

CONTRACT: dict[str, Any] = json.loads((_HERE / "contract.json").read_text("utf-8"))


def _rows(name: str) -> list[dict[str, Any]]:
    with (_HERE / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# A body of bodies.jsonl is kept as one character per byte, because many are no UTF-8.
BODIES = [
    {**row, "body": row.get("body", "").encode("latin-1") or LARGE_BODIES[row["id"]]} for row in _rows("bodies.jsonl")
]
METRICS = [{**row, "body": row.get("body", "").encode() or LARGE_BODIES[row["id"]]} for row in _rows("metrics.jsonl")]
