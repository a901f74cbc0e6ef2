"""`scripts/bench`: everything side by side in one run, as a table and a picture in bench/results.

scripts/bench                 all of it, some minutes
scripts/bench --quick         few rounds, small stores
scripts/bench metrics free    only these: metrics, collections, free, hostile, growth, lookups, evaluations, paid,
                              service
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench import collections, evaluations, free_path, growth, metrics, paid, picture, service, store
from bench.jobs import LARGE, TYPICAL
from bench.paid_servers import OURS, STOCK, Running, servers
from bench.timing import Timed, percentile, side_by_side

RESULTS = Path(__file__).parent / "results"


class Report:
    """What the run has found so far."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.lines: list[str] = []
        self.groups: list[picture.Group] = []

    def heading(self, title: str, note: str) -> None:
        """Begin a section."""
        self.lines += ["", f"## {title}", "", note, ""]

    def table(self, *rows: tuple[str, ...]) -> None:
        """Add a table; the first row is its head."""
        head, *body = rows
        self.lines += [f"| {' | '.join(head)} |", "|" + " - |" * len(head)]
        self.lines += [f"| {' | '.join(row)} |" for row in body]

    def compared(self, timed: Mapping[str, Timed], reference: str) -> None:
        """Add a table of times, and of ratios to one of them."""
        self.table(
            ("", "median", "quartiles", "ratio"),
            *(
                (
                    name,
                    microseconds(one.median),
                    " to ".join(map(microseconds, one.spread)),
                    f"{one.ratio(timed[reference]):.2f}",
                )
                for name, one in timed.items()
            ),
        )

    def bars(self, title: str, timed: Mapping[str, Timed], reference: str, ours: str, goal: float) -> None:
        """Add a group to the picture."""
        bars = [picture.Bar(name, one.ratio(timed[reference]), name == ours) for name, one in timed.items()]
        self.groups.append(picture.Group(title, bars, goal))

    @property
    def timing(self) -> dict[str, float]:
        """How long each comparison may take."""
        return {"rounds": 5, "budget": 1.0} if self.quick else {"rounds": 41, "budget": 12.0}


