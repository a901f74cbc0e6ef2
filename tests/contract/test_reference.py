"""The committed reference is what this release renders, and everything in it leads somewhere."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranking_evaluate import evaluate
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.cli import app
from ranking_evaluate.contract import llms, reference
from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.document import path_of, service_document
from ranking_evaluate.contract.problems import CAUSES, PROBLEMS
from ranking_evaluate.contract.wire import Client
from ranking_evaluate.operations.registry import OPERATIONS

ROOT = Path(__file__).parents[2]
RENDERED = reference.render(WIRES)
PAGES = [path for path in RENDERED if path.endswith((".md", ".txt"))]

LIVE = {
    *("/openapi.json", "/.well-known/x402", "/readyz", "/healthz", "/preflight", "/llms.txt"),
    *("/reference", "/reference/", "/reference/services"),
}


def text(path: str) -> str:
    return RENDERED[path].decode()


@pytest.mark.parametrize("path", RENDERED)
def test_the_committed_file_is_what_is_rendered(path: str) -> None:
    assert (ROOT / path).read_bytes() == RENDERED[path], "run `ranking-evaluate reference`"


def test_every_operation_has_its_pages() -> None:
    for operation in OPERATIONS:
        assert json.loads(RENDERED[f"reference/services/{operation.id}.json"]) == service_document(operation, WIRES)
        example = json.loads(RENDERED[f"reference/examples/{operation.id}.json"])
        answer = json.loads(evaluate(operation.id, json.dumps(example["input"]).encode()))
        assert answer == example["response"]
        page = text(f"reference/tools/{operation.id}.md")
        for said in (operation.name, operation.description, *operation.intents, *operation.notes):
            assert said in page
        assert all(path_of(operation, wire.name) in page for wire in WIRES)


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_code_has_its_place_where_the_problem_type_points(code: str) -> None:
    assert f'<a id="{code}"></a>\n\n### {code}\n' in text("reference/errors.md")
    assert PROBLEMS[code].next_step in text("reference/errors.md")
    assert f" {code}: {PROBLEMS[code].next_step}" in text("llms.txt")


@pytest.mark.parametrize("code", CAUSES)
def test_what_a_cause_means_stands_under_its_code(code: str) -> None:
    for cause, problem in CAUSES[code].items():
        assert f"With cause `{cause}`:\n\n{problem.title}" in text("reference/errors.md")
        assert f" {code}, cause {cause}: {problem.next_step}" in text("llms.txt")


def test_the_tool_page_says_what_the_limits_count_and_what_is_not_sold_here() -> None:
    page = text("reference/tools/ranking-evaluate.md")
    for said in (
        "- evidence counts the rows of evidence for a query, at most 100 ranked judgments and 100 missed relevant ids",
        "- keyWorkBytes counts ",
        "- matchingSteps counts ",
        "- classification-evaluate: another service, not sold here",
        "- span-evaluate: another service, not sold here",
    ):
        assert said in page
    assert "[ranking-evaluate](/reference/tools/ranking-evaluate.md)" in text("reference/tools/first-usable-rank.md")


@pytest.mark.parametrize("path", PAGES)
def test_every_link_leads_to_a_document(path: str) -> None:
    folder = "/" + path.rpartition("/")[0]
    for link in re.findall(r"\]\(([^)]+)\)", text(path)):
        target, _, anchor = link.partition("#")
        whole = target if target.startswith("/") else f"{folder.rstrip('/')}/{target}"
        assert whole in LIVE or whole.removeprefix("/") in RENDERED, link
        if anchor:
            assert f'<a id="{anchor}"></a>' in text(whole.removeprefix("/"))


def test_no_409_advises_to_pay_again() -> None:
    section = text("reference/errors.md").split("\n## 409\n")[1].split("\n## 4")[0]
    assert "new credential" not in section
    assert "Do not pay again" in section


def test_llms_says_what_it_must() -> None:
    said = text("llms.txt")
    for word in (
        DISCOVERY_KEY,
        "payment-identifier",
        "set_spend_controls",
        "setSpendControls",
        "on_after_payment_creation",
        "onAfterPaymentCreation",
        "max_payment_retries=1",
        "When not to pay again",
        "What no server can promise",
        "0.01 USD",
        "third party",
        "by force",
    ):
        assert word in said
    for client in llms.clients(WIRES):
        assert client.source.rstrip() in said


def test_the_sections_of_llms_hold_links_alone() -> None:
    """The form of llmstxt.org: no heading before the first section, and in sections nothing but links."""
    before, *sections = re.split("^##", text("llms.txt"), flags=re.MULTILINE)
    assert before.startswith("# ranking-evaluate\n\n> ")
    assert [section.splitlines()[0] for section in sections] == [" Operations", " Documents"]
    for line in (line for section in sections for line in section.splitlines()[1:] if line):
        assert re.fullmatch(r"- \[[^\]]+\]\([^)]+\): .+", line), line


def test_no_sample_writes_the_identifier_by_itself() -> None:
    assert not re.search(r"payment_identifier_to|PaymentIdentifierTo|before_?payment", text("llms.txt"), re.IGNORECASE)


@pytest.mark.parametrize("client", llms.clients(WIRES), ids=lambda client: client.name)
def test_the_examples_folder_shows_the_same_clients(client: Client) -> None:
    assert (ROOT / "examples" / client.name).read_text(encoding="utf-8") == client.source


def test_the_cases_are_there_as_csv_and_lead_from_the_page() -> None:
    rows = list(csv.reader(io.StringIO(text("reference/cases/first-usable-rank.csv"))))
    assert [row[0] for row in rows[1:]] == ["two-ranks", "one-miss", "missing-usable-channel", "no-queries"]
    page = text("reference/tools/first-usable-rank.md")
    for name in ("cases/first-usable-rank.csv", "examples/first-usable-rank.py", "examples/first-usable-rank.mjs"):
        assert f"(/reference/{name})" in page


def test_the_retrieval_pages_say_their_cautions() -> None:
    for name in ("retrieval-measure", "lexical-retrieval"):
        page = text(f"reference/tools/{name}.md").lower()
        for said in (
            "exhaustive recall from partial labels",
            "model-only and hybrid-system results separately",
            "faithfully",
        ):
            assert said in page
    assert "unicode tables" in text("reference/tools/lexical-retrieval.md").lower()


# The command.


def test_check_finds_a_stale_and_a_left_over_file_and_writing_mends_both(tmp_path: Path) -> None:
    run = CliRunner()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ranking-evaluate"\n', encoding="utf-8")
    check = ["reference", "--check", "--directory", str(tmp_path)]
    assert run.invoke(app, check).exit_code == 1
    assert run.invoke(app, ["reference", "--directory", str(tmp_path)]).exit_code == 0
    assert run.invoke(app, check).exit_code == 0
    (tmp_path / "llms.txt").write_text("old", encoding="utf-8")
    (tmp_path / "reference" / "old.md").write_text("old", encoding="utf-8")
    found = run.invoke(app, check)
    assert found.exit_code == 1
    assert "llms.txt is stale" in found.output
    assert "reference/old.md is stale" in found.output
    assert run.invoke(app, ["reference", "--directory", str(tmp_path)]).exit_code == 0
    assert run.invoke(app, check).exit_code == 0
    assert not (tmp_path / "reference" / "old.md").exists()


def test_nothing_here_depends_on_where_it_was_written() -> None:
    for content in RENDERED.values():
        assert b"127.0.0.1" not in content
        assert str(ROOT).encode() not in content


def test_in_a_folder_of_somebody_else_nothing_is_written_or_removed(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    thesis = tmp_path / "reference" / "my-thesis.md"
    thesis.write_text("mine", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "my-thesis"\n', encoding="utf-8")
    done = CliRunner().invoke(app, ["reference", "--directory", str(tmp_path)])
    assert (done.exit_code, "is no checkout of ranking-evaluate" in done.stderr) == (2, True)
    assert thesis.read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pyproject.toml", "reference"]
