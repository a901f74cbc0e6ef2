"""The jobs that are timed, from a fixed seed: ten-character ids, and five-character ones where those do not fit."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple


class Job(NamedTuple):
    """An input and its bytes; `name` says queries x retrieved x judgments."""

    name: str
    input: dict[str, Any]
    body: bytes


def ranking_job(queries: int, retrieved: int, judgments: int, *, id_length: int = 10, seed: int = 7) -> Job:
    """Return a ranking-evaluate input in which every ranked document is judged as far as the judgments reach."""
    random_ = random.Random(seed)
    made: list[dict[str, Any]] = []
    for number in range(queries):
        documents = [f"d{number + document * 50:0{id_length - 1}d}" for document in range(max(retrieved, judgments))]
        random_.shuffle(documents)
        judged = random_.sample(documents, judgments)
        ranked = documents[:retrieved]
        made.append(
            {
                "id": f"query-{number:04d}",
                "retrieved": ranked,
                "judgments": [{"id": document, "grade": random_.choice((0, 0, 1, 1, 2, 3))} for document in judged],
            }
        )
    job = {"queries": made, "k": min(100, retrieved), "unjudged": "nonrelevant"}
    return Job(f"{queries}x{retrieved}x{judgments}", job, json.dumps(job, separators=(",", ":")).encode())


TYPICAL = ranking_job(5, 10, 10)
LARGE = ranking_job(50, 100, 43, id_length=5)
