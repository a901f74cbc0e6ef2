"""`verify`: a response holds, or every place where it differs is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ranking_evaluate import OperationError, evaluate
from ranking_evaluate.cli import app
from ranking_evaluate.contract.verify import Unusable, verify
from tests.oracles.answer_keys import CONTRACT

INPUT = json.dumps(CONTRACT["exampleInput"]).encode()
ANSWER = evaluate("ranking-evaluate", INPUT)


def differences(response: bytes, body: bytes = INPUT) -> list[tuple[str, str]]:
    return [(found.pointer, found.text) for found in verify(response, body).differences]


def swap(old: str, new: str) -> bytes:
    assert ANSWER.count(old.encode()) == 1
    return ANSWER.replace(old.encode(), new.encode())


def test_the_contracts_own_response_holds() -> None:
    found = verify(ANSWER, INPUT)

    assert found.differences == ()
    provenance = CONTRACT["exampleResponse"]["provenance"]
    assert (found.input_sha256, found.output_sha256) == (provenance["inputSha256"], provenance["outputSha256"])


def test_white_space_around_the_response_and_a_reformatted_input_do_not_matter() -> None:
    assert differences(b"\n " + ANSWER + b"\r\n", json.dumps(json.loads(INPUT), indent=3).encode()) == []


def test_a_forged_figure_is_named_and_breaks_the_stated_digest() -> None:
    figure, seal = differences(swap('"hitsAtK":2', '"hitsAtK":3'))

    assert figure == ("/result/queries/0/hitsAtK", "is 3, expected 2")
    assert seal[0] == "/result"
    assert seal[1].startswith("has the SHA-256 ")


def test_another_input_shows_in_the_input_digest() -> None:
    other = INPUT.replace(b'"k": 3', b'"k": 2')
    found = dict(differences(ANSWER, other))

    assert found["/provenance/inputSha256"].startswith(
        f'is "{CONTRACT["exampleResponse"]["provenance"]["inputSha256"]}", expected'
    )
    assert found["/result/k"] == "is 3, expected 2"
    assert found["/result/queries/0/ranking"] == "holds 3 values, expected 2"


def test_another_release_is_named() -> None:
    assert differences(swap('"version":"0.29.0"', '"version":"0.28.0"')) == [
        ("/version", 'is "0.28.0", expected "0.29.0"')
    ]


def test_the_spelling_of_a_number_counts() -> None:
    figure, seal = differences(swap('"hitsAtK":2', '"hitsAtK":2.0'))

    assert figure == ("/result/queries/0/hitsAtK", "is the right number, but spelled 2.0, expected 2")
    assert seal[0] == "/result"


def test_the_order_of_members_counts() -> None:
    (order, *seal) = differences(swap('"k":3,"queryCount":1', '"queryCount":1,"k":3'))

    assert order[0] == "/result"
    assert order[1].startswith("has its members in the order profile, queryCount, k, ")
    assert len(seal) == 1


def test_missing_and_added_members_are_named() -> None:
    found = dict(differences(swap('"externalRequests":0', '"more":[1]')))

    assert found["/provenance/externalRequests"] == "is missing, expected 0"
    assert found["/provenance/more"] == "is a list of 1, expected no such member"


def test_white_space_within_the_envelope_is_found_where_it_begins() -> None:
    assert differences(swap('{"operation"', '{ "operation"')) == [
        ("", "has the right values, but other white space or string escapes, first at byte 1")
    ]


def test_a_pretty_printed_response_has_all_values_and_no_longer_the_stated_bytes() -> None:
    ((pointer, text),) = differences(json.dumps(json.loads(ANSWER), indent=1).encode())

    assert pointer == "/result"
    assert "as given, the response states" in text


def test_a_strange_name_is_safe_to_print() -> None:
    found = dict(differences(swap('"externalRequests":0', '"externalRequests":0,"\\u001b[2J\\ud800":"\\u0007"')))

    assert found["/provenance/\\x1b[2J\\ud800"] == 'is "\\u0007", expected no such member'


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b'{"a":NaN}', "it is not JSON"),
        (100_000 * b"[", "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"{}", "This is not a response."),
        (b'{"operation":"ranking-evaluate"}', "This is not a response."),
        (b'{"operation":"ranking-evaluate","operation":"x","result":1}', "names a member twice"),
        (b'{"status":422,"code":"INVALID_INPUT"}', "a problem: the input was refused"),
        (b'{"operation":"other","result":{}}', "not known here; there are: ranking-evaluate"),
    ],
)
def test_what_is_no_response_is_unusable(response: bytes, complaint: str) -> None:
    with pytest.raises(Unusable, match=complaint):
        verify(response, INPUT)


def test_a_refused_input_leaves_nothing_to_compare() -> None:
    with pytest.raises(OperationError):
        verify(ANSWER, b"{}")


@given(st.data())
def test_no_changed_byte_goes_unnoticed(data: Any) -> None:
    at = data.draw(st.integers(0, len(ANSWER) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != ANSWER[at]))
    changed = ANSWER[:at] + bytes([byte]) + ANSWER[at + 1 :]
    try:
        assert differences(changed) != []
    except Unusable:
        return


@pytest.mark.parametrize(
    ("response", "body", "code", "expected"),
    [
        (ANSWER, INPUT, 0, "The response holds: ranking-evaluate 0.29.0, byte for byte."),
        (swap('"k":3', '"k":4'), INPUT, 1, "  /result/k is 4, expected 3\n"),
        (b"{}", INPUT, 2, "This is not a response."),
        (ANSWER, b"{}", 2, '"code": "INVALID_INPUT"'),
    ],
)
def test_the_exit_code_tells_right_from_wrong_from_unusable(
    tmp_path: Path, response: bytes, body: bytes, code: int, expected: str
) -> None:
    (tmp_path / "response").write_bytes(response)
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "response"), "--input", "-"], input=body)

    assert done.exit_code == code
    assert expected in (done.stderr if code == 2 else done.stdout)


# Line by line.

TRAILER = b'{"omitted":[{"id":"big","reason":"too many judgments"}]}'


def verify_lines(tmp_path: Path, responses: list[bytes], inputs: list[bytes], *options: str) -> Any:
    for name, lines in (("responses", responses), ("inputs", inputs)):
        (tmp_path / name).write_bytes(b"\n".join(lines) + b"\n")
    arguments = [str(tmp_path / "responses"), "--input", str(tmp_path / "inputs"), *options]
    return CliRunner().invoke(app, ["verify", *arguments])


@pytest.mark.parametrize("options", [[], ["--lines"]])
def test_responses_of_lines_are_verified_line_by_line(tmp_path: Path, options: list[str]) -> None:
    done = verify_lines(tmp_path, [ANSWER, ANSWER, TRAILER], [INPUT, INPUT, TRAILER], *options)

    assert (done.exit_code, done.stdout) == (0, "2 of 2 responses hold, byte for byte.\n")


def test_a_line_that_differs_is_named_with_its_place(tmp_path: Path) -> None:
    done = verify_lines(tmp_path, [ANSWER, swap('"hitsAtK":2', '"hitsAtK":3')], [INPUT, INPUT])

    assert done.exit_code == 1
    assert "line 2: /result/queries/0/hitsAtK is 3, expected 2" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "1 of 2 responses holds, byte for byte."


def test_a_line_that_is_no_response_and_an_input_that_is_refused_are_exit_code_2(tmp_path: Path) -> None:
    done = verify_lines(tmp_path, [ANSWER, b"[]", ANSWER], [INPUT, INPUT, b"{}"])

    assert done.exit_code == 2
    told = done.stderr.splitlines()
    assert told[0].startswith("line 2: This is not a response")
    assert told[1].startswith("line 3: the input is refused (INVALID_INPUT)")


def test_other_numbers_of_lines_cannot_be_compared(tmp_path: Path) -> None:
    done = verify_lines(tmp_path, [ANSWER, ANSWER], [INPUT])

    assert (done.exit_code, done.stderr) == (2, "There are 2 responses and 1 input: line n answers line n.\n")
