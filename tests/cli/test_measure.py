"""`measure`: one table, an account on standard error, files on request, and exit codes that a CI can rely on."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ranking_evaluate
from ranking_evaluate import measure
from ranking_evaluate.cli import app
from tests.measure.files import written

QRELS = "q1 0 a 1\nq1 0 b 0\nq1 0 c 2\nq2 0 a 1\nq3 0 x 1\n"
OLD = "q1 Q0 b 1 3 old\nq1 Q0 a 2 2 old\nq2 Q0 a 1 9 old\n"
NEW = "q1 Q0 c 1 3 new\nq1 Q0 a 2 2 new\nq2 Q0 z 1 9 new\nq9 Q0 z 1 9 new\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {"qrels": QRELS, "old.run": OLD, "new.run": NEW}
    return {name.split(".")[0]: written(tmp_path, name, content) for name, content in contents.items()}


def run(*arguments: str, **options: Any) -> Any:
    return CliRunner().invoke(app, ["measure", *arguments], **options)


def test_a_run_is_a_row_for_each_cutoff_and_an_account(files: dict[str, str]) -> None:
    done = run("--qrels", files["qrels"], files["new"], "-k", "1", "-k", "2")

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "run      k       P  recall      RR      AP    NDCG  success  judged  topics",
        "new.run  1  0.3333  0.1667  0.3333  0.1667  0.3333   0.3333  0.5000       3",
        "new.run  2  0.3333  0.3333  0.3333  0.3333  0.3333   0.3333  0.5000       3",
        "judged: over 2 of 3 topics",
    ]
    assert done.stderr.splitlines() == [
        "The run ranks nothing for 1 topic (q3); each counts with an empty ranking, as in trec_eval -c.",
        "Left out, because no judgment is of 1 topic (q9) of the run.",
    ]


def test_two_runs_are_compared_and_the_best_figures_marked(files: dict[str, str]) -> None:
    done = run("--qrels", files["qrels"], files["old"], files["new"])
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.startswith(("old", "new"))}

    assert "Against old.run, by topic:" in done.stdout
    # RR: q1 falls from 1/2 to 1, q2 from 1 to 0.
    assert ["new.run", "10", "RR", "-0.1667", "1", "1", "1", "1.0000", "1.0000", "randomization"] in [
        line.split() for line in done.stdout.splitlines()
    ]
    assert rows["old.run"][4] == "0.5000*"


@pytest.mark.parametrize("runs", [["old", "new"], ["new", "old"]])
def test_the_baseline_can_be_named_whether_it_is_among_the_runs_or_not(files: dict[str, str], runs: list[str]) -> None:
    named = run("--qrels", files["qrels"], *(files[one] for one in runs), "--baseline", files["old"])
    added = run("--qrels", files["qrels"], files["new"], "--baseline", files["old"])

    for done in (named, added):
        assert done.exit_code == 0
        assert "Against old.run, by topic:" in done.stdout
        assert "new.run  10       RR     -0.1667" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--fail-under", "rr@10=0.3"], 0, "holds: new.run: RR@10 must be at least 0.3: it is 0.3333"),
        (["--fail-under", "rr@10=0.4"], 1, "FAILS: new.run: RR@10 must be at least 0.4: it is 0.3333"),
        (["--max-drop", "rr@10=0.2"], 0, "holds: new.run: RR@10 may drop by at most 0.2: it drops by 0.1667"),
        (["--max-drop", "rr@10=0.1"], 1, "FAILS: new.run: RR@10 may drop by at most 0.1: it drops by 0.1667"),
        (["--fail-under", "rr@10=0.3", "--max-drop", "rr@10=0.1"], 1, "    q2: 1.0000 to 0.0000 (-1.0000)"),
        (["--fail-under", "ndcg@3=0.1"], 0, "holds: new.run: NDCG@3 must be at least 0.1: it is 0.3333"),
    ],
)
def test_the_gate_decides_the_exit_code(files: dict[str, str], options: list[str], code: int, line: str) -> None:
    done = run("--qrels", files["qrels"], files["old"], files["new"], *options)

    assert done.exit_code == code
    assert line in done.stdout.splitlines()


def test_json_holds_everything_and_is_what_the_function_returns(files: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "all.json"
    run("--qrels", files["qrels"], files["old"], files["new"], "-k", "1", "-k", "5", "--json", str(target))
    document = json.loads(target.read_bytes())
    result = measure(files["qrels"], files["new"], k=[1, 5])

    assert list(document) == ["release", "conventions", "files", "runs", "comparisons"]
    assert document["release"] == ranking_evaluate.__version__
    assert document["files"][2] == {
        "path": files["new"],
        "sha256": hashlib.sha256(Path(files["new"]).read_bytes()).hexdigest(),
    }
    new = document["runs"][1]
    assert new["run"] == "new.run"
    assert new["means"] == {str(k): found._asdict() for k, found in result.means.items()}
    assert new["counts"] == {str(k): found._asdict() for k, found in result.counts.items()}
    assert new["queries"] == {
        topic: {str(k): found._asdict() for k, found in of.items()} for topic, of in result.queries.items()
    }
    [compared] = document["comparisons"]
    found = compared["figures"]["5"]["rr"]
    assert (found["wins"], found["ties"], found["losses"], found["isSame"]) == (1, 1, 1, False)
    assert found["tests"]["sign"] == {"p": 1, "holm": 1, "method": "exact"}


def test_json_on_standard_output_is_alone_there(files: dict[str, str]) -> None:
    done = run("--qrels", files["qrels"], files["new"], "--json", "-", "--fail-under", "rr@10=0.9")

    assert done.exit_code == 1
    assert json.loads(done.stdout)["runs"][0]["run"] == "new.run"
    assert "FAILS: new.run" in done.stderr


def test_the_file_of_topics_has_a_row_for_each_figure(files: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "topics.csv"
    run("--qrels", files["qrels"], files["old"], files["new"], "--per-query", str(target))
    rows = list(csv.DictReader(target.read_text(encoding="utf-8").splitlines()))

    assert len(rows) == 2 * 3 * 7
    assert rows[2] == {"run": "old.run", "topic": "q1", "k": "10", "figure": "rr", "value": "0.5"}
    # Nothing was retrieved, so the share of judged documents is undefined.
    assert rows[-1] == {"run": "new.run", "topic": "q3", "k": "10", "figure": "judged", "value": ""}


@pytest.mark.parametrize(("name", "start"), [("r.html", "<!doctype html>"), ("r.md", "## Whole collection")])
def test_a_report_is_written_in_the_form_of_its_name(
    files: dict[str, str], tmp_path: Path, name: str, start: str
) -> None:
    done = run(
        "--qrels",
        files["qrels"],
        files["old"],
        files["new"],
        "--report",
        str(tmp_path / name),
        "--max-drop",
        "rr@10=0.1",
    )
    text = (tmp_path / name).read_text(encoding="utf-8")

    assert done.exit_code == 1
    assert text.startswith(start)
    assert "0.3333" in text
    assert "FAILS" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{new}", "--fail-under", "map@10=0.5"], "is not of the form FIGURE@K=X"),
        (["{new}", "--max-drop", "rr@10=0.5"], "--max-drop needs a baseline"),
        (["{new}", "{new}"], "is given twice"),
        (["{new}", "--baseline", "{new}"], "there is nothing to hold against the baseline"),
        (["{new}", "--report", "r.pdf"], "--report writes .html or .md, and r.pdf ends in neither"),
        (["{new}", "--relevant-at-least", "0"], "relevant_at_least is a number above 0"),
        (["{new}", "--like", "trec_eval", "--gain", "exponential"], "trec_eval knows linear gain alone"),
        (["{new}", "--json", "/nowhere/all.json"], "/nowhere/all.json: No such file or directory"),
        (["no-such-run"], "no-such-run: No such file or directory"),
        (["-", "-"], "standard input can be one file only"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(
    files: dict[str, str], arguments: list[str], complaint: str
) -> None:
    done = run("--qrels", files["qrels"], *(one.format(**files) for one in arguments))

    assert done.exit_code == 2
    assert complaint in done.stderr


@pytest.mark.parametrize("option", ["--json", "--per-query", "--report"])
def test_what_is_read_is_never_written_over(files: dict[str, str], tmp_path: Path, option: str) -> None:
    copies = {name: tmp_path / f"{name}.md" for name in files}
    for name, copy in copies.items():
        copy.write_bytes(Path(files[name]).read_bytes())
    arguments = ["--qrels", str(copies["qrels"]), str(copies["old"]), str(copies["new"])]
    for output in (*copies.values(), tmp_path / "folder" / ".." / "old.md"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        done = run(*arguments, option, str(output))
        assert (done.exit_code, "would be written over" in done.stderr) == (2, True)
    assert [copy.read_text() for copy in copies.values()] == [QRELS, OLD, NEW]


def test_two_outputs_have_two_files(files: dict[str, str], tmp_path: Path) -> None:
    out = str(tmp_path / "out.md")
    done = run("--qrels", files["qrels"], files["old"], "--json", out, "--report", out)
    assert (done.exit_code, "would be written over" in done.stderr, Path(out).exists()) == (2, True, False)
    done = run("--qrels", files["qrels"], files["old"], "--per-query", "-")
    assert (done.exit_code, "--per-query writes a file" in done.stderr) == (2, True)


def test_a_fault_in_a_file_leaves_nothing_written(files: dict[str, str], tmp_path: Path) -> None:
    broken = written(tmp_path, "broken", NEW + "q2 Q0 y 1 nan new\nq2 Q0\n")
    done = run("--qrels", files["qrels"], files["new"], broken, "--json", str(tmp_path / "all.json"))

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"{broken}, line 5: the score nan is not a number",
        f"{broken}, line 6: a ranked document has the six columns topic, Q0, document, rank, score, tag; this has 2",
    ]
    assert not (tmp_path / "all.json").exists()


def test_standard_input_is_read_and_read_again_where_topics_are_scattered(files: dict[str, str]) -> None:
    scattered = "q1 Q0 a 2 2 t\nq2 Q0 z 1 9 t\nq1 Q0 c 1 3 t\n"
    done = run("--qrels", files["qrels"], "-", "-k", "2", input=scattered.encode())

    assert "standard input  2  0.3333" in done.stdout
    assert "Gathered from several places of the run: 1 topic (q1)." in done.stderr


@pytest.mark.parametrize(
    ("qrels", "run_file", "options", "remark"),
    [
        (
            "q 0 a 1\nr 0 b 0\n",
            "q Q0 a 1 9 t\n",
            [],
            (
                "Not as in trec_eval -c: recall, RR, AP and NDCG of 1 topic with no relevant judgment are undefined "
                "and left out of the mean, where trec_eval counts 0."
            ),
        ),
        (
            "q 0 a 1.5\nq 0 b 1\n",
            "q Q0 a 1 9 t\n",
            [],
            "Not as in trec_eval: 1 fractional grade kept, which NDCG depends on; trec_eval cuts them to integers.",
        ),
        ("q 0 a 1.5\nq 0 b 1\n", "q Q0 a 1 9 t\n", ["--like", "trec_eval"], "1 fractional grade cut to integers, as"),
        ("q 0 a 1\n", "q Q0 a 1 9 t\n", ["--gain", "exponential"], "Not as in trec_eval: NDCG has exponential gain"),
        (
            "q 0 a 1\n",
            "q Q0 a 1 0.1 t\nq Q0 b 2 0.2 t\n",
            [],
            "The ranks contradict the scores in 1 of 1 topics: are these distances, where less is better?",
        ),
        ("q 0 a 1\n" + "".join(f"q{n} 0 a 1\n" for n in range(12)), "q Q0 a 1 9 t\n", [], "q9, ...); each counts with"),
    ],
)
def test_what_a_reader_should_know_is_one_line_each(
    tmp_path: Path, qrels: str, run_file: str, options: list[str], remark: str
) -> None:
    done = run("--qrels", written(tmp_path, "q", qrels), written(tmp_path, "r", run_file), *options)

    assert done.exit_code == 0
    assert any(remark in line for line in done.stderr.splitlines())
    assert "\n".join(done.stderr.splitlines()).count(remark) == 1


def test_a_run_like_trec_evals_and_without_surprises_says_nothing(tmp_path: Path) -> None:
    done = run("--qrels", written(tmp_path, "q", "q 0 a 1\n"), written(tmp_path, "r", "q Q0 a 1 9 t\n"))

    assert (done.exit_code, done.stderr) == (0, "")


def test_the_command_loads_neither_the_operations_nor_rich(files: dict[str, str]) -> None:
    # The first table of a small file should be there at once.
    program = (
        "import sys; from ranking_evaluate.cli import app\ntry: app()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "measure", "--qrels", files["qrels"], files["new"]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"})

    loaded = set(done.stderr.split())
    assert not {"ranking_evaluate.operations", "orjson", "numpy", "rich", "jinja2", "concurrent.futures"} & loaded


def test_a_report_s_star_says_what_it_means_and_no_difference_is_called_clear_that_is_not(
    files: dict[str, str], tmp_path: Path
) -> None:
    page = tmp_path / "report.md"
    done = run("--qrels", files["qrels"], files["old"], files["new"], "--report", str(page))
    assert done.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "The best of these runs." in text
    # By hand: of three topics a sign-flipping test attains 1/4 at the least.
    assert "no difference is clear at 0.05" in text
    assert "chance alone would hardly" not in text


def test_a_report_shows_figures_that_json_spells_in_a_form_of_its_own(tmp_path: Path) -> None:
    topics = range(40)
    qrels = written(tmp_path, "qrels", "".join(f"t{topic} 0 a 1\nt{topic} 0 b 0\n" for topic in topics))
    old = written(tmp_path, "old.run", "".join(f"t{topic} Q0 b 1 2 x\nt{topic} Q0 a 2 1 x\n" for topic in topics))
    new = written(tmp_path, "new.run", "".join(f"t{topic} Q0 a 1 2 x\nt{topic} Q0 b 2 1 x\n" for topic in topics))
    page, document = tmp_path / "report.md", tmp_path / "all.json"

    done = run("--qrels", qrels, old, new, "--report", str(page), "--json", str(document))

    assert done.exit_code == 0
    # None of 100,000 draws is as extreme, so p = 1 / 100,001; six comparisons of which three differ: times 3.
    test = json.loads(document.read_bytes())["comparisons"][0]["figures"]["10"]["ndcg"]["tests"]["randomization"]
    assert (test["p"], test["holm"]) == (1 / 100_001, 3 / 100_001)
    assert b'"p":0.00000999990000099999' in document.read_bytes()
    assert "| 1e-05 | 3e-05 * | randomization |" in page.read_text(encoding="utf-8")
