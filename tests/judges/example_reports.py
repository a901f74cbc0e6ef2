"""The reports that people look at: the demo, fifty queries, missing evidence, comparisons and hostile ids."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from typer.testing import CliRunner

from ranking_evaluate import evaluate
from ranking_evaluate.cli import app
from ranking_evaluate.cli.demo import INPUT as DEMO
from ranking_evaluate.interchange.report.read import Named
from ranking_evaluate.interchange.report.render import Form, render
from ranking_evaluate.operations import registry

HOSTILE_IDS: Final = (
    "<script>document.title='broken'</script>",
    "'\"><img src=x onerror=alert(1)>",
    "\u202egnp.exe\u202d",
    "\u200fمرحبا بالعالم",
    "😀" * 80,
    "👩‍👩‍👧‍👦" * 11,
    "a" * 80,
    '=HYPERLINK("http://example.org")',
    "x|y`z @all #1\n\n# heading",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "\x00\x1b[31m",
)

_WORDS: Final = (
    *("refund", "invoice", "password", "reset", "address", "order", "track", "return", "label", "warranty", "gift"),
    *("card", "login", "vpn", "setup", "phone", "delivery", "late", "screen", "battery", "coupon", "billing", "tax"),
)


class Example(NamedTuple):
    """One input with the operation that answers it."""

    operation: str
    body: bytes

    @property
    def response(self) -> bytes:
        """The answer."""
        return evaluate(self.operation, self.body)


def examples() -> Mapping[str, Example]:
    """Return every example by the name of its report."""
    queries = _judged_queries(50)
    return {
        "demo": _example("ranking-evaluate", DEMO),
        "fifty-queries": _evaluated(queries),
        "missing-evidence": _missing_evidence(),
        "search": _example("lexical-retrieval", registry.find("lexical-retrieval").example_input),
        "first-usable": _example(
            "first-usable-rank",
            {"queries": [{"hits": ["a", "b", "c"], "usable": ["c"]}, {"hits": ["a"], "usable": []}]},
        ),
        "comparison": _compared(queries[:14]),
        "too-few-queries": _compared(queries[:4]),
        "comparison-of-fifty": _compared(queries),
        "hostile-ids": _example(
            "ranking-evaluate",
            {
                "unjudged": "nonrelevant",
                "queries": [
                    {
                        "id": one,
                        "retrieved": list(HOSTILE_IDS),
                        "judgments": [{"id": HOSTILE_IDS[0], "grade": 3}, {"id": f"no {one[:70]}", "grade": 1}],
                    }
                    for one in HOSTILE_IDS
                ],
            },
        ),
    }


def collection_page(folder: Path) -> Path:
    """Return the report of two runs over the questions of docs/measure.md, as `measure` writes it into a folder."""
    questions = Path(__file__).parents[2] / "docs/questions"
    file = folder / "collection.html"
    runs = [str(questions / name) for name in ("judgments.qrels", "headings.run", "text.run")]
    done = CliRunner().invoke(app, ["measure", "--qrels", *runs, "--report", str(file)])
    assert done.exit_code == 0, done.output
    return file


def page(name: str, example: Example) -> str:
    """Return the report of one example, verified against its input."""
    return render([Named(f"{name}.json", example.response)], [Named("input.json", example.body)], Form.HTML)


def _example(operation: str, value: object) -> Example:
    return Example(operation, json.dumps(value).encode())


def _judged_queries(count: int) -> list[dict[str, Any]]:
    """Return queries of a help centre, each ranked badly and a little better, with some documents unjudged."""
    chance = random.Random(4)
    queries = []
    for number in range(count):
        documents = [f"{chance.choice(_WORDS)}/{chance.choice(_WORDS)}-{position}" for position in range(16)]
        grades = {one: 0 if number == 7 else chance.choice([0, 0, 0, 1, 1, 2, 3]) for one in documents[:13]}
        rankings = [
            sorted(documents, key=lambda one, noise=noise: chance.gauss(0, noise) - grades.get(one, 0))[:10]  # type: ignore[misc]
            for noise in (2.4, 1.0)
        ]
        queries.append(
            {
                "id": f"{chance.choice(_WORDS)} {chance.choice(_WORDS)} {number}",
                "baseline": rankings[0],
                "candidate": rankings[1],
                "judgments": [{"id": one, "grade": grade} for one, grade in grades.items()],
            }
        )
    return queries


def _evaluated(queries: list[dict[str, Any]]) -> Example:
    rows = [{"id": one["id"], "retrieved": one["baseline"], "judgments": one["judgments"]} for one in queries]
    return _example("ranking-evaluate", {"unjudged": "nonrelevant", "queries": rows})


def _compared(queries: list[dict[str, Any]]) -> Example:
    return _example("ranking-compare", {"unjudged": "nonrelevant", "queries": queries})


def _missing_evidence() -> Example:
    example: Any = registry.find("retrieval-measure").example_input
    [whole] = example["observations"]
    observations = [
        {**whole, "queryId": "complete evidence"},
        {**whole, "queryId": "no labels at all", "labels": None, "populationComplete": False},
        {**whole, "queryId": "partial scan", "scan": "partial"},
        {**whole, "queryId": "an unlabeled unit, and a repeated one", "returned": ["A", "Z", "A"]},
        {**whole, "queryId": "ties", "returned": ["X", "A", "B"], "scores": [1, 1, 0.5], "tiePolicy": "by id"},
        {**whole, "queryId": "not all that is relevant is known", "populationComplete": False},
    ]
    return _example("retrieval-measure", {**example, "observations": observations})
