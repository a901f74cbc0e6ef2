"""What every report shows, whatever the operation and the form: values, rankings, queries, comparisons, sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ranking_evaluate.interchange.report.read import Seal

# The reasons in words; the codes are shown beside them.
REASONS: Final = {
    "PARTIAL_SCAN": "the scan was partial",
    "PERMISSION_VIOLATION": "access was violated",
    "MISSING_REFERENCE_SET": "there are no labels",
    "CORPUS_CHANGED": "the corpus is another",
    "REFERENCE_VERSION_MISMATCH": "the labels are of another version",
    "PROTOCOL_MISMATCH": "the protocol is another",
    "UNLABELED_RETURNED_UNIT": "something returned has no label",
    "INCOMPLETE_POPULATION": "not all that is relevant is known",
    "NO_RELEVANT_POPULATION": "nothing is relevant",
    "TIES_CUT": "a tie was cut",
    "NO_DEFINED_PAIRS": "no query has figures on both sides",
    "NO_INFORMATIVE_PAIRS": "both sides score the same in every query",
    "TOO_MANY_INFORMATIVE_PAIRS": "there are too many differing queries to look at every sign pattern",
}

LEVELS: Final = 4


def figure(number: float, *, signed: bool = False) -> str:
    """Return a number as people read it, to four decimals."""
    if abs(number) >= 1e6:
        return f"{number:.4g}"
    text = f"{number:+.4f}" if signed else f"{number:.4f}"
    return text if text.strip("+-0.") else "0.0000"


def p_value(number: float) -> str:
    """Return a p-value as people read it, never rounded to 0."""
    return f"{number:.4f}" if number >= 0.001 else f"{number:.2g}"


class Value(NamedTuple):
    """One figure, or why there is none."""

    number: float | None
    reasons: Sequence[str] = ()
    bounds: str = ""

    @property
    def text(self) -> str:
        """The figure, or a word for its absence."""
        if self.number is None:
            return "unavailable" if self.reasons else "undefined"
        return figure(self.number)

    @property
    def why(self) -> str:
        """The reasons in words, with their codes."""
        return "; ".join(f"{REASONS.get(code, code)} ({code})" for code in self.reasons)


@dataclass(frozen=True, slots=True)
class Tile:
    """One aggregate figure and what it is an average of."""

    name: str
    value: Value
    note: str
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One document of a ranking; the level is that of its colour, None where nothing is known of it."""

    rank: int
    id: str
    grade: float | None
    level: int | None
    relevant: bool
    duplicate: bool = False

    @property
    def mark(self) -> str:
        """What stands in the cell."""
        return "=" if self.duplicate else "?" if self.grade is None else f"{self.grade:.4g}"

    @property
    def kind(self) -> str:
        """The colour of the cell, as the style calls it."""
        return "duplicate" if self.duplicate else "unjudged" if self.level is None else f"g{self.level}"

    @property
    def verdict(self) -> str:
        """What is known of the document, in words."""
        if self.duplicate:
            return "repeated"
        if self.grade is None:
            return "unjudged"
        return "relevant" if self.relevant else "not relevant"


@dataclass(frozen=True, slots=True)
class Query:
    """One query: its figures in the order of the section's metrics, its ranking, and what the ranking missed."""

    anchor: str
    id: str
    values: Sequence[Value]
    cells: Sequence[Cell]
    missed: Sequence[str]
    fact: str

    @property
    def summary(self) -> str:
        """The ranking in one sentence, for those who cannot see it."""
        shown = ", ".join(
            cell.verdict if cell.kind in {"duplicate", "unjudged"} else cell.mark for cell in self.cells[:20]
        )
        more = f" and {len(self.cells) - 20} more" if len(self.cells) > 20 else ""
        return f"Grades by rank: {shown}{more}. {len(self.missed)} relevant missed."


@dataclass(frozen=True, slots=True)
class Pair:
    """One query of a comparison."""

    id: str
    baseline: float | None
    candidate: float | None
    difference: float | None
    baseline_unjudged: int
    candidate_unjudged: int

    @property
    def outcome(self) -> str:
        """Who wins this query."""
        if self.difference is None:
            return "undefined"
        return "tie" if not self.difference else "win" if self.difference > 0 else "loss"


