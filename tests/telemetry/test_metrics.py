"""Every series that an alarm looks at is there before its first event: a rule sees no first of a kind otherwise."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from ranking_evaluate.attempts.watched import WatchedStore
from ranking_evaluate.payments.protocol import Settlement, Verification
from ranking_evaluate.reconcile import VERDICTS
from ranking_evaluate.telemetry import begin_series
from ranking_evaluate.telemetry.metrics import REGISTRY


def begun(name: str, label: str, **chosen: str) -> set[str]:
    """Return the values of a label among the samples of a counter that have these other labels."""
    return {
        sample.labels[label]
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name and chosen.items() <= sample.labels.items()
    }


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("ranking_evaluate_verifications_total", {kind.__name__ for kind in get_args(Verification)}),
        ("ranking_evaluate_settlements_total", {kind.__name__ for kind in get_args(Settlement)}),
        ("ranking_evaluate_reconcile_rounds_total", {*VERDICTS.values(), "failed"}),
    ],
)
def test_every_outcome_of_a_protocol_has_a_series_from_the_start(name: str, outcomes: set[str]) -> None:
    begin_series(["a protocol of this test"], ["an-operation"])
    assert begun(name, "outcome", protocol="a protocol of this test") == outcomes


def test_every_call_of_the_store_has_a_series_from_the_start() -> None:
    begin_series([], [])
    timed = set(re.findall(r'store_call\("(\w+)"\)', inspect.getsource(WatchedStore)))
    assert begun("ranking_evaluate_store_failures_total", "call") == timed
    assert {"read", "reserve", "move", "refund"} <= timed


def test_the_operator_s_page_has_every_metric_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    ours = {metric.name for metric in REGISTRY.collect() if metric.name.startswith("ranking_evaluate_")}
    named = {name.removesuffix("_total") for name in re.findall(r"`(ranking_evaluate_\w+)`", page)}
    assert named == ours
