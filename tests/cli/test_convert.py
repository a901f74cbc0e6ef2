"""`convert` and `merge`: inputs on standard output, an account of every topic on standard error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranking_evaluate import evaluate
from ranking_evaluate.cli import app

QRELS = "1 0 a 1\n1 0 b -1\n2 0 a 0\n3 0 a 2\n" + "".join(f"big 0 d{number} 1\n" for number in range(101))
RUN = "1 Q0 b 1 2.0 t\n1 Q0 a 2 1.0 t\n2 Q0 a 1 1.0 t\nelse Q0 a 1 1.0 t\nbig Q0 d0 1 1.0 t\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "run").write_text(RUN)
    return ["--qrels", str(tmp_path / "qrels"), "--run", str(tmp_path / "run")]


def test_a_topic_that_cannot_fit_stops_before_anything_is_written(files: list[str]) -> None:
    done = CliRunner().invoke(app, ["convert", *files])

    assert (done.exit_code, done.stdout) == (2, "")
    assert "big: its figures depend on 101 judgments, 101 of them relevant, and a query may have 100" in done.stderr
    assert "Nothing was written." in done.stderr


def test_with_allow_omitted_the_rest_is_written_and_every_topic_is_accounted_for(files: list[str]) -> None:
    done = CliRunner().invoke(app, ["convert", *files, "--allow-omitted", "--k", "2"])

    assert done.exit_code == 0
    line, trailer = done.stdout.splitlines()
    assert json.loads(trailer) == {
        "omitted": [
            {
                "id": "big",
                "reason": "its figures depend on 101 judgments, 101 of them relevant, and a query may have 100",
            }
        ]
    }
    assert json.loads(line) == {
        "k": 2,
        "unjudged": "nonrelevant",
        "queries": [
            {"id": "1", "retrieved": ["b", "a"], "judgments": [{"id": "a", "grade": 1}, {"id": "b", "grade": 0}]},
            {"id": "2", "retrieved": ["a"], "judgments": [{"id": "a", "grade": 0}]},
            {"id": "3", "retrieved": [], "judgments": [{"id": "a", "grade": 2}]},
        ],
    }
    assert done.stderr.splitlines() == [
        "4 judged topics: 3 in 1 input, 1 that cannot fit.",
        "Cannot fit:",
        "  big: its figures depend on 101 judgments, 101 of them relevant, and a query may have 100",
        "The run ranks nothing, so nothing is retrieved: 1 topic (3).",
        (
            "No grade above 0, so recall, reciprocal rank, average precision and NDCG are undefined and not averaged, "
            "where trec_eval counts 0: 1 topic (2)."
        ),
        "In the run without judgments, so left out, as trec_eval does: 1 topic (else).",
        "1 negative grade became 0.",
    ]


def test_a_broken_file_is_named_with_its_line(files: list[str]) -> None:
    done = CliRunner().invoke(app, ["convert", *files[:2], "--run", "-"], input=b"1 Q0 a 1 high t\n")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "standard input, line 1: the score high is not a number\n"


def test_files_that_do_not_belong_together_are_suspected(files: list[str]) -> None:
    done = CliRunner().invoke(app, ["convert", *files[:2], "--run", "-", "--allow-omitted"], input=b"x Q0 a 1 1 t\n")

    assert (done.exit_code, done.stdout) == (2, "")
    assert "no topic is in both files, so they do not belong together" in done.stderr


def test_an_empty_qrels_file_leaves_nothing_to_write(files: list[str]) -> None:
    done = CliRunner().invoke(app, ["convert", "--qrels", "-", *files[2:]], input=b"")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "standard input: there is no judgment in it\n"


def test_beir_files_give_the_same_inputs_as_trec_files(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 0 a 1\n1 0 b 0\n")
    (tmp_path / "run").write_text("1 Q0 b 1 2.0 t\n1 Q0 a 2 1.0 t\n")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t0\n")
    (tmp_path / "run.json").write_text('{"1": {"b": 2.0, "a": 1.0}}')

    outputs = {
        CliRunner().invoke(app, ["convert", "--qrels", str(tmp_path / qrels), "--run", str(tmp_path / run)]).stdout
        for qrels in ("qrels", "qrels.tsv")
        for run in ("run", "run.json")
    }

    assert len(outputs) == 1


def test_convert_score_and_merge_make_one_mean(files: list[str]) -> None:
    runner = CliRunner()
    inputs = runner.invoke(app, ["convert", *files, "--allow-omitted"]).stdout_bytes
    answers = runner.invoke(app, ["score", "--lines", "-"], input=inputs).stdout_bytes
    merged = runner.invoke(app, ["merge", "-"], input=answers)

    assert merged.exit_code == 0
    line, trailer = inputs.splitlines()
    answer = evaluate("ranking-evaluate", line)
    assert answers.splitlines() == [answer, trailer]
    result = json.loads(answer)["result"]
    document = json.loads(merged.stdout)
    assert {name: document[name] for name in ("queryCount", "macro", "definedQueryCounts")} == {
        name: result[name] for name in ("queryCount", "macro", "definedQueryCounts")
    }
    assert document["omitted"] == json.loads(trailer)["omitted"]


def test_a_refused_line_is_not_merged_over() -> None:
    answers = CliRunner().invoke(app, ["score", "--lines", "-"], input=b"{}\n").stdout_bytes
    done = CliRunner().invoke(app, ["merge", "-"], input=answers)

    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        done.stderr == "standard input, line 1: this input was refused (INVALID_INPUT); its queries would be missing\n"
    )