@dataclass(frozen=True, slots=True)
class Test:
    """One test of the differences."""

    name: str
    p: Value
    statistic: str
    informative: str
    decides: bool

    @property
    def p_text(self) -> str:
        """The p-value as people read it, or a word for its absence."""
        return self.p.text if self.p.number is None else p_value(self.p.number)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison of two rankings adds."""

    verdict: str
    headline: str
    explanation: str
    tiles: Sequence[tuple[str, Value, Value, int]]
    pairs: Sequence[Pair]
    tests: Sequence[Test]


class Table(NamedTuple):
    """A table of texts; its first column names the rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Against(NamedTuple):
    """How a run compares with the baseline: a row for each figure, and how the tests were made."""

    title: str
    table: Table
    notes: Sequence[str]


class Spread(NamedTuple):
    """How many topics have which figure.

    Args:
        title: Which figure.
        bars: Up to which figure, how many topics, and their share of the most.
        undefined: How many topics do not define it.
    """

    title: str
    bars: Sequence[tuple[str, int, float]]
    undefined: int


class Topic(NamedTuple):
    """One topic of a standing: its figure, and that in words."""

    id: str
    value: float | None
    text: str


class Standing(NamedTuple):
    """The first topics of some order."""

    title: str
    topics: Sequence[Topic]


@dataclass(frozen=True, slots=True)
class Overview:
    """What is shown of a whole collection, in place of each of its queries.

    Args:
        means: A row for each run and cutoff.
        notes: Sentences about them.
        comparisons: How each run compares with the baseline.
        spreads: How many topics have which figure.
        standings: The worst and the best topics.
        files: The name and SHA-256 of each file that was read.
        figures: Called for every figure: the topic, empty for means, what it is called, and its value.
    """

    means: Table
    notes: Sequence[str]
    comparisons: Sequence[Against]
    spreads: Sequence[Spread]
    standings: Sequence[Standing]
    files: Sequence[tuple[str, str]]
    figures: Callable[[], Iterable[tuple[str, str, Value]]]


@dataclass(frozen=True, slots=True)
class Head:
    """What every response has, whatever its operation; the anchor is its own on the page."""

    anchor: str
    title: str
    operation: str
    source: str
    release: str
    seals: Sequence[Seal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One response: facts about it, and the figures of its metrics, of which each query holds one value."""

    head: Head
    facts: Sequence[tuple[str, str]]
    metrics: Sequence[str]
    tiles: Sequence[Tile] = ()
    queries: Sequence[Query] = ()
    legend: Sequence[tuple[str, str]] = ()
    conventions: Sequence[str] = ()
    comparison: Comparison | None = None
    overview: Overview | None = None

    @property
    def headline(self) -> int:
        """The position of the metric by which queries are shown: the first that any query has."""
        known = (
            position
            for position in range(len(self.metrics))
            if any(query.values[position].number is not None for query in self.queries)
        )
        return next(known, 0)

    @property
    def by_headline(self) -> Sequence[Query]:
        """The queries by their headline figure, the best first; those without one are last."""
        headline = self.headline

        def place(query: Query) -> tuple[bool, float]:
            number = query.values[headline].number
            return number is None, -(number or 0.0)

        return sorted(self.queries, key=place)

    def absences(self, query: Query) -> Sequence[tuple[str, str]]:
        """Return which metrics of a query are unavailable, and why, together where the reasons are the same."""
        return self._grouped((name, value.why) for name, value in zip(self.metrics, query.values, strict=True))

    def bounds(self, query: Query) -> Sequence[tuple[str, str]]:
        """Return which metrics of a query depend on the order of ties, and how."""
        return self._grouped((name, value.bounds) for name, value in zip(self.metrics, query.values, strict=True))

    @staticmethod
    def _grouped(remarks: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        names: dict[str, list[str]] = {}
        for name, remark in remarks:
            if remark:
                names.setdefault(remark, []).append(name)
        return [(", ".join(together), remark) for remark, together in names.items()]
