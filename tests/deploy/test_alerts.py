"""The alarms of deploy/prometheus: each fires at a first occurrence, is about what there is, and has its page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import generate_latest

from ranking_evaluate import bootstrap, telemetry
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.telemetry.metrics import ALARM_NAMES, REGISTRY

ROOT: Final = Path(__file__).parents[2]
PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
CASES: Final = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
OF_PROMETHEUS: Final = {"up", "probe_success"}


def metrics_in(expression: str) -> set[str]:
    """Return the names of metrics in an expression."""
    return set(re.findall(r"\b(?:ranking_evaluate_\w+|up|probe_success)\b", expression))


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("promtool is needed: .ci/run installs Debian's prometheus")
        pytest.skip("there is no promtool on the PATH: install Debian's prometheus")
    done = subprocess.run([program, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_rule_fires_at_a_first_occurrence_and_is_silent_without_one() -> None:
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts.test.yml")


def test_every_rule_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    for rule in RULES:
        tried = [case["alert_rule_test"][0] for case in CASES if case["name"].startswith(f"{rule['alert']} ")]
        assert sorted(bool(one["exp_alerts"]) for one in tried) == [False, True], rule["alert"]
        assert {one["alertname"] for one in tried} == {rule["alert"]}


def test_every_rule_has_a_section_of_the_runbook_and_no_other_is_there() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    assert re.findall(r"^## (\w+)$", runbook, re.MULTILINE) == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        section = runbook.partition(f"## {rule['alert']}\n")[2].partition("\n## ")[0]
        assert {"**Means**", "**Look at**", "**Do**"} <= set(re.findall(r"\*\*[^*]+\*\*", section)), rule["alert"]


def test_what_a_rule_looks_at_is_there_from_the_start() -> None:
    """A series that is born with its first event has not increased by then, and no rule would see it."""
    protocols = [protocol.wire.name for protocol in bootstrap.PROTOCOLS]
    telemetry.begin_series(protocols, [operation.id for operation in OPERATIONS])
    told = generate_latest(REGISTRY).decode()
    names = set(re.findall(r"^(?:# HELP )?(ranking_evaluate_\w+)", told, re.MULTILINE))
    for rule in RULES:
        assert metrics_in(rule["expr"]) <= names | OF_PROMETHEUS | {"ranking_evaluate_store_seconds_bucket"}
    for what in ALARM_NAMES:
        assert f'ranking_evaluate_alarms_total{{what="{what}"}}' in told
    for protocol in protocols:
        for series in ("settlements", "verifications"):
            outcome = {"settlements": "Uncertain", "verifications": "Unreachable"}[series]
            assert f'ranking_evaluate_{series}_total{{outcome="{outcome}",protocol="{protocol}"}}' in told
        for code in ("INTERNAL", "OVERLOADED", "PAYMENT_UNAVAILABLE", "STATE_UNAVAILABLE"):
            assert re.search(rf'requests_total{{code="{code}",operation="ranking-evaluate",protocol="{protocol}"', told)


def test_every_alarm_of_the_code_has_a_rule() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    raised = set(re.findall(r'telemetry\.alarm\(\s*"(\w+)"', source))
    assert raised == set(ALARM_NAMES)
    watched = set(re.findall(r'what="(\w+)"', " ".join(rule["expr"] for rule in RULES)))
    assert watched == set(ALARM_NAMES)


def test_the_dashboard_is_one_that_grafana_takes_and_shows_metrics_that_there_are() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "ranking-evaluate.json").read_text())
    assert (board["uid"], board["title"]) == ("ranking-evaluate", "ranking-evaluate")
    assert board["schemaVersion"] >= 39
    telemetry.begin_series(["x402", "mpp"], ["ranking-evaluate"])
    told = generate_latest(REGISTRY).decode()
    known = set(re.findall(r"^# HELP (ranking_evaluate_\w+)", told, re.MULTILINE))
    known |= {f"{name}_bucket" for name in known} | OF_PROMETHEUS
    shown: set[str] = set()
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert {"id", "type", "title", "gridPos", "targets", "datasource"} <= panel.keys(), panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
        for target in panel["targets"]:
            shown |= metrics_in(target["expr"])
    assert shown <= known
    assert {"ranking_evaluate_requests_total", "ranking_evaluate_uncertain_attempts", "up"} <= shown
    for expression in shown:
        assert expression
