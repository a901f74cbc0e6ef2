"""BEIR files: tables and JSON, how they are told from TREC files, and what is refused."""

from __future__ import annotations

import pytest

from ranking_evaluate.interchange.files import Format, load_qrels, load_run
from ranking_evaluate.interchange.rows import FileError

HEADER = b"query-id\tcorpus-id\tscore\n"


def test_a_table_is_known_by_its_header_and_its_ids_may_hold_spaces() -> None:
    lines = [HEADER, b"query one\tdoc a\t2\n", b"query one\tdoc b\t0\r\n"]

    assert load_qrels("f", lines) == {"query one": {"doc a": 2, "doc b": 0}}


def test_a_json_run_is_known_by_its_brace() -> None:
    lines = [b'{"q1": {"a": 1.5,\n', b'"b": -2e-3}, "q2": {}}\n']

    assert load_run("f", lines) == {"q1": {"a": 1.5, "b": -0.002}}


def test_a_table_is_also_accepted_as_a_run() -> None:
    assert load_run("f", [HEADER, b"q\td\t0.25\n"]) == {"q": {"d": 0.25}}


def test_a_topic_that_looks_like_json_is_read_as_trec_when_told_so() -> None:
    assert load_qrels("f", [b"{1 0 a 1\n"], Format.TREC) == {"{1": {"a": 1}}


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([b"q\td\t1\n"], "line 1: a BEIR table starts with the header query-id, corpus-id, score, with tabs between"),
        (
            [HEADER, b"q d 1\n"],
            "line 2: a row has the three columns query-id, corpus-id, score with tabs between; this has 1",
        ),
        ([HEADER, b"\td\t1\n"], "line 2: the topic id is empty"),
        ([HEADER, b"q\t\t1\n"], "line 2: the document id is empty"),
        ([HEADER, b"q\td\t\n"], "line 2: the score  is not a number"),
        ([b'{"q":\n', b'{"d": 1,}}'], "line 2: this is not JSON (Illegal trailing comma before end of object)"),
        ([b'{"q": {"d": 1, "d": 2}}'], "query q, document d: document d is ranked a second time for topic q"),
        ([b'{"q": {}, "q": {}}'], "query q: this query is named twice"),
        ([b'{"q": [1]}'], "query q: its value is not an object of the form {document: score}"),
        ([b'{"q": {"d": null}}'], "query q, document d: its value is not a number"),
        ([b'{"q": {"d": NaN}}'], "query q, document d: the score NaN is not a number"),
        ([b'{"q": {"": 1}}'], "query q, document : the document id is empty"),
        ([b'{"q": {"\\ud800": 1}}'], "query or document '\\ud800': this id is not Unicode text"),
        ([b'{"q": ' + 100_000 * b"["], "the file: this JSON is nested too deeply"),
    ],
)
def test_an_unusable_run_is_refused_with_its_place(lines: list[bytes], complaint: str) -> None:
    with pytest.raises(FileError) as refusal:
        load_run("run", lines, Format.BEIR)

    assert str(refusal.value).startswith(f"run, {complaint.split(' (')[0]}")
