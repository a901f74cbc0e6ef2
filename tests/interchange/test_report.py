from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.core.canonical import sha256
from ranking_evaluate.core.evidence import Reason
from ranking_evaluate.interchange.report import model
from ranking_evaluate.interchange.report.read import Checked, Inputs, Named, ReportError, State, checked, parts
from ranking_evaluate.interchange.report.render import Form, render
from ranking_evaluate.operations import registry
from tests.judges.example_reports import HOSTILE_IDS, examples

EXAMPLES = examples()
DEMO = EXAMPLES["demo"]

VOID = {"meta", "link", "rect", "circle", "line"}


class _Page(HTMLParser):
    """What a page is made of; feeding it raises when an element is not closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        members = dict(attrs)
        assert not [name for name in members if name.startswith("on") or name == "style"]
        self.ids += [one for one in [members.get("id")] if one]
        self.links += [one for one in [members.get("href"), members.get("src")] if one]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def _report(*names: str, form: Form = Form.HTML, with_inputs: bool = True) -> str:
    responses = [Named(f"{name}.json", EXAMPLES[name].response) for name in names]
    inputs = [Named(f"{name}.input.json", EXAMPLES[name].body) for name in names] if with_inputs else []
    return render(responses, inputs, form)


def read(responses: list[Named], inputs: list[Named]) -> list[Checked]:
    known = Inputs(inputs)
    return [checked(part, known) for file in responses for part in parts(file)]


def _tampered(response: bytes, change: tuple[bytes, bytes]) -> bytes:
    assert change[0] in response
    return response.replace(*change)


def test_there_is_an_example_of_every_operation() -> None:
    assert {example.operation for example in EXAMPLES.values()} == {operation.id for operation in registry.OPERATIONS}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_is_well_formed_and_needs_nothing_from_elsewhere(name: str) -> None:
    page = _Page(_report(name))
    assert not {"script", "img", "iframe", "form", "object", "embed"} & page.tags
    assert len(set(page.ids)) == len(page.ids)
    assert all(link == "data:," or link.removeprefix("#") in page.ids for link in page.links)


@pytest.mark.parametrize("form", Form)
def test_the_same_files_give_the_same_text(form: Form) -> None:
    assert _report(*EXAMPLES, form=form) == _report(*EXAMPLES, form=form)


def test_averages_are_shown_with_their_denominators() -> None:
    text = _Page(_report("fifty-queries")).text
    assert "mean of 49 of 50 queries" in text
    assert "mean of 50 of 50 queries" in text


def test_queries_stand_by_their_figure_and_those_without_one_last() -> None:
    page = _report("fifty-queries").split("Queries by NDCG@10")[1].split("All figures as a table")[0]
    figures = re.findall(r'<span class="number">(?:<span class="none">)?([\d.]+|undefined)', page)
    known = [float(one) for one in figures if one != "undefined"]
    assert (len(figures), figures[-1]) == (50, "undefined")
    assert known == sorted(known, reverse=True)


def test_every_document_of_a_ranking_stands_in_a_table_and_so_does_what_is_missed() -> None:
    text = _Page(_report("demo")).text
    assert "1 payments/methods 0 not relevant 2 refunds/timing 3 relevant" in text
    assert "5 news/spring-sale none unjudged" in text
    assert "Missed, though relevant: refunds/missing" in text


def test_unavailable_metrics_give_their_reasons() -> None:
    text = _Page(_report("missing-evidence")).text
    assert "missing for 4 of 6 queries: the scan was partial (1)" in text
    assert "NDCG, Precision, Recall unavailable: something returned has no label (UNLABELED_RETURNED_UNIT)" in text
    assert "RR: 0.5000 to 1.0000 by order of ties" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("comparison", "The candidate is better"),
        ("too-few-queries", "4 differing queries reach p = 0.1250 at best, above alpha = 0.05"),
    ],
)
def test_a_comparison_begins_with_its_verdict(name: str, said: str) -> None:
    assert said in _Page(_report(name)).text


def _comparison(*ranks: tuple[str, str], **rules: Any) -> str:
    queries = [
        {"id": f"q{number}", "baseline": [*one], "candidate": [*other], "judgments": [{"id": "r", "grade": 1}]}
        for number, (one, other) in enumerate(ranks)
    ]
    body = json.dumps({"queries": queries, "unjudged": "nonrelevant", **rules}).encode()
    return _Page(render([Named("c", evaluate("ranking-compare", body))], [], Form.HTML)).text


def test_every_verdict_has_its_words() -> None:
    assert "The baseline is better" in _comparison(*[("r", "xr")] * 6)
    even = _comparison(*[("r", "xr"), ("xr", "r")] * 3)
    assert "No difference is shown The candidate's NDCG@10 is the same on average" in even
    assert "that does not show that there is none" in even
    assert "Wilcoxon signed rank decides with p = 1.5e-05" in _comparison(*[("xr", "r")] * 17)
    assert "Without a difference there is nothing to test" in _comparison(("r", "r"))
    assert "is defined for no query" in _comparison(("x", "x"), relevantAtLeast=2, metric="recallAtK")


def test_a_whole_response_is_verified_against_its_input_among_others() -> None:
    inputs = [Named(name, one.body) for name, one in EXAMPLES.items()]
    for name, example in EXAMPLES.items():
        [found] = read([Named(name, example.response)], inputs)
        assert [seal.state for seal in found.seals] == [State.HOLDS, State.HOLDS]


def test_without_an_input_only_the_output_digest_is_verified() -> None:
    [found] = read([Named("r", DEMO.response)], [])
    assert [seal.state for seal in found.seals] == [State.UNCHECKED, State.HOLDS]


def test_a_changed_result_is_shown_as_one_whose_digest_does_not_hold() -> None:
    changed = _tampered(DEMO.response, (b'"queryCount":4', b'"queryCount":5'))
    [found] = read([Named("r", changed)], [Named("i", DEMO.body)])
    assert [seal.state for seal in found.seals] == [State.BROKEN, State.BROKEN]
    assert found.seals[0].reason == "computed again, /result/queryCount differs"
    assert "✗ does not hold" in render([Named("r", changed)], [], Form.HTML)


def test_a_changed_result_with_its_own_digest_is_found_by_the_input() -> None:
    changed = _tampered(DEMO.response, (b'"queryCount":4', b'"queryCount":5'))
    result = changed[changed.index(b'"result":') + 9 : changed.index(b',"provenance"')]
    stated = json.loads(changed)["provenance"]["outputSha256"].encode()
    forged = changed.replace(stated, sha256(result).encode())
    [found] = read([Named("r", forged)], [Named("i", DEMO.body)])
    assert [seal.state for seal in found.seals] == [State.BROKEN, State.HOLDS]


def test_another_input_is_said_to_be_another() -> None:
    [found] = read([Named("r", DEMO.response)], [Named("i", EXAMPLES["fifty-queries"].body), Named("j", b"{}")])
    assert found.seals[0].reason == "none of the inputs given has this digest"


def test_an_input_that_is_refused_now_is_no_evidence() -> None:
    body = json.loads(DEMO.body)
    body["queries"][1]["id"] = body["queries"][0]["id"]
    refused = json.dumps(body).encode()
    digest = registry.find("ranking-evaluate").input_sha256(body).encode()
    stated = json.loads(DEMO.response)["provenance"]["inputSha256"].encode()
    [found] = read([Named("r", DEMO.response.replace(stated, digest))], [Named("i", refused)])
    assert found.seals[0].reason == "the input is refused: DUPLICATE_ID"


def test_bounds_that_a_cut_tie_hides_are_said_to_be_missing() -> None:
    body = json.loads(EXAMPLES["search"].body)
    documents = [f"d{number:03}" for number in range(101)]
    body["workflow"]["documentIds"] = documents
    body["corpus"]["documents"] = [{**body["corpus"]["documents"][0], "id": one, "text": "reset"} for one in documents]
    body["reference"]["labels"] = [{"queryId": "q1", "id": one, "gain": 1} for one in documents]
    response = evaluate("lexical-retrieval", json.dumps(body).encode())
    text = _Page(render([Named("r", response)], [], Form.HTML)).text
    assert "no bounds over ties: a tie was cut (TIES_CUT)" in text


def test_a_response_of_another_release_is_shown_but_not_computed_again() -> None:
    other = re.sub(rb'"version":"[^"]*"', b'"version":"0.0.1"', DEMO.response)
    [found] = read([Named("r", other)], [Named("i", DEMO.body)])
    assert [seal.state for seal in found.seals] == [State.UNCHECKED, State.HOLDS]


def test_a_file_may_hold_a_response_in_each_line() -> None:
    lines = Named("all.jsonl", b"\n".join(example.response for example in EXAMPLES.values()) + b"\n")
    found = read([lines], [Named("i", b"\n".join(example.body for example in EXAMPLES.values()))])
    assert [one.name for one in found][:2] == ["all.jsonl, line 1", "all.jsonl, line 2"]
    assert all(one.seals[0].state is State.HOLDS for one in found)


def test_a_response_over_several_lines_is_one_response() -> None:
    pretty = json.dumps(json.loads(DEMO.response), indent=2).encode()
    [found] = read([Named("r", pretty)], [])
    # The digest is that of the compact result, which these bytes are not.
    assert found.seals[1].state is State.BROKEN


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "r: This is not a response: it is not JSON."),
        (b"[]", "r: This is not a response: it is not a JSON object."),
        (b'{"status":422,"code":"DUPLICATE_ID"}', "r: This is not a response, but a problem: the input was refused."),
        (b'{"operation":"other","result":{}}', "r: The response names an operation that is not known here"),
        (b'{"operation":"ranking-evaluate","result":{}}', "its result is none that ranking-evaluate can have"),
        (b'{"operation":"ranking-evaluate","result":"\\ud800"}', "its result is none that ranking-evaluate can have"),
        (b'{"a":1}\n{"b":', "r, line 1: This is not a response."),
        (_tampered(DEMO.response, (b'"outputSha256":"', b'"outputSha256":"x')), "it does not state its release"),
        (_tampered(DEMO.response, (b'"version":"', b'"release":"')), "it does not state its release"),
        (_tampered(DEMO.response, (b'"rank":1', b'"rank":"<b>"')), "its result is none that"),
    ],
)
def test_what_is_no_response_is_refused_by_name(content: bytes, complaint: str) -> None:
    with pytest.raises(ReportError) as refused:
        render([Named("r", content)], [], Form.HTML)
    assert complaint in str(refused.value)


def test_figures_that_no_input_gives_are_drawn_within_the_page() -> None:
    wild = _tampered(DEMO.response, (b'"ndcgAtK":0.5', b'"ndcgAtK":-1e300,"x":0.5'))
    with pytest.raises(ReportError):
        render([Named("r", wild)], [], Form.HTML)
    wild = re.sub(rb'"ndcgAtK":0\.\d+', b'"ndcgAtK":1e300', DEMO.response)
    page = render([Named("r", wild)], [], Form.HTML)
    assert "1e+300" in page
    assert 'width="100%"' in page


def test_markdown_tells_the_same_and_ids_are_no_markup_in_it() -> None:
    text = _report("demo", form=Form.MARKDOWN)
    assert "| NDCG&#64;5 | **0.5051** | mean of 4 of 4 queries |" in text
    assert "| <code>refund not received</code> | 0.5146 |" in text
    assert "- ✓ input SHA-256 `" in text
    hostile = _report("hostile-ids", form=Form.MARKDOWN)
    for mark in ("<script", "<img", "@all", "x|y", "`z", "# heading", "\u202e", "\x1b"):
        assert mark not in hostile
    rows = [line for line in hostile.splitlines() if line.startswith("| <code>")]
    assert len(rows) == len(HOSTILE_IDS)
    assert len({row.count("|") for row in rows}) == 1


def test_markdown_of_a_comparison_begins_with_the_verdict() -> None:
    text = _report("comparison", form=Form.MARKDOWN)
    assert "**The candidate is better.**" in text
    assert "| Randomization of signs | 0.0" in text
    assert "missing for 4 of 6 queries" in _report("missing-evidence", form=Form.MARKDOWN)


def test_csv_has_a_row_for_each_figure_with_every_digit() -> None:
    rows = list(csv.DictReader(io.StringIO(_report("demo", form=Form.CSV))))
    macro = json.loads(DEMO.response)["result"]["macro"]
    averages = {row["metric"]: row["value"] for row in rows if not row["query"]}
    assert float(averages["NDCG@5"]) == macro["ndcgAtK"]
    assert len(rows) == 5 * (1 + 4)
    missing = list(csv.DictReader(io.StringIO(_report("missing-evidence", form=Form.CSV))))
    assert {"value": "", "state": "unavailable", "reasons": "PARTIAL_SCAN"}.items() <= {
        name: value for row in missing if row["query"] == "partial scan" for name, value in row.items()
    }.items()
    pairs = list(csv.DictReader(io.StringIO(_report("comparison", form=Form.CSV))))
    assert {"baseline", "candidate", "difference"} <= {row["metric"] for row in pairs}


def test_csv_gives_a_spreadsheet_nothing_to_run() -> None:
    text = _report("hostile-ids", form=Form.CSV)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == text.count(f'"{rows[0]["response"]}"')
    assert not [row["query"] for row in rows if row["query"].startswith(("=", "+", "-", "@"))]


def test_csv_has_differences_below_zero_as_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(_report("comparison", form=Form.CSV))))
    differences = [row["value"] for row in rows if row["metric"] == "difference" and row["value"]]
    assert [float(one) for one in differences if one.startswith("-")]


def test_several_responses_are_listed_first() -> None:
    page = _report("demo", "comparison", "missing-evidence")
    nav = page.split("<nav")[1].split("</nav>")[0]
    assert nav.count("<li>") == 3
    assert "the candidate is better" in nav


@pytest.mark.parametrize(
    ("number", "text"), [(0.5, "0.5000"), (-0.00001, "0.0000"), (1, "1.0000"), (2e6, "2e+06"), (0, "0.0000")]
)
def test_figures_have_four_decimals(number: float, text: str) -> None:
    assert model.figure(number) == text


def test_every_reason_has_its_words() -> None:
    assert {str(reason) for reason in Reason} <= model.REASONS.keys()
