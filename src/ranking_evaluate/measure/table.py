"""The figures of runs, and how they compare, as tables of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ranking_evaluate.measure.account import LABELS, denominators
from ranking_evaluate.measure.figures import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ranking_evaluate.measure.compare import Comparison
    from ranking_evaluate.measure.results import Result

UNDEFINED: Final = "-"

# Of more runs than these a row tells each figure's difference, and no row a figure's tests.
_DETAILED: Final = 2

ALPHA: Final = 0.05


def figure(value: float | None) -> str:
    """Return a figure as people read it, to the four decimals that trec_eval prints."""
    return UNDEFINED if value is None else f"{value:.4f}"


def means(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of a table with a row for each run and cutoff, and below it over how many topics each mean is.

    With several runs the best figure at each cutoff is marked; that as many documents as possible are judged is no
    merit of a run.
    """
    head = ("run", "k", *LABELS.values(), "topics")
    best = {
        (k, name): max(
            (value for result in results if (value := getattr(result.means[k], name)) is not None), default=None
        )
        for k in results[0].means
        for name in NAMES
    }
    rows = [
        (
            result.name,
            str(k),
            *(
                figure(value) + (_mark(value, best[k, name], name) if len(results) > 1 else "")
                for name, value in zip(NAMES, found, strict=True)
            ),
            f"{len(result.topics):,}",
        )
        for result in results
        for k, found in result.means.items()
    ]
    yield from aligned(head, rows, left=1)
    told: dict[str, list[str]] = {}
    for result in results:
        for text in denominators(result):
            told.setdefault(text, []).append(result.name)
    for text, names in told.items():
        yield text if len(names) == len(results) else f"{', '.join(names)}: {text}"


def _mark(value: float | None, best: float | None, name: str) -> str:
    return "*" if value is not None and value == best and name != "judged" else " "


def comparisons(found: Sequence[Comparison], baseline: str) -> Iterator[str]:
    """Yield the lines of a table of how runs compare with a baseline: each figure, or of many runs each one."""
    runs = list(dict.fromkeys(one.run for one in found))
    yield f"Against {baseline}, by topic:"
    equal = [run for run in runs if not any(one.differences for one in found if one.run == run)]
    shown = [one for one in found if one.run not in equal]
    if shown:
        yield from _each(shown) if len(runs) <= _DETAILED else _one_row(shown)
        count = sum(one.deciding is not None for one in found)
        yield f"Holm: corrected for all {count} tests here. A large p does not show that there is no difference."
        methods = dict.fromkeys(
            f"{name}: {one.tests[name].method}"
            for one in shown
            for name in ("randomization", "wilcoxon")
            if one.differences and (one.deciding == name or one.tests[name].p is None)
        )
        yield from methods
        errors = [error for one in shown for test in one.tests.values() if (error := test.standard_error) is not None]
        if errors:
            yield f"The standard error of a p-value that is drawn is {max(errors):.4f} at most."
    for run in equal:
        yield f"{run} and {baseline} are equal: every figure is the same in every topic."


def _each(found: Sequence[Comparison]) -> Iterator[str]:
    head = ("run", "k", "figure", "difference", "wins", "ties", "losses", "p", "Holm", "test")
    rows = []
    for one in found:
        test = one.tests[one.deciding] if one.deciding else None
        rows.append(
            (
                one.run,
                str(one.k),
                LABELS[one.figure],
                difference(one),
                *map(str, (one.wins, one.ties, one.losses)),
                p_value(test.p if test else None),
                p_value(test.holm if test else None),
                one.deciding or "",
            )
        )
    yield from aligned(head, rows, left=1)


def _one_row(found: Sequence[Comparison]) -> Iterator[str]:
    names = list(dict.fromkeys(one.figure for one in found))
    rows: dict[tuple[str, int], list[str]] = {}
    for one in found:
        rows.setdefault((one.run, one.k), [one.run, str(one.k)]).append(
            f"{difference(one)}{'*' if is_clear(one) else ' '}"
        )
    yield from aligned(("run", "k", *(f"{LABELS[name]} " for name in names)), [*rows.values()], left=1)
    yield f"* p of Holm's correction is at most {ALPHA}."


def difference(one: Comparison) -> str:
    """Return the mean difference as people read it."""
    if one.mean_difference is None:
        return UNDEFINED
    return "same" if one.is_same else f"{one.mean_difference:+.4f}"


def is_clear(one: Comparison) -> bool:
    """Return whether chance alone would hardly give such a difference, however many are looked at."""
    holm = one.tests[one.deciding].holm if one.deciding else None
    return holm is not None and holm <= ALPHA


def p_value(number: float | None) -> str:
    """Return a p-value as people read it, never rounded to 0."""
    return UNDEFINED if number is None else f"{number:.4f}" if number >= 0.001 else f"{number:.2g}"


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield the lines of a table, of whose columns so many are set to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
