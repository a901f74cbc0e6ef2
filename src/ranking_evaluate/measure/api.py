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
    from typing import TypeAlias

    Given: TypeAlias = str | os.PathLike[str] | Mapping[str, Mapping[str, float]]


def measured(qrels: Given, run: Given, cutoffs: tuple[int, ...], **conventions: Any) -> Result:  # noqa: ANN401
    """Return the figures of a run, read by this process alone: a program may have threads, which must not be forked."""
    rules = Rules(cutoffs=tuple(sorted(set(cutoffs))), **conventions)
    judgments = given_qrels(qrels, rules) if isinstance(qrels, Mapping) else read_qrels(Source(os.fspath(qrels)), rules)
    scorer = Scorer(judgments, rules)
    if isinstance(run, Mapping):
        return Result("run", judgments, rules, measure_given(run, scorer))
    source = Source(os.fspath(run))
    return Result(source.name, judgments, rules, measure_file(source, scorer))
