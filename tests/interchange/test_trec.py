"""TREC files: what is read, and what is refused with its line."""

from __future__ import annotations

import pytest

from ranking_evaluate.interchange.files import Format, load_qrels, load_run
from ranking_evaluate.interchange.rows import FileError


def test_a_qrels_file_gives_grades_in_its_order() -> None:
    qrels = load_qrels("f", [b"301 0 b 1\n", b"302 0 x 2\n", b"\n", b"301\t0   a  -1\r\n"])

    assert {topic: list(grades.items()) for topic, grades in qrels.items()} == {
        "301": [("b", 1), ("a", -1)],
        "302": [("x", 2)],
    }


def test_a_run_gives_scores_and_ignores_rank_and_everything_after_the_tag() -> None:
    run = load_run("f", [b"1 Q0 a 9 2.5 tag\n", b"1 Q0 b zz 1e1 tag and more\n", b"1 Q0 c 1 -inf tag"])

    assert run == {"1": {"a": 2.5, "b": 10.0, "c": float("-inf")}}


def test_integral_grades_are_integers_and_others_stay() -> None:
    grades = load_qrels("f", [b"1 0 a 1.0\n", b"1 0 b 0.5\n", b"1 0 c 1e1\n"])["1"]

    assert [(type(grade), grade) for grade in grades.values()] == [(int, 1), (float, 0.5), (int, 10)]


def test_a_byte_order_mark_is_no_part_of_the_first_topic() -> None:
    assert load_qrels("f", [b"\xef\xbb\xbf1 0 a 1\n"]) == {"1": {"a": 1}}


def test_only_ascii_white_space_separates_columns() -> None:
    assert load_qrels("f", ["1 0 a\u00a0b 1\n".encode()]) == {"1": {"a\u00a0b": 1}}


def test_the_same_judgment_twice_counts_once() -> None:
    assert load_qrels("f", [b"1 0 a 1\n", b"1 0 a 1.0\n"]) == {"1": {"a": 1}}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"1 0 a", "line 2: a judgment has the four columns topic, iteration, document, grade; this has 3"),
        (b"1 0 a 1 x", "line 2: a judgment has the four columns topic, iteration, document, grade; this has 5"),
        (b"1 0 a 11", "line 2: the grade 11 is above 10, the highest accepted"),
        (b"1 0 a 1e999", "line 2: the grade 1e999 is above 10, the highest accepted"),
        (b"1 0 a nan", "line 2: the grade nan is not a number"),
        (b"1 0 a 1_0", "line 2: the grade 1_0 is not a number"),
        (b"1 0 first 2", "line 2: document first of topic 1 is judged 2 here and 1 before"),
        (b"1 0 \xff 1", "line 2: this is not UTF-8 text"),
        (b"1 0 " + 81 * b"d" + b" 1", f"line 2: the document id {80 * 'd'}... is longer than 80 characters"),
        (81 * b"t" + b" 0 d 1", f"line 2: the topic id {80 * 't'}... is longer than 80 characters"),
    ],
)
def test_an_unusable_judgment_is_refused_with_file_and_line(line: bytes, complaint: str) -> None:
    with pytest.raises(FileError) as refusal:
        load_qrels("qrels.txt", [b"1 0 first 1\n", line + b"\n"])

    assert str(refusal.value) == f"qrels.txt, {complaint}"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            b"1 Q0 a 1 2.0",
            "line 2: a ranked document has the six columns topic, Q0, document, rank, score, tag; this has 5",
        ),
        (b"1 Q0 a 1 nan t", "line 2: the score nan is not a number"),
        (b"1 Q0 a 1 high t", "line 2: the score high is not a number"),
        (b"1 Q0 first 1 3 t", "line 2: document first is ranked a second time for topic 1"),
    ],
)
def test_an_unusable_ranked_document_is_refused_with_file_and_line(line: bytes, complaint: str) -> None:
    with pytest.raises(FileError) as refusal:
        load_run("run.txt", [b"1 Q0 first 1 5 t\n", line + b"\n"])

    assert str(refusal.value) == f"run.txt, {complaint}"


def test_eighty_code_points_are_a_fine_id() -> None:
    assert load_qrels("f", [f"1 0 {80 * 'ü'} 1\n".encode()], Format.TREC) == {"1": {80 * "ü": 1}}
