"""A collection on which trec_eval 10 was run once: ties, negative grades, topics on one side alone; and its answers.

`trec_eval-10.txt` has what it printed, for `-l` 1 and 2: `LEVEL MEASURE TOPIC VALUE`. `recip_rank_K` is recip_rank with
`-M K`. Each line was printed by

    trec_eval -c -q [-l 2] -m P.3,10,200 -m recall.3,10,200 -m map_cut.3,10,200 -m ndcg_cut.3,10,200 \\
        -m success.3,10,200 QRELS RUN
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

CUTOFFS: Final = (3, 10, 200)

# What trec_eval and pytrec_eval call our figures at a cutoff.
MEASURES: Final = {
    "p": "P",
    "recall": "recall",
    "rr": "recip_rank",
    "ap": "map_cut",
    "ndcg": "ndcg_cut",
    "success": "success",
}

Grades = dict[str, dict[str, int]]
Scores = dict[str, dict[str, float]]


def collection() -> tuple[Grades, Scores]:
    """Return the judgments and the run."""
    chance = random.Random(20)
    documents = [f"D{chance.choice('abAB')}-{number}" for number in range(400)]
    qrels = {
        f"t{number}": {
            document: chance.choice([-2, 0, 0, 1, 1, 2, 3])
            for document in chance.sample(documents, chance.randint(1, 150))
        }
        for number in range(60)
    }
    # Nothing is relevant in one topic, and nothing at level 2 in another.
    qrels["t7"] = dict.fromkeys(documents[:20], 0)
    qrels["t8"] = dict.fromkeys(documents[:20], 1)
    run = {
        f"t{number}": {
            document: chance.choice([round(chance.random(), 1), chance.gauss(0, 1e6), 20 + chance.randint(0, 9) / 1e6])
            for document in chance.sample(documents, chance.randint(1, 260))
        }
        for number in range(3, 63)
    }
    return qrels, run


def qrels_lines(qrels: Grades) -> str:
    """Return the judgments as trec_eval reads them."""
    return "".join(f"{topic} 0 {name} {grade}\n" for topic, of in qrels.items() for name, grade in of.items())


def run_lines(run: Scores) -> str:
    """Return the run as trec_eval reads it."""
    return "".join(f"{topic} Q0 {name} 1 {score!r} t\n" for topic, of in run.items() for name, score in of.items())


def printed() -> dict[tuple[int, str, str], str]:
    """Return what trec_eval 10 printed, by level, measure and topic; the topic of means is `all`."""
    lines = Path(__file__).with_name("trec_eval-10.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return {(int(level), measure, topic): value for level, measure, topic, value in rows}
