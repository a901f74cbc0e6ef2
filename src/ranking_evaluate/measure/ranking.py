"""The order of a ranking: by score, then by id, both descending."""

from __future__ import annotations

from array import array
from itertools import islice
from operator import gt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def ranked(documents: Sequence[bytes], scores: Sequence[float], depth: int) -> Sequence[bytes]:
    """Return the best documents down to rank `depth`.

    Ids are compared as UTF-8, as trec_eval does, which is the order of their code points.

    Args:
        documents: Distinct ids.
        scores: As many; none is NaN.
        depth: How many ranks matter.
    """
    # Nearly every run stands in this order already: sorting it takes half as long again as reading it.
    if all(map(gt, scores, islice(scores, 1, None))):
        return documents[:depth]
    least = sorted(scores, reverse=True)[:depth][-1]
    best = [(score, document) for score, document in zip(scores, documents, strict=True) if score >= least]
    best.sort(reverse=True)
    return [document for _, document in best[:depth]]


def as_binary32(scores: Sequence[float]) -> Sequence[float]:
    """Return the scores in single precision: what trec_eval 9 and pytrec_eval compare."""
    return array("f", scores).tolist()
