"""Whole collections on this machine: qrels and runs of any size in, the core's figures out, free."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ranking_evaluate.core.metrics import GainFunction
    from ranking_evaluate.measure.results import Result
    from ranking_evaluate.measure.rules import Like


def measure(
    qrels: str | os.PathLike[str] | Mapping[str, Mapping[str, float]],
    run: str | os.PathLike[str] | Mapping[str, Mapping[str, float]],
    k: int | Sequence[int] = 10,
    *,
    relevant_at_least: float = 1,
    gain: GainFunction = "linear",
    like: Like | None = None,
    condensed: bool = False,
    ignore_identical_ids: bool = False,
) -> Result:
    """Return the figures of a run: `means`, `counts` and `queries` at each cutoff, and `rows()` for a data frame.

    A topic whose figure is undefined (no relevant judgment, say) is left out of that mean, which `counts` shows; with
    `like` it counts 0, as in trec_eval.

    Args:
        qrels: The judgments: the path of a file, or {topic: {document: grade}}.
        run: The ranked documents: the path of a file, or {topic: {document: score}}.
        k: The cutoffs: ranks 1 to k count.
        relevant_at_least: The lowest grade that is relevant (trec_eval's -l).
        gain: What a grade is worth to NDCG: itself, or 2^grade - 1.
        like: Whose figures to equal in every digit: "trec_eval" (10, with -c) or "trec_eval9" (and pytrec_eval).
        condensed: Drop unjudged documents before the cutoff.
        ignore_identical_ids: Drop documents that have the id of their topic.

    Raises:
        FileError: A file or mapping cannot be used; the text names the places. It is a ValueError.
        ValueError: A cutoff or a rule cannot be.
        TypeError: An id is no text.
    """
    # What reads and scores is imported when it is used, for the package itself is imported by every command.
    from ranking_evaluate.measure.api import measured

    cutoffs = (k,) if isinstance(k, int) else tuple(k)
    return measured(
        qrels,
        run,
        cutoffs,
        relevant_at_least=relevant_at_least,
        gain=gain,
        like=like,
        condensed=condensed,
        ignore_identical_ids=ignore_identical_ids,
    )
