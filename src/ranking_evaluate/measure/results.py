"""The figures of one run: means, over how many topics, and every topic's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

from ranking_evaluate.measure.figures import NAMES, Counts, Figures, defined, means

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ranking_evaluate.measure.collection import Measured
    from ranking_evaluate.measure.qrels import Qrels
    from ranking_evaluate.measure.rules import Rules


class Row(TypedDict):
    """One figure of one topic."""

    topic: str
    k: int
    figure: str
    value: float | None


class Result:
    """The figures of one run.

    Args:
        name: What the run is called.
        qrels: The judgments.
        rules: By which it was measured.
        measured: The figures of every topic, and where every topic went.

    Attributes:
        means: For each cutoff the mean of each figure over the topics that define it; None where none does.
        counts: For each cutoff over how many topics each mean is taken.
        queries: For each judged topic, in the order of the judgments, its figures at each cutoff.
    """

    def __init__(self, name: str, qrels: Qrels, rules: Rules, measured: Measured) -> None:
        self.name: Final = name
        self.qrels: Final = qrels
        self.rules: Final = rules
        self.measured: Final = measured
        self.topics: Final[Sequence[bytes]] = [*qrels.grades]
        order: Sequence[int] = range(len(self.topics))
        if rules.like is not None:
            # trec_eval adds up topics in the order of their ids, and the order changes the last bits.
            order = sorted(order, key=self.topics.__getitem__)
        found = means(measured.columns, rules, order)
        self.means: Final[Mapping[int, Figures]] = {k: mean for k, (mean, _) in found.items()}
        self.counts: Final[Mapping[int, Counts]] = {k: count for k, (_, count) in found.items()}
        self.queries: Final[Mapping[str, Mapping[int, Figures]]] = _Queries(self)

    def column(self, k: int, name: str) -> list[float | None]:
        """Return a figure of every topic, in the order of the judgments."""
        column = self.measured.columns[self.rules.cutoffs.index(k) * len(NAMES) + NAMES.index(name)]
        return defined(column, name, self.rules, range(len(self.topics)))

    def rows(self) -> list[Row]:
        """Return each figure of each topic as a plain dict, ready for a data frame."""
        return [
            Row(topic=topic, k=k, figure=name, value=value)
            for topic, by_cutoff in self.queries.items()
            for k, figures in by_cutoff.items()
            for name, value in zip(NAMES, figures, strict=True)
        ]

    def __repr__(self) -> str:
        return f"<Result of {self.name}: {len(self.topics)} topics, {self.means}>"


class _Queries(Mapping[str, Mapping[int, Figures]]):
    """The figures of each topic, made when they are asked for: held as objects they would take ten times the memory."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._position: dict[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self._result.topics)

    def __iter__(self) -> Iterator[str]:
        return (topic.decode() for topic in self._result.topics)

    def __getitem__(self, topic: str) -> Mapping[int, Figures]:
        if self._position is None:
            self._position = {one: position for position, one in enumerate(self._result.topics)}
        position = self._position[topic.encode()] if isinstance(topic, str) else None
        if position is None:
            raise KeyError(topic)
        rules, columns = self._result.rules, self._result.measured.columns
        values = [defined(column, NAMES[at % len(NAMES)], rules, (position,))[0] for at, column in enumerate(columns)]
        return {k: Figures(*values[at * len(NAMES) :][: len(NAMES)]) for at, k in enumerate(rules.cutoffs)}
