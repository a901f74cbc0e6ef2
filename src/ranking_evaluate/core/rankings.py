"""One supplied ranking held against its judgments, and the macro averages over queries, as on the wire."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

import orjson

from ranking_evaluate.core import metrics
from ranking_evaluate.core.canonical import Number, number
from ranking_evaluate.core.errors import ErrorCode, OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# The averaged metrics: their names on the wire, in order, are those of the first members of `Scored`.
METRICS: Final = ("precisionAtK", "recallAtK", "reciprocalRankAtK", "averagePrecisionAtK", "ndcgAtK")

# The judgments of one query ready to hold rankings against: the grades by id, how many are relevant, and the ideal DCG.
Judged: TypeAlias = "tuple[Mapping[str, float], int, float]"

# What one ranking scores: precision, recall, reciprocal rank, average precision, NDCG, DCG, how many relevant documents
# stand within k, and the grade at each rank within k. Plain tuples, because naming
# their members would take a tenth of a small job's time.
Scored: TypeAlias = (
    "tuple[float, float | None, float | None, float | None, float | None, float, int, list[float | None]]"
)


class Rules(TypedDict):
    """By which conventions rankings are scored, as on the wire."""

    k: int
    relevantAtLeast: float
    gain: Literal["linear", "exponential"]
    unjudged: Literal["error", "nonrelevant"]


def judge(rules: Rules, grade_by_id: Mapping[str, float]) -> Judged:
    """Return the judgments of one query, ready to hold rankings against."""
    k, grades = rules["k"], sorted(grade_by_id.values())
    relevant_count = len(grades) - bisect_left(grades, rules["relevantAtLeast"])
    if rules["gain"] == "exponential":
        return grade_by_id, relevant_count, metrics.ideal_dcg(metrics.exponential_gains(grades), k)
    return grade_by_id, relevant_count, metrics.dcg(grades[::-1], k)


def score(
    rules: Rules, rankings: Iterable[tuple[Sequence[str], Judged]], pointer: Callable[[int], str]
) -> list[Scored]:
    """Return what each ranking scores, in one pass over each; the metrics are those of `core.metrics`.

    What stands below rank k is not looked at: no figure depends on it, so it may be unjudged.

    Args:
        rules: By which conventions.
        rankings: Distinct ids, best first, and what they are held against.
        pointer: Returns the JSON pointer to a ranking, for the refusal.

    Raises:
        OperationError: UNJUDGED_DOCUMENT within k, unless those count as non-relevant.
    """
    k, threshold = rules["k"], rules["relevantAtLeast"]
    is_strict, is_exponential = rules["unjudged"] == "error", rules["gain"] == "exponential"
    discounts = metrics.DISCOUNT_AT
    scored: list[Scored] = []
    for retrieved, (grade_by_id, relevant_count, ideal_dcg) in rankings:
        grades = [*map(grade_by_id.get, retrieved if len(retrieved) <= k else retrieved[:k])]
        if is_strict and None in grades:
            raise _unjudged(f"{pointer(len(scored))}/{grades.index(None)}")
        hits = 0
        dcg = reciprocal_rank = precisions = 0.0
        for rank, grade in enumerate(grades, 1):
            # Neither an unjudged document nor grade 0 adds to any sum.
            if grade:
                dcg += grade / discounts[rank]
                if grade >= threshold:
                    if not hits:
                        reciprocal_rank = 1 / rank
                    hits += 1
                    precisions += hits / rank
        if is_exponential:
            dcg = metrics.dcg(metrics.exponential_gains(grades), k)
        ndcg = dcg / ideal_dcg if ideal_dcg else None
        if relevant_count:
            recall, average_precision = hits / relevant_count, precisions / relevant_count
            scored.append((hits / k, recall, reciprocal_rank, average_precision, ndcg, dcg, hits, grades))
        else:
            scored.append((hits / k, None, None, None, ndcg, dcg, hits, grades))
    return scored


def _unjudged(pointer: str) -> OperationError:
    return OperationError(
        ErrorCode.UNJUDGED_DOCUMENT,
        'A document within the top k has no judgment; supply one, or send "unjudged": "nonrelevant".',
        pointer,
    )


def averages(scored: Sequence[Scored]) -> tuple[tuple[float | None, ...], tuple[int, ...]]:
    """Return the macro average of each of `METRICS`, None where it is defined for no query, and for how many it is."""
    precisions = recalls = reciprocal_ranks = average_precisions = ndcgs = 0.0
    with_relevant = with_gain = 0
    for precision, recall, reciprocal_rank, average_precision, ndcg, _, _, _ in scored:
        precisions += precision
        # These three are defined together: where anything is relevant.
        if recall is not None and reciprocal_rank is not None and average_precision is not None:
            recalls += recall
            reciprocal_ranks += reciprocal_rank
            average_precisions += average_precision
            with_relevant += 1
        if ndcg is not None:
            ndcgs += ndcg
            with_gain += 1
    count = len(scored)
    means = (
        precisions / count if count else None,
        recalls / with_relevant if with_relevant else None,
        reciprocal_ranks / with_relevant if with_relevant else None,
        average_precisions / with_relevant if with_relevant else None,
        ndcgs / with_gain if with_gain else None,
    )
    return means, (count, with_relevant, with_relevant, with_relevant, with_gain)


def by_metric(means: Iterable[float | None]) -> dict[str, Number | None]:
    """Return macro averages as the result holds them."""
    return {name: optional(mean) for name, mean in zip(METRICS, means, strict=True)}


def missed(rules: Rules, retrieved: Sequence[str], judged: Judged, hits: int) -> list[str]:
    """Return the relevant documents that do not stand within k, in judgment order.

    Args:
        rules: By which conventions.
        retrieved: Distinct ids, best first.
        judged: What they were held against.
        hits: How many relevant ones stand within k.
    """
    grade_by_id, relevant_count, _ = judged
    if hits == relevant_count:
        return []
    found = set(retrieved[: rules["k"]])
    threshold = rules["relevantAtLeast"]
    return [one for one, grade in grade_by_id.items() if grade >= threshold and one not in found]


# Rows of evidence are most of an answer, so they are not built as objects: each is three pieces of JSON, of which only
# the id is new.

_ROW_STARTS: Final = tuple(f'{"[" if rank == 1 else ","}{{"rank":{rank},"id":"' for rank in metrics.RANKS)
_NO_ROWS: Final = orjson.Fragment(b"[]")


class Rows:
    """The rows of a request's rankings as on the wire: rank, id, grade, relevant, judged.

    Args:
        rules: By which conventions.
        rankings: The ids of every ranking, best first.
    """

    def __init__(self, rules: Rules, rankings: Sequence[Sequence[str]]) -> None:
        self._ends = _RowEnds(rules["relevantAtLeast"])
        # Where nothing is escaped, an id stands in JSON as it is.
        self._escaped = b"\\" in orjson.dumps(rankings)

    def of(self, retrieved: Sequence[str], grades: Sequence[float | None]) -> orjson.Fragment:
        """Return the rows of a ranking within k, given the grades there."""
        if not grades:
            return _NO_ROWS
        count = len(grades)
        ids = retrieved[:count]
        if self._escaped:
            ids = [orjson.dumps(one)[1:-1].decode() for one in ids]
        pieces = [""] * (3 * count)
        pieces[0::3] = _ROW_STARTS[:count]
        pieces[1::3] = ids
        pieces[2::3] = map(self._ends.__getitem__, grades)
        return orjson.Fragment("".join(pieces) + "]")


class _RowEnds(dict[float | None, str]):
    """What a row says after its id, by grade: whether that is relevant, and whether there is one at all."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self[None] = '","grade":null,"relevant":false,"judged":false}'

    def __missing__(self, grade: float) -> str:
        spelled = str(grade) if type(grade) is int else orjson.dumps(number(grade)).decode()
        relevant = "true" if grade >= self._threshold else "false"
        end = self[grade] = f'","grade":{spelled},"relevant":{relevant},"judged":true}}'
        return end


def optional(value: float | None) -> Number | None:
    """Return a figure as the result holds it."""
    return None if value is None else number(value)


def conventions(gain: str) -> tuple[str, ...]:
    """Return how the figures are defined, a line each."""
    return (
        (
            "Precision denominator is k even when fewer results are supplied. Recall and truncated AP denominators use "
            "all supplied relevant judgments; reciprocal rank is truncated at k."
        ),
        (
            f"DCG uses {gain} gain and log2(rank + 1) discount. Ideal DCG uses all supplied judgments sorted by grade, "
            "truncated at k."
        ),
        (
            "No-relevant-judgment recall, reciprocal rank and AP are null; zero-ideal-gain NDCG is null. Macro "
            "averages exclude nulls and report denominators."
        ),
        (
            "Evaluation uses supplied judgments only. It does not retrieve documents, judge semantic relevance, or "
            "establish complete relevance coverage."
        ),
    )
