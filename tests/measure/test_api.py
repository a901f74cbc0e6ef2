"""`measure()` in Python: dicts or paths in, named figures out, and one clear error for what cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ranking_evaluate import measure
from ranking_evaluate.measure.figures import Counts, Figures
from tests.measure.files import written

QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"a": 0}, "q3": {"x": 1}}
RUN: dict[str, dict[str, float]] = {"q1": {"c": 3.0, "z": 2.0, "a": 1.0}, "q2": {"a": 1}, "elsewhere": {"a": 1}}


def test_figures_are_named_and_means_are_over_the_topics_that_define_them() -> None:
    result = measure(QRELS, RUN, k=[1, 2])

    # q1 ranks c (grade 2), then z, which nobody judged; q2 has nothing relevant; q3 is not ranked.
    assert result.queries["q1"][2] == Figures(0.5, 0.5, 1.0, 0.5, 2 / (2 + 1 / 1.584962500721156), 1.0, 0.5)
    assert result.queries["q2"][2] == Figures(0.0, None, None, None, None, 0.0, 1.0)
    assert result.queries["q3"][1] == Figures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None)
    assert result.means[1].p == 1 / 3
    assert result.means[1].recall == 0.25
    assert result.counts[1] == Counts(3, 2, 2, 2, 2, 3, 2)
    assert list(result.queries) == ["q1", "q2", "q3"]
    with pytest.raises(KeyError):
        result.queries["elsewhere"]


def test_like_trec_eval_what_is_undefined_counts_0() -> None:
    result = measure(QRELS, RUN, k=1, like="trec_eval")

    assert result.queries["q2"][1] == Figures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert (result.means[1].recall, result.counts[1].recall) == (0.5 / 3, 3)


def test_rows_are_plain_dicts_of_every_figure() -> None:
    rows = measure(QRELS, RUN, k=[1, 2]).rows()

    assert len(rows) == 3 * 2 * 7
    assert rows[0] == {"topic": "q1", "k": 1, "figure": "p", "value": 1.0}
    assert {row["figure"] for row in rows} == set(Figures._fields)


def test_paths_and_dicts_give_the_same_figures(tmp_path: Path) -> None:
    qrels = written(tmp_path, "qrels", "".join(f"{t} 0 {d} {g}\n" for t, of in QRELS.items() for d, g in of.items()))
    run = written(tmp_path, "run", "".join(f"{t} Q0 {d} 1 {s} x\n" for t, of in RUN.items() for d, s in of.items()))

    assert measure(qrels, RUN, k=2).rows() == measure(QRELS, Path(run), k=2).rows() == measure(QRELS, RUN, k=2).rows()


def test_gain_threshold_and_filters_are_taken() -> None:
    assert measure(QRELS, RUN, k=3, relevant_at_least=2).queries["q1"][3].p == 1 / 3
    assert measure(QRELS, RUN, k=3, gain="exponential").queries["q1"][3].ndcg == (3 + 1 / 2) / (
        3 + 1 / 1.584962500721156
    )
    assert measure(QRELS, RUN, k=2, condensed=True).queries["q1"][2].p == 1
    assert measure({"a": {"b": 1}}, {"a": {"a": 2, "b": 1}}, k=1, ignore_identical_ids=True).means[1].p == 1


@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        ((QRELS, RUN), {"k": 0}, "every cutoff k is a whole number of at least 1"),
        ((QRELS, RUN), {"k": []}, "every cutoff k is a whole number of at least 1"),
        ((QRELS, RUN), {"k": True}, "every cutoff k is a whole number of at least 1"),
        ((QRELS, RUN), {"k": "10"}, "every cutoff k is a whole number of at least 1"),
        ((QRELS, RUN), {"k": [1.5]}, "every cutoff k is a whole number of at least 1"),
        ((QRELS, RUN), {"relevant_at_least": 0}, "relevant_at_least is a number above 0"),
        ((QRELS, RUN), {"relevant_at_least": float("nan")}, "relevant_at_least is a number above 0"),
        ((QRELS, RUN), {"gain": "log"}, "gain is linear or exponential"),
        ((QRELS, RUN), {"like": "trec_eval8"}, "like is trec_eval or trec_eval9"),
        ((QRELS, RUN), {"like": "trec_eval", "gain": "exponential"}, "trec_eval knows linear gain alone"),
        ((QRELS, RUN), {"like": "trec_eval", "relevant_at_least": 1.5}, "trec_eval takes whole grades alone"),
        (({}, RUN), {}, "qrels: there is no topic in it"),
        ((QRELS, {}), {}, "run: there is no ranked document in it"),
        ((QRELS, {"x": {"a": 1}}), {}, "run: no topic is in both files"),
        ((QRELS, {"q1": {"a": float("nan")}}), {}, "run, query q1, document a: the score nan is not a number"),
        (({"q1": {"a": float("inf")}}, RUN), {}, "qrels, query q1, document a: the grade inf is not a number"),
        (({"q1": {"a": 1001}}, RUN), {"gain": "exponential"}, "too high for exponential gain"),
        (({"q1": {"": 1}}, RUN), {}, "an id of a topic or document is empty"),
        (("/nowhere/qrels", RUN), {}, "/nowhere/qrels: No such file or directory"),
    ],
)
def test_what_cannot_be_measured_is_a_value_error_that_says_why(
    arguments: tuple[Any, Any], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        measure(*arguments, **options)


def test_an_id_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="ids of topics and documents are str, and this is int: 7"):
        measure({7: {"a": 1}}, RUN)  # type: ignore[dict-item]


def test_the_package_imports_neither_the_operations_nor_a_data_library() -> None:
    # Every command imports the package first, and a first table should not wait for what it does not need.
    loaded = "import sys, ranking_evaluate; ranking_evaluate.measure; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)

    assert not {"pydantic", "orjson", "numpy", "scipy", "typer"} & set(done.stdout.split())


def test_a_cutoff_beyond_every_ranking_takes_neither_time_nor_memory() -> None:
    found = measure(QRELS, RUN, [3, 10**18])
    assert found.means[10**18].rr == found.means[3].rr
