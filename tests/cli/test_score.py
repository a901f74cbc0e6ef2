"""`score`: the very bytes of the answer, problems for what is refused, and lines that keep their places."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from ranking_evaluate import evaluate
from ranking_evaluate.cli import app
from ranking_evaluate.cli import score as module
from tests.oracles.answer_keys import CONTRACT

INPUT = json.dumps(CONTRACT["exampleInput"]).encode()
ANSWER = evaluate("ranking-evaluate", INPUT)
COMMAND = (sys.executable, "-c", "from ranking_evaluate.cli import app; app()")


def test_the_output_is_the_answer_byte_for_byte_and_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_bytes(INPUT)
    done = subprocess.run([*COMMAND, "score", str(file)], capture_output=True, check=True)

    assert done.stdout == ANSWER
    assert done.stderr == b""
    assert json.loads(done.stdout) == CONTRACT["exampleResponse"]


def test_standard_input_is_read_and_the_operation_can_be_named() -> None:
    done = CliRunner().invoke(app, ["score", "-", "--operation", "ranking-evaluate"], input=INPUT)

    assert done.exit_code == 0
    assert done.stdout_bytes == ANSWER


def test_a_named_refusal_has_the_answer_keys_own_form_and_speaks_of_no_payment() -> None:
    done = CliRunner().invoke(
        app, ["score", "-", "--operation", "first-usable-rank"], input=b'{"queries": [{"hits": []}]}'
    )
    said = json.loads(done.stderr)
    assert (done.exit_code, said["code"], said["error"]) == (2, "usable-labels", "usable-labels")
    assert "Key" not in said["nextStep"]
    assert "charged" not in said["nextStep"]


def test_a_refused_input_is_exit_code_2_and_the_services_problem_on_standard_error() -> None:
    done = CliRunner().invoke(app, ["score", "-"], input=b'{"queries": []}')

    assert done.exit_code == 2
    assert done.stdout_bytes == b""
    problem = json.loads(done.stderr)
    assert (problem["status"], problem["code"], problem["pointer"]) == (422, "INVALID_INPUT", "/queries")
    assert {"type", "title", "detail", "retryable", "nextStep"} <= problem.keys()
    assert "requestId" not in problem


def test_an_input_of_any_length_is_refused_without_being_read_whole() -> None:
    done = CliRunner().invoke(app, ["score", "-"], input=b" " * 1_000_000)

    assert (done.exit_code, json.loads(done.stderr)["code"]) == (2, "INPUT_LIMIT")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["score", "no-such-file"], "No such file"),
        (["score", "-", "--operation", "other"], "no operation is called 'other'"),
        (["scor"], "Did you mean 'score'?"),
    ],
)
def test_a_mistake_in_the_command_line_is_one_clear_message(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_every_line_gets_its_answer_or_its_problem_in_its_place() -> None:
    too_long = b'{"queries": "' + 400_000 * b"x" + b'"}'
    done = CliRunner().invoke(app, ["score", "--lines", "-"], input=b"\n".join([INPUT, b"{", b"", too_long, INPUT]))

    first, broken, blank, long, last, end = done.stdout_bytes.split(b"\n")
    assert (first, last, end) == (ANSWER, ANSWER, b"")
    assert [json.loads(line)["code"] for line in (broken, blank, long)] == [
        "MALFORMED_JSON",
        "MALFORMED_JSON",
        "INPUT_LIMIT",
    ]
    assert done.exit_code == 2
    assert done.stderr == "Refused: 3 of 5 inputs, the first in line 2. Each problem is in its own line.\n"


def test_lines_that_are_all_scored_are_exit_code_0() -> None:
    done = CliRunner().invoke(app, ["score", "--lines", "-"], input=INPUT + b"\r\n" + INPUT + b"\n")

    assert (done.exit_code, done.stdout_bytes, done.stderr) == (0, 2 * (ANSWER + b"\n"), "")


def test_a_line_is_answered_before_the_next_one_is_sent() -> None:
    with subprocess.Popen(
        [*COMMAND, "score", "--lines", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for _ in range(2):
            running.stdin.write(INPUT + b"\n")
            running.stdin.flush()
            assert running.stdout.readline() == ANSWER + b"\n"
        running.stdin.close()
        assert running.wait(timeout=20) == 0


@pytest.fixture
def every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Score all lines but the first batch in worker processes."""
    monkeypatch.setattr(module, "SECONDS_ALONE", 0.0)
    monkeypatch.setattr(module, "BATCH_BYTES", 3 * len(INPUT))


@pytest.mark.beyond_unit
def test_on_every_core_each_line_keeps_its_place_and_its_bytes(every_core: None, tmp_path: Path) -> None:
    distinct = [INPUT.replace(b"q1", f"query {number}".encode()) for number in range(100)]
    distinct[10] = b"{"
    distinct[50] = b" " * 400_000
    file = tmp_path / "many.jsonl"
    file.write_bytes(b"\n".join(distinct))
    done = CliRunner().invoke(app, ["score", "--lines", str(file)])

    expected = [evaluate("ranking-evaluate", one) if n not in (10, 50) else b"" for n, one in enumerate(distinct)]
    lines = done.stdout_bytes.split(b"\n")
    assert len(lines) == 101
    assert [line for n, line in enumerate(lines) if n not in (10, 50)] == [*filter(None, expected), b""]
    assert [json.loads(lines[n])["code"] for n in (10, 50)] == ["MALFORMED_JSON", "INPUT_LIMIT"]
    assert done.stderr == "Refused: 2 of 100 inputs, the first in line 11. Each problem is in its own line.\n"


ON_EVERY_CORE: Final = (
    sys.executable,
    "-c",
    "from ranking_evaluate.cli import app, score; score.SECONDS_ALONE = 0.0; app()",
)


@pytest.mark.beyond_unit
def test_on_every_core_a_line_is_answered_before_the_next_one_is_sent() -> None:
    with subprocess.Popen(
        [*ON_EVERY_CORE, "score", "--lines", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for _ in range(4):
            running.stdin.write(INPUT + b"\n")
            running.stdin.flush()
            assert running.stdout.readline() == ANSWER + b"\n"
        running.stdin.close()
        assert running.wait(timeout=20) == 0


@pytest.mark.beyond_unit
def test_on_every_core_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_bytes(5000 * (INPUT + b"\n"))
    with subprocess.Popen(
        [*ON_EVERY_CORE, "score", "--lines", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(timeout=20) != 0


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_bytes(2000 * (INPUT + b"\n"))
    with subprocess.Popen(
        [*COMMAND, "score", "--lines", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""


def test_scoring_imports_nothing_that_only_paying_and_serving_need(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_bytes(INPUT)
    script = (
        "import sys\n"
        "from ranking_evaluate.cli import app\n"
        f"app(['score', {str(file)!r}], standalone_mode=False)\n"
        "heavy = {'fastapi', 'httpx', 'limits', 'mpp', 'rich', 'starlette', 'uvicorn', 'web3', 'x402'}\n"
        "sys.exit(' '.join(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert (done.stdout, done.stderr.strip()) == (ANSWER, b"")
