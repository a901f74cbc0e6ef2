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


def judge(rules: Rules, grades_by_id: Iterable[Mapping[str, float]]) -> list[Judged]:
    """Return the judgments of each query, ready to hold rankings against.

    Args:
        rules: By which conventions.
        grades_by_id: The grade of each judged document, query by query.
    """
    threshold, is_exponential = rules["relevantAtLeast"], rules["gain"] == "exponential"
    discounts = metrics.DISCOUNTS[: rules["k"]]
    judged: list[Judged] = []
    for grade_by_id in grades_by_id:
        # Grade 0 is never relevant and adds to no sum.
        grades = sorted(filter(None, grade_by_id.values()))
        gains = sorted(metrics.exponential_gains(grades)) if is_exponential else grades
        relevant_count = len(grades) - bisect_left(grades, threshold)
        judged.append((grade_by_id, relevant_count, metrics.dcg(reversed(gains), discounts)))
    return judged


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
        rank = hits = 0
        dcg = reciprocal_rank = precisions = 0.0
        for grade in grades:
            # A counter of our own, since `enumerate` takes a twentieth of the whole pass.
            rank += 1  # noqa: SIM113
            # Neither an unjudged document nor grade 0 adds to any sum.
            if grade:
                dcg += grade / discounts[rank]
                if grade >= threshold:
                    if not hits:
                        reciprocal_rank = 1 / rank
                    hits += 1
                    precisions += hits / rank
        if is_exponential:
            dcg = metrics.dcg(metrics.exponential_gains(grades))
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
    return dict(zip(METRICS, map(number, means), strict=True))


def missed(rules: Rules, retrieved: Sequence[str], grade_by_id: Mapping[str, float]) -> list[str]:
    """Return the relevant documents that do not stand within k, in judgment order.

    Args:
        rules: By which conventions.
        retrieved: Distinct ids, best first.
        grade_by_id: The grade of each judged document.
    """
    found = set(retrieved[: rules["k"]])
    threshold = rules["relevantAtLeast"]
    return [one for one, grade in grade_by_id.items() if grade >= threshold and one not in found]


# Rows of evidence are most of an answer, so they are not built as objects: each is three pieces of JSON, of which only
# the id is new.

# The first of each three pieces, with room for the other two.
_ROW_PIECES: Final = [
    piece for rank in metrics.RANKS for piece in (f'{"[" if rank == 1 else ","}{{"rank":{rank},"id":"', "", "")
]
_NO_ROWS: Final = orjson.Fragment(b"[]")


def rows(rules: Rules, rankings: Sequence[Sequence[str]], scored: Sequence[Scored]) -> list[orjson.Fragment]:
    """Return the rows of each ranking as on the wire: rank, id, grade, relevant, judged.

    Args:
        rules: By which conventions.
        rankings: The ids of every ranking, best first.
        scored: What each ranking scores.
    """
    # Where nothing is escaped, an id stands in JSON as it is.
    if b"\\" in orjson.dumps(rankings):
        rankings = [[orjson.dumps(one)[1:-1].decode() for one in ranking] for ranking in rankings]
    end_of = _RowEnds(rules["relevantAtLeast"]).__getitem__
    written = []
    for ranking, scores in zip(rankings, scored, strict=True):
        grades = scores[-1]
        count = len(grades)
        pieces = _ROW_PIECES[: 3 * count]
        pieces[1::3] = ranking[:count]
        pieces[2::3] = map(end_of, grades)
        pieces.append("]")
        written.append(orjson.Fragment("".join(pieces)) if count else _NO_ROWS)
    return written


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
