"""What `measure()` does once it is called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ranking_evaluate.measure.collection import measure_file, measure_given
from ranking_evaluate.measure.figures import Scorer
from ranking_evaluate.measure.qrels import given_qrels, read_qrels
from ranking_evaluate.measure.results import Result
from ranking_evaluate.measure.rules import Rules
from ranking_evaluate.measure.sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Given: TypeAlias = str | os.PathLike[str] | Mapping[str, Mapping[str, float]]


def measured(
    qrels: Given,
    run: Given,
    cutoffs: tuple[int, ...],
    *,
    advance: Callable[[int], object] | None = None,
    **conventions: Any,  # noqa: ANN401
) -> Result:
    """Return the figures of a run, read by this process alone: a program may have threads, which must not be forked.

    Args:
        qrels: As in `measure()`.
        run: As in `measure()`.
        cutoffs: The cutoffs, in any order.
        advance: Called with the number of bytes each time that some of a file were read.
        conventions: The further arguments of `measure()`.
    """
    rules = Rules(cutoffs=tuple(sorted(set(cutoffs))), **conventions)
    if isinstance(qrels, Mapping):
        judgments = given_qrels(qrels, rules)
    else:
        judgments = read_qrels(Source(os.fspath(qrels), advance), rules)
    scorer = Scorer(judgments, rules)
    if isinstance(run, Mapping):
        return Result("run", judgments, rules, measure_given(run, scorer))
    source = Source(os.fspath(run), advance)
    return Result(source.name, judgments, rules, measure_file(source, scorer))
