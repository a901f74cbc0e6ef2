"""Whole collections: files on the disk in, a table out, each tool as a process of its own."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CUTOFFS = (5, 10, 100, 1000)
SIZES = ((1000, 1000), (6980, 1000))
QUICK = ((60, 100),)

OURS = "ranking-evaluate measure"
TREC_EVAL = "trec_eval"
IR_MEASURES = "ir_measures"
PYTREC_EVAL = "pytrec_eval, its own reader"

_COMMAND = "from ranking_evaluate.cli import app; app()"
_PYTREC_EVAL = """
import sys, pytrec_eval
with open(sys.argv[1]) as file: qrels = pytrec_eval.parse_qrel(file)
with open(sys.argv[2]) as file: run = pytrec_eval.parse_run(file)
measures = {f"{name}.{sys.argv[3]}" for name in ("P", "recall", "map_cut", "ndcg_cut")} | {"recip_rank"}
found = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
names = next(iter(found.values()))
for name in names: print(name, pytrec_eval.compute_aggregated_measure(name, [each[name] for each in found.values()]))
"""


class Took(NamedTuple):
    """What one process took: time, and the most memory of it and its children together."""

    seconds: float
    bytes: int


def made(folder: Path, topics: int, documents: int) -> tuple[Path, Path]:
    """Return the judgments and the run of a collection like MS MARCO: about one relevant passage for each topic."""
    chance = random.Random(topics)
    qrels, run = folder / f"{topics}.qrels", folder / f"{topics}.run"
    with qrels.open("w", encoding="utf-8") as judgments, run.open("w", encoding="utf-8") as ranked:
        for number in range(topics):
            topic = 300_000 + 37 * number
            found = [str(chance.randrange(8_841_823)) for _ in range(documents)]
            found = list(dict.fromkeys(found))
            relevant = chance.choice(found) if chance.random() < 0.6 else str(9_000_000 + number)
            judgments.write(f"{topic} 0 {relevant} 1\n")
            scores = sorted((chance.gauss(20, 4) for _ in found), reverse=True)
            ranked.writelines(
                f"{topic} Q0 {name} {rank} {score:.6f} bm25\n"
                for rank, (name, score) in enumerate(zip(found, scores, strict=True), 1)
            )
    return qrels, run


def candidates(qrels: Path, run: Path) -> dict[str, Sequence[str]]:
    """Return the command of each tool, by its name; trec_eval's where one is on the PATH."""
    ks = ",".join(map(str, CUTOFFS))
    files = [str(qrels), str(run)]
    found: dict[str, Sequence[str]] = {
        OURS: [
            *(sys.executable, "-c", _COMMAND, "measure", "--qrels", *files),
            *(one for k in CUTOFFS for one in ("-k", str(k))),
        ],
        IR_MEASURES: [
            *(sys.executable, "-m", "ir_measures", *files),
            " ".join(f"P@{k} R@{k} RR@{k} AP@{k} nDCG@{k}" for k in CUTOFFS),
        ],
        PYTREC_EVAL: [sys.executable, "-c", _PYTREC_EVAL, *files, ks],
    }
    program = shutil.which(TREC_EVAL)
    if program is not None:
        measures = [f"{name}.{ks}" for name in ("P", "recall", "map_cut", "ndcg_cut")]
        found[TREC_EVAL] = [program, "-c", *(one for name in [*measures, "recip_rank"] for one in ("-m", name)), *files]
    return found


def in_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Took]]:
    """Return what each command took in each round."""
    taken: dict[str, list[Took]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(_took(command))
    return taken


def _took(command: Sequence[str]) -> Took:
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most = [0]
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, most, ended.is_set))
    watcher.start()
    _, complaint = process.communicate()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"{command[0]}: {complaint.decode(errors='replace')}")
    return Took(seconds, most[0])


def _watch(pid: int, most: list[int], has_ended: Callable[[], bool]) -> None:
    """Remember the most memory that a process and its children were seen to hold together."""
    page = os.sysconf("SC_PAGE_SIZE")
    while not has_ended():
        held, waiting = 0, [pid]
        while waiting:
            one = waiting.pop()
            try:
                held += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * page
                for task in Path(f"/proc/{one}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())
            except OSError:
                # It has ended in between.
                continue
        most[0] = max(most[0], held)
        time.sleep(0.01)
