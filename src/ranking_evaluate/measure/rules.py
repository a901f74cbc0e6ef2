"""By which rules a collection is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from ranking_evaluate.core.metrics import GainFunction

Like: TypeAlias = Literal["trec_eval", "trec_eval9"]
LIKE: Final[tuple[Like, ...]] = get_args(Like)

# Above it 2^grade - 1 comes near the end of binary64, and sums of it beyond.
HIGHEST_EXPONENTIAL: Final = 1000
# Up to it every whole grade is exact.
HIGHEST_GRADE: Final = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The conventions of a measurement.

    Args:
        cutoffs: Ranks 1 to each of these count, for figures of their own; rising and distinct.
        relevant_at_least: The lowest grade that is relevant; above 0.
        gain: What a grade is worth to NDCG.
        like: Whose figures to equal in every digit; None for our own rules.
        condensed: Whether unjudged documents leave the ranking before its cutoff.
        ignore_identical_ids: Whether documents that have their topic's id leave it.

    Raises:
        ValueError: One of them cannot be; the text says which and why.
    """

    cutoffs: tuple[int, ...] = (10,)
    relevant_at_least: float = 1
    gain: GainFunction = "linear"
    like: Like | None = None
    condensed: bool = False
    ignore_identical_ids: bool = False

    def __post_init__(self) -> None:
        if not self.cutoffs or any(isinstance(k, bool) or not isinstance(k, Integral) or k < 1 for k in self.cutoffs):
            raise ValueError("every cutoff k is a whole number of at least 1")
        if not 0 < self.relevant_at_least < math.inf:
            raise ValueError("relevant_at_least is a number above 0: with 0 every judged document would be relevant")
        if self.gain not in {"linear", "exponential"}:
            raise ValueError("gain is linear or exponential")
        if self.like is None:
            return
        if self.like not in LIKE:
            raise ValueError(f"like is {' or '.join(LIKE)}")
        if self.gain != "linear":
            raise ValueError("trec_eval knows linear gain alone")
        if self.relevant_at_least != int(self.relevant_at_least):
            raise ValueError("trec_eval takes whole grades alone for relevant_at_least (its option -l)")

    @property
    def depth(self) -> int:
        """Down to which rank a ranking matters."""
        return self.cutoffs[-1]

    @property
    def conventions(self) -> tuple[str, ...]:
        """The rules in words, a line each."""
        single = self.like == "trec_eval9"
        ranking = "Documents are ranked by score, then by id, both descending; scores are compared as " + (
            "binary32, as trec_eval 9 and pytrec_eval do." if single else "binary64, as trec_eval 10 does."
        )
        relevant = (
            f"Relevant is a grade of {self.relevant_at_least:g} or more. Precision divides by k also where fewer "
            "documents were retrieved; recall and AP divide by all relevant judgments; RR and AP look at the first k "
            "ranks."
        )
        ndcg = (
            f"DCG has {self.gain} gain and the divisor log2(rank + 1); the ideal is all judgments by falling grade, "
            "cut at k. A grade below 0 has no gain."
        )
        other = (
            "Success is 1 when any of the first k documents is relevant. Judged is the share of the first k documents "
            "that have a judgment, undefined where nothing was retrieved."
        )
        if self.like is None:
            undefined = (
                "A topic that the run does not rank counts with an empty ranking. Recall, RR and AP are undefined "
                "without a relevant judgment and NDCG without a gain: such topics are left out of that mean."
            )
        else:
            version = "9 and pytrec_eval" if single else "10"
            undefined = (
                f"As in trec_eval -c, version {version}: a topic that the run does not rank counts with an empty "
                "ranking, an undefined figure counts 0, a fractional grade is cut to an integer, a negative one means "
                "unjudged."
            )
        lines = [ranking, relevant, ndcg, other, undefined]
        if self.condensed:
            lines.append("Condensed: unjudged documents leave each ranking before its cutoff.")
        if self.ignore_identical_ids:
            lines.append("Documents that have the id of their topic leave its ranking.")
        return tuple(lines)
