"""Whole collections in a report: what `measure` and `merge` write, and the responses of many lines."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ranking_evaluate import evaluate
from ranking_evaluate.cli import app
from ranking_evaluate.interchange.merge import merge
from ranking_evaluate.interchange.report.read import Named, ReportError
from ranking_evaluate.interchange.report.render import Form, render
from tests.interchange.test_report import _Page


def query(number: int, chance: random.Random) -> dict[str, Any]:
    documents = [f"d{place}" for place in range(12)]
    return {
        "id": f"topic {number}",
        "retrieved": chance.sample(documents, 10),
        "judgments": [{"id": one, "grade": chance.choice([0, 0, 1, 2])} for one in documents],
    }


def lines(count: int, per_line: int = 50) -> bytes:
    """Return the responses to so many queries, so many of them in a line."""
    chance = random.Random(count)
    queries = [query(number, chance) for number in range(count)]
    parts = [queries[start : start + per_line] for start in range(0, count, per_line)]
    return b"\n".join(evaluate("ranking-evaluate", {"queries": part}) for part in parts) + b"\n"


@pytest.fixture
def measured(tmp_path: Path) -> Named:
    """What `measure --json` writes for two runs over thirty topics."""
    chance = random.Random(3)
    grades = [(f"t{number}", f"d{place}", chance.choice([0, 1, 2])) for number in range(30) for place in range(9)]
    (tmp_path / "qrels").write_text("".join(f"{topic} 0 {name} {grade}\n" for topic, name, grade in grades))
    for run in ("old.run", "new.run"):
        rows = [f"{topic} Q0 {name} 1 {chance.random()} x\n" for topic, name, _ in grades]
        (tmp_path / run).write_text("".join(rows))
    paths = [str(tmp_path / name) for name in ("qrels", "old.run", "new.run")]
    done = CliRunner().invoke(app, ["measure", "--qrels", *paths, "-k", "3", "-k", "5", "--json", "-"])
    assert done.exit_code == 0
    return Named("all.json", done.stdout_bytes)


def test_what_measure_writes_is_shown_with_means_tests_spread_and_topics(measured: Named) -> None:
    text = _Page(render([measured], [], Form.HTML)).text
    document = json.loads(measured.content)

    for run in document["runs"]:
        for k in ("3", "5"):
            for value in run["means"][k].values():
                assert f"{value:.4f}" in text
    assert "Every mean is over all 30 topics." in text
    assert "new.run against old.run" in text
    assert "new.run lost most by NDCG@3" in text
    assert document["files"][1]["sha256"] in text


def test_csv_of_a_collection_has_every_figure_of_every_topic(measured: Named) -> None:
    rows = render([measured], [], Form.CSV).splitlines()

    # The means, and the topics' own figures, of two runs at two cutoffs.
    assert len(rows) == 1 + 2 * 2 * 7 * (1 + 30)
    value = json.loads(measured.content)["runs"][1]["queries"]["t4"]["5"]["ap"]
    assert f'"all.json","measure","t4","new.run AP@5","{value!r}","available",""' in rows


def test_what_merge_writes_is_shown_with_its_denominators_and_what_was_omitted() -> None:
    trailer = b'{"omitted":[{"id":"big","reason":"too many judgments"}]}'
    merged = merge([*lines(60).splitlines(), trailer]).document
    text = _Page(render([Named("merge.json", merged)], [], Form.HTML)).text

    macro = json.loads(merged)["macro"]
    assert all(f"{value:.4f}" in text for value in macro.values())
    assert "topics 60" in text
    assert "1 of 61 queries fit no input and are in no average: 1 topic (big)." in text


def test_many_lines_begin_with_the_mean_of_all_queries() -> None:
    content = lines(120)
    page = render([Named("lines.jsonl", content)], [], Form.HTML)
    macro = json.loads(merge(content.splitlines()).document)["macro"]

    first = page[page.index("<article") : page.index("</article>")]
    assert all(f"{value:.4f}" in first for value in macro.values())
    assert "All responses together" in first
    # With so few each ranking is there too.
    assert page.count('<section class="query"') == 120
    assert "3 of 3 output digests hold." in _Page(page).text


def test_a_report_of_many_topics_shows_the_best_and_the_worst_and_stays_small() -> None:
    content = lines(250)
    page = render([Named("lines.jsonl", content)], [], Form.HTML)

    assert len(page) < 120_000
    assert page.count('<section class="query"') == 20
    assert _Page(page).text.count("Missed, though relevant") <= 20
    assert len(render([Named("lines.jsonl", content)], [], Form.MARKDOWN)) < 20_000


def test_the_spread_counts_every_topic_once() -> None:
    page = render([Named("lines.jsonl", lines(300))], [], Form.HTML)
    spread = page[page.index('class="bars spread"') :]
    counts = re.findall(r'<span class="number">([0-9,]+)</span>', spread[: spread.index("</ol>")])

    assert len(counts) == 11
    undefined = re.search(r"Undefined: (\d+)", page)
    assert undefined
    assert sum(int(one.replace(",", "")) for one in counts) + int(undefined[1]) == 300


def test_a_collection_without_any_defined_mean_is_shown() -> None:
    nothing = [{"id": f"q{number}", "retrieved": [], "judgments": []} for number in range(2)]
    content = b"\n".join(evaluate("ranking-evaluate", {"queries": [one]}) for one in nothing)

    assert "undefined" in _Page(render([Named("r", content)], [], Form.HTML)).text
    assert "undefined" in render([Named("m", merge(content.splitlines()).document)], [], Form.MARKDOWN)


def test_lines_that_do_not_belong_together_are_shown_one_by_one() -> None:
    one, other = (evaluate("ranking-evaluate", {"queries": [query(7, random.Random(1))], "k": k}) for k in (3, 5))
    page = render([Named("lines.jsonl", one + b"\n" + other)], [], Form.HTML)

    assert "All responses together" not in page
    assert page.count("<article") == 2


@pytest.mark.parametrize("form", Form)
def test_ids_that_are_markup_stay_text(form: Form) -> None:
    topics = ["<script>alert(1)</script>", "| x |", "=1+1"]
    chance = random.Random(1)
    queries = [{**query(number, chance), "id": topic} for number, topic in enumerate(topics)]
    content = b"\n".join(evaluate("ranking-evaluate", {"queries": [one]}) for one in queries)
    text = render([Named("r", content)], [], form)

    assert ("<script>" in text) is (form is Form.CSV)
    if form is Form.HTML:
        assert _Page(text).tags.isdisjoint({"script", "img"})


def test_ids_are_guarded_for_spreadsheets_and_raw_on_request() -> None:
    body = {"queries": [{"id": "-1", "retrieved": ["a"], "judgments": [{"id": "a", "grade": 1}]}]}
    response = Named("r", evaluate("ranking-evaluate", body))

    assert '"r","ranking-evaluate","\'-1","NDCG@10","1",' in render([response], [], Form.CSV)
    assert '"r","ranking-evaluate","-1","NDCG@10","1",' in render([response], [], Form.CSV, raw_ids=True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"runs": []}', "lacks what measure --json writes"),
        (b'{"runs": [{"run": "x"}], "release": "1"}', "lacks what measure --json writes"),
        (b'{"macro": {}}', "lacks what merge writes"),
        (b'{"macro": [], "k": 3, "queryCount": 1, "omitted": [], "definedQueryCounts": {}}', "lacks what merge writes"),
    ],
)
def test_half_a_collection_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(ReportError, match=complaint):
        render([Named("r", content)], [], Form.HTML)


def test_differences_that_cancel_are_the_same_on_average_and_one_query_is_one() -> None:
    body = {
        "metric": "precisionAtK",
        "queries": [
            {"id": "q0", "baseline": [], "candidate": ["r0"], "judgments": [{"id": "r0", "grade": 1}]},
            {
                "id": "q1",
                "baseline": ["r0", "r1", "r2"],
                "candidate": ["r0", "r1"],
                "judgments": [{"id": one, "grade": 1} for one in ("r0", "r1", "r2")],
            },
        ],
    }
    response = evaluate("ranking-compare", body)
    # The mean of +1e11 and -1e11 units is rounding noise in binary64.
    assert json.loads(response)["result"]["paired"]["meanDifference"] != 0

    text = _Page(render([Named("r", response)], [], Form.HTML)).text
    assert "Precision@10 is the same on average: it wins 1 query, loses 1 and ties 0." in text
