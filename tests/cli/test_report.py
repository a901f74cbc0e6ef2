"""`report`: a file or standard output, whole or not at all, and nothing of this machine in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranking_evaluate.cli import app
from tests.judges.example_reports import examples

DEMO = examples()["demo"]


@pytest.fixture
def response(tmp_path: Path) -> Path:
    file = tmp_path / "answer.json"
    file.write_bytes(DEMO.response)
    (tmp_path / "input.json").write_bytes(DEMO.body)
    return file


def test_the_page_is_written_and_nothing_is_printed(response: Path) -> None:
    page = response.with_name("report.html")
    arguments = ["report", str(response), "-o", str(page), "--input", str(response.with_name("input.json"))]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.output) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "computed again from this input" in text
    assert str(response.parent) not in text
    CliRunner().invoke(app, arguments)
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(("form", "start"), [("markdown", "## Supplied"), ("csv", '"response","operation","query"')])
def test_other_forms_go_to_standard_output_on_request(response: Path, form: str, start: str) -> None:
    done = CliRunner().invoke(app, ["report", str(response), "-o", "-", "--format", form])
    assert done.exit_code == 0
    assert done.stdout.startswith(start)
    assert "answer.json" in done.stdout


def test_what_is_read_is_never_written_over(response: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, given = response.read_bytes(), response.with_name("input.json")
    monkeypatch.chdir(response.parent)
    for output in (str(response), f"../{response.parent.name}/answer.json", "input.json"):
        done = CliRunner().invoke(app, ["report", "answer.json", "--input", str(given), "-o", output])
        assert (done.exit_code, "would be written over" in done.stderr) == (2, True)
    assert (response.read_bytes(), given.read_bytes()) == (before, DEMO.body)


def test_standard_input_is_read(response: Path) -> None:
    done = CliRunner().invoke(app, ["report", "-", "-o", "-", "--format", "csv"], input=response.read_bytes())
    assert done.stdout.splitlines()[1].startswith('"standard input","ranking-evaluate","","NDCG@5","0.')


def test_what_is_no_response_is_exit_code_2_and_nothing_is_written(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", "-", "-o", str(page)], input=b"{}")
    assert done.exit_code == 2
    assert done.stderr == "standard input: This is not a response.\n"
    assert not page.exists()


def test_a_place_that_cannot_be_written_is_one_clear_line(response: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(response), "-o", str(tmp_path / "none" / "report.html")])
    assert done.exit_code == 2
    assert "No such file or directory" in done.stderr