def microseconds(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    return f"{seconds * 1e6:,.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms"


def _metrics(report: Report) -> None:
    report.heading("Metrics alone", "Ids and judgments in memory, figures out. Goal: 1.0 and 0.5 of pytrec_eval.")
    for job, goal in ((TYPICAL, 1.0), (LARGE, 0.5)):
        timed = side_by_side(metrics.candidates(job), **report.timing)  # type: ignore[arg-type]
        report.lines += [f"### {job.name} (queries x retrieved x judgments)", ""]
        report.compared(timed, metrics.PEER)
        report.lines.append("")
        report.bars(f"Metrics alone, {job.name}, over pytrec_eval", timed, metrics.PEER, metrics.OURS, goal)


def _collections(report: Report) -> None:
    report.heading(
        "Whole collections",
        f"Files in, a table at k {', '.join(map(str, collections.CUTOFFS))} out; whole processes, and the memory of "
        "all their children together. Goal: 1.0 of trec_eval's time at the first size and 0.8 at the second, 0.2 of "
        "ir_measures', 300 MB.",
    )
    with tempfile.TemporaryDirectory() as folder:
        for topics, documents in collections.QUICK if report.quick else collections.SIZES:
            commands = collections.candidates(*collections.made(Path(folder), topics, documents))
            taken = collections.in_turns(commands, rounds=2 if report.quick or topics > 1000 else 5)
            report.lines += [f"### {topics:,} topics x {documents:,} documents", ""]
            ours = [one.seconds for one in taken[collections.OURS]]
            report.table(
                ("", "median", "most memory", "ranking-evaluate over it"),
                *(
                    (
                        name,
                        f"{statistics.median(one.seconds for one in each):.2f} s",
                        f"{max(one.bytes for one in each) / 1e6:,.0f} MB",
                        f"{statistics.median(a / b.seconds for a, b in zip(ours, each, strict=True)):.2f}",
                    )
                    for name, each in taken.items()
                ),
            )
            if collections.TREC_EVAL not in taken:
                report.lines += ["", "No trec_eval is on the PATH."]
            report.lines.append("")


def _free(report: Report) -> None:
    report.heading(
        "The whole free path",
        "Bytes in, response bytes out, with every check and digest. Goal: 60 us over the floor, and 5 times it.",
    )
    for job in (TYPICAL, LARGE):
        timed = side_by_side(free_path.candidates(job), **report.timing)  # type: ignore[arg-type]
        over = timed[free_path.WHOLE].median - timed[free_path.FLOOR].median
        report.lines += [f"### {job.name}: {microseconds(over)} over the floor", ""]
        report.compared(timed, free_path.FLOOR)
        report.lines.append("")


def _hostile(report: Report) -> None:
    report.heading("Refusals", "Each beside the answer to a valid body of the same size. Goal: below 1.")
    rows = []
    for name, (refused, valid) in free_path.hostile().items():
        timed = side_by_side({"refused": refused, "valid": valid}, rounds=5 if report.quick else 15, budget=1.0)
        ratio = timed["refused"].ratio(timed["valid"])
        rows.append((name, microseconds(timed["refused"].median), microseconds(timed["valid"].median), f"{ratio:.2f}"))
    report.table(("body", "refused in", "a valid one", "ratio"), *rows)


def _growth(report: Report) -> None:
    report.heading(
        "Growth with the queries",
        "All else equal; p is that of time ~ n^p from the middle to the largest. n log n: 1.2.",
    )
    rows = []
    for operation_id in growth.INPUTS:
        timed = growth.by_queries(operation_id, rounds=5 if report.quick else 21, budget=1.0 if report.quick else 5.0)
        times = ", ".join(f"{size}: {microseconds(one.median)}" for size, one in timed.items())
        rows.append((operation_id, times, f"{growth.exponent(timed):.2f}"))
    report.table(("operation", "time by number of queries", "p"), *rows)


def _lookups(report: Report) -> None:
    report.heading("Look-ups in the store", "A new key and a new payment, in one SQLite file. Goal: flat.")
    found = store.lookups((10, 10_000) if report.quick else store.ATTEMPTS, looks=100 if report.quick else 1_000)
    rows = [
        (f"{count:,}", microseconds(statistics.median(seconds)), microseconds(percentile(seconds, 0.99)))
        for count, seconds in found.items()
    ]
    report.table(("attempts stored", "median", "p99"), *rows)


def _evaluations(report: Report) -> None:
    report.heading(
        "Evaluating beside the event loop",
        "A large lexical-retrieval body again and again; how late a tick each millisecond is meanwhile.",
    )
    seconds = 2.0 if report.quick else 10.0
    report.table(
        ("evaluated", "late, median", "p99", "at most", "bodies a second"),
        *(
            (name, *map(microseconds, (one.p50, one.p99, one.most)), f"{one.rate:.1f}")
            for name, one in evaluations.felt(seconds).items()
        ),
    )
    report.lines.append("")
    found = evaluations.rates(seconds)
    report.table(
        ("worker processes", "bodies a second", "over one"),
        *((str(count), f"{rate:.1f}", f"{rate / found[1]:.2f}") for count, rate in found.items()),
    )


def _paid(report: Report) -> None:
    report.heading(
        "Paid calls",
        "x402 against an instant facilitator; two durable commits and a lazy one against a middleware that keeps "
        "nothing. One caller: goal 1.1 at the median and 1.2 at p99. 50 callers: goal 2 paid, 3 unpaid.",
    )
    for place in (None, "/dev/shm") if Path("/dev/shm").is_dir() else (None,):  # noqa: S108 - A disk that costs nothing.
        where = "a disk in memory" if place else "the disk of the temporary files"
        with servers(place) as running:
            report.lines += [f"### The database on {where}", ""]
            report.table(*_paid_rows(report, running, place, where))
            report.lines.append("")


def _paid_rows(report: Report, running: Running, place: str | None, where: str) -> Iterator[tuple[str, ...]]:
    calls = 40 if report.quick else 400
    yield "", OURS, STOCK, "ratio"
    seconds = paid.latencies(running.ports, calls)
    asked = statistics.median(asyncio.run(paid.facilitator_calls(running.facilitator, calls)))
    committing = store.commits(calls, place)
    for name, of in (("median", statistics.median), ("p99", partial(percentile, share=0.99))):
        ours, theirs = of(seconds[OURS]), of(seconds[STOCK])
        yield f"paid, one caller, {name}", microseconds(ours), microseconds(theirs), f"{ours / theirs:.2f}"
        yield f"- less {microseconds(asked)} for its facilitator calls", microseconds(ours - asked), "", ""
        _bar(report, f"A paid call, one caller, {name}, the database on {where}", ours / theirs, 1.0)
    for name, taken in committing.items():
        yield f"- of it {name}, median", microseconds(statistics.median(taken)), "", ""
    for kind, goal in ((paid.PAID, 2.0), (paid.UNPAID, 3.0)):
        found = paid.throughput(
            running.ports, calls if kind == paid.PAID else 10 * calls, kind, rounds=2 if report.quick else 5
        )
        (mine, p99), (other, other_p99) = found[OURS], found[STOCK]
        rates = [f"{1 / one.median:,.0f}/s" for one in (mine, other)]
        faster = other.ratio(mine)
        yield f"{kind}, {paid.CLIENTS} callers, rate", *rates, f"{faster:.2f}"
        yield (
            f"{kind}, {paid.CLIENTS} callers, p99",
            microseconds(p99),
            microseconds(other_p99),
            f"{p99 / other_p99:.2f}",
        )
        _bar(report, f"Time per call, {paid.CLIENTS} callers, {kind}, the database on {where}", 1 / faster, 1 / goal)


def _bar(report: Report, title: str, ratio: float, goal: float) -> None:
    bars = [picture.Bar(OURS, ratio, True), picture.Bar(STOCK, 1.0, False)]
    report.groups.append(picture.Group(title, bars, goal))


def _service(report: Report) -> None:
    report.heading("The service", "From the command to the first answer. Goal: 1.5 s.")
    starts = [service.start() for _ in range(1 if report.quick else 5)]
    report.table(
        ("start, median", "fastest", "resident memory, idle"),
        (
            f"{statistics.median(seconds for seconds, _ in starts):.2f} s",
            f"{min(seconds for seconds, _ in starts):.2f} s",
            f"{statistics.median(size for _, size in starts) / 2**20:.0f} MiB",
        ),
    )


SECTIONS: dict[str, Callable[[Report], None]] = {
    "metrics": _metrics,
    "collections": _collections,
    "free": _free,
    "hostile": _hostile,
    "growth": _growth,
    "lookups": _lookups,
    "evaluations": _evaluations,
    "paid": _paid,
    "service": _service,
}


def main() -> None:
    """Run the chosen sections and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="few rounds, small stores")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table and the picture go")
    chosen = parser.parse_args()
    report = Report(quick=chosen.quick)
    load = os.getloadavg()[0]
    for name in chosen.sections or SECTIONS:
        print(f"{name} ...", flush=True)
        SECTIONS[name](report)
    chosen.out.mkdir(parents=True, exist_ok=True)
    head = (
        f"# Side by side, {datetime.now(UTC):%Y-%m-%d}\n\n"
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the start and "
        f"{os.getloadavg()[0]:.1f} at the end: times suffer from it, ratios less. Ratios are medians over rounds in "
        "which the candidates took turns. How and what: docs/performance.md.\n"
    )
    (chosen.out / "results.md").write_text(head + "\n".join(report.lines) + "\n", encoding="utf-8")
    if report.groups:
        (chosen.out / "results.svg").write_text(picture.draw("Time, less is better", report.groups), encoding="utf-8")
    print(f"{chosen.out / 'results.md'}")


if __name__ == "__main__":
    main()
