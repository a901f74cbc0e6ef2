"""Files of judgments and runs: ten kinds that people have are read, and every other is named with a remedy."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ranking_evaluate.measure.faults import FileError
from tests.measure.files import grades, scores, written

PLAIN = "1 0 a 1\n1 0 b 0\n2 0 a 2\n"
GRADES = {"1": {"a": 1, "b": 0}, "2": {"a": 2}}
RUN = "1 Q0 a 1 2.5 tag\n1 Q0 b 2 1e1 tag\n2 Q0 a 1 -3 tag\n"
SCORES = {"1": {"a": 2.5, "b": 10.0}, "2": {"a": -3.0}}


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        gzip.compress(PLAIN.encode(), mtime=0),
        gzip.compress(PLAIN[:8].encode(), mtime=0) + gzip.compress(PLAIN[8:].encode(), mtime=0),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace(" ", "\t"),
        PLAIN.replace(" ", " \t "),
        PLAIN.rstrip("\n"),
        "\n\n" + PLAIN.replace("\n", "\n \n"),
        "# judged version 2\n" + PLAIN + "  # the end of it\n",
        PLAIN + "1 0 a 1.0\n",
        "1 0 a 1\n2 0 a 2\n1 0 b 0\n",
        "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t0\n2\ta\t2\n",
        "query_id\tcorpus_id\tscore\r\n1\ta\t1\r\n1\tb\t0\r\n2\ta\t2\r\n",
        '"query-id"\t"corpus-id"\t"score"\n"1"\t"a"\t1\n"1"\t"b"\t0\n"2"\t"a"\t2\n',
        "# from BEIR\nQuery-ID\titeration\tdoc_id\trelevance\n1\t0\ta\t1\n1\t0\tb\t0\n2\t0\ta\t2\n",
        '{"1": {"a": 1, "b": 0},\n "2": {"a": 2}}',
        '\ufeff{"1":{"a":1,"b":0},"2":{"a":2.0}}\n\n',
        (
            '{"query-id": "1", "corpus-id": "a", "score": 1}\n{"query-id": "1", "corpus-id": "b", "score": 0}\n'
            '\n{"score": 2, "corpus-id": "a", "query-id": 2, "more": null}\n'
        ),
    ],
)
def test_judgments_are_read_from_every_kind_of_file(tmp_path: Path, content: str | bytes) -> None:
    assert grades(written(tmp_path, "qrels", content)) == GRADES


@pytest.mark.parametrize(
    "content",
    [
        RUN,
        gzip.compress(RUN.encode(), mtime=0),
        b"\xef\xbb\xbf" + RUN.encode(),
        RUN.replace("\n", "\r\n"),
        RUN.replace(" ", "\t"),
        RUN.replace(" ", "  "),
        RUN.replace("tag", "a tag of words"),
        "# a comment with six words here\n" + RUN,
        RUN.replace("1 Q0 b", "# x y z u v\n1 Q0 b"),
        "query-id\tcorpus-id\tscore\n1\ta\t2.5\n1\tb\t10\n2\ta\t-3\n",
        '{"1": {"a": 2.5, "b": 10}, "2": {"a": -3}}',
        (
            '{"qid": "1", "docid": "a", "score": 2.5}\n{"qid": "1", "docid": "b", "score": 1e1}\n'
            '{"qid": "2", "docid": "a", "score": -3}\n'
        ),
    ],
)
def test_runs_are_read_from_every_kind_of_file(tmp_path: Path, content: str | bytes) -> None:
    assert scores(written(tmp_path, "run", content)) == SCORES


def test_ms_marco_judgments_are_pairs_and_its_runs_are_ranks_of_which_1_is_best(tmp_path: Path) -> None:
    assert grades(written(tmp_path, "qrels", "1\ta\n2\tb\n")) == {"1": {"a": 1}, "2": {"b": 1}}
    assert scores(written(tmp_path, "run", "1\ta\t1\n1\tb\t2\n")) == {"1": {"a": -1.0, "b": -2.0}}


@pytest.mark.parametrize("mark", ["#a", "a#b", "msmarco_v2.1_doc_00_880#4"])
def test_a_hash_inside_a_line_is_part_of_an_id(tmp_path: Path, mark: str) -> None:
    assert grades(written(tmp_path, "qrels", f"1 0 {mark} 1\n")) == {"1": {mark: 1}}


def test_a_word_more_and_a_word_less_in_two_lines_are_not_read_as_one_shift(tmp_path: Path) -> None:
    # Together they have the twelve words of two lines.
    path = written(tmp_path, "run", "1 Q0 a 1 3 my tag\n1 Q0 b 2 2\n")

    with pytest.raises(FileError, match="line 2: a ranked document has the six columns"):
        scores(path)


def test_only_ascii_white_space_separates_columns_and_a_table_only_tabs(tmp_path: Path) -> None:
    assert grades(written(tmp_path, "qrels", "1 0 a\u00a0b 1\n")) == {"1": {"a\u00a0b": 1}}
    assert grades(written(tmp_path, "beir", "query-id\tcorpus-id\tscore\nq 1\td a\t1\n")) == {"q 1": {"d a": 1}}


def test_integral_grades_are_integers_and_others_stay(tmp_path: Path) -> None:
    found = grades(written(tmp_path, "qrels", "1 0 a 1.0\n1 0 b 0.5\n1 0 c 1e1\n1 0 d +16\n1 0 e -2\n"))["1"]

    assert [(type(grade), grade) for grade in found.values()] == [
        (int, 1),
        (float, 0.5),
        (int, 10),
        (int, 16),
        (int, 0),
    ]


def test_no_limit_of_the_service_binds_what_is_measured(tmp_path: Path) -> None:
    assert grades(written(tmp_path, "qrels", f"{'t' * 90} 0 {'d' * 200} 50\n")) == {"t" * 90: {"d" * 200: 50}}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PAR1\x15\x00", "a Parquet file"),
        (b"\x28\xb5\x2f\xfd\x00", "compressed with zstd"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"PK\x03\x04\x14", "a zip archive"),
        ("1 0 a 1\n".encode("utf-16"), "UTF-16 text"),
        ("1 0 a 1\n".encode("utf-16-le"), "UTF-16 text"),
        (b"1 0 a 1\n\x00\x01", "a binary file"),
        (b'[{"query-id": "1"}]', "a JSON array"),
        (b"query,docid,rating\nq,d,1\n", "a table with commas"),
        (b"query text,docid,rating\nq,d,1\n", "a table with commas"),
    ],
)
def test_what_is_not_read_is_named_with_what_is(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(FileError) as refusal:
        grades(written(tmp_path, "qrels", content))

    assert f"this is {what}. Read are TREC qrels (topic, iteration, document, grade), MS MARCO" in str(refusal.value)
    with pytest.raises(FileError, match="Read are TREC runs"):
        scores(written(tmp_path, "run", content))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"1 0 a", "line 2: a judgment has the four columns topic, iteration, document, grade; this has 3"),
        (b"1 0 a 1 x", "line 2: a judgment has the four columns topic, iteration, document, grade; this has 5"),
        (b"1 0 a nan", "line 2: the grade nan is not a number"),
        (b"1 0 a 1e999", "line 2: the grade 1e999 is not a number"),
        (b"1 0 a 1_0", "line 2: the grade 1_0 is not a number"),
        (b"1 0 first 2", "line 2: document first of topic 1 is judged 2 here and 1 before"),
        (b"1 0 \xff 1", "line 2: this is not UTF-8 text"),
    ],
)
def test_an_unusable_judgment_is_refused_with_file_and_line(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = written(tmp_path, "qrels", b"1 0 first 1\n" + line + b"\n3 0 a 1\n")

    with pytest.raises(FileError) as refusal:
        grades(path)

    assert str(refusal.value) == f"{path}, {complaint}"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            b"1 Q0 a 1 2.0",
            "line 2: a ranked document has the six columns topic, Q0, document, rank, score, tag; this has 5",
        ),
        (b"1 Q0 a 1 nan t", "line 2: the score nan is not a number"),
        (b"1 Q0 a 1 -NaN t", "line 2: the score -NaN is not a number"),
        (b"1 Q0 a 1 2,5 t", "line 2: the score 2,5 is not a number"),
        (b"1 Q0 a 1 1_0 t", "line 2: the score 1_0 is not a number"),
        (b"1 Q0 a 1 0x1p3 t", "line 2: the score 0x1p3 is not a number"),
        (b"1 Q0 first 1 3 t", "line 2: document first is ranked a second time for topic 1"),
        (b"1 Q0 \xff\xfe 1 3 t", "line 2: this is not UTF-8 text"),
    ],
)
def test_an_unusable_ranked_document_is_refused_with_file_and_line(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = written(tmp_path, "run", b"1 Q0 first 1 5 t\n" + line + b"\n")

    with pytest.raises(FileError) as refusal:
        scores(path)

    assert str(refusal.value) == f"{path}, {complaint}"


def test_a_rank_of_any_length_is_overlooked_where_there_is_a_score(tmp_path: Path) -> None:
    path = written(tmp_path, "run", f"1 Q0 a {'9' * 5000} 2 t\n1 Q0 b 1 1 t\n")

    assert scores(path) == {"1": {"a": 2.0, "b": 1.0}}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            "query-id\tcorpus-id\tscore\nq d 1\n",
            "line 2: a row has the 3 columns of the header with tabs between; this has 1",
        ),
        ("query-id\tcorpus-id\tscore\n\td\t1\n", "line 2: the topic id is empty"),
        ("query-id\tcorpus-id\tscore\nq\t\t1\n", "line 2: the document id is empty"),
        ("query-id\tcorpus-id\tscore\nq\td\t\n", "line 2: the score  is not a number"),
        ("1\ta\tone\n", "line 1: the rank one is not a whole number"),
        (f"1\ta\t{'9' * 400}\n", f"line 1: the rank {'9' * 80}... is not a whole number"),
        (f"1\ta\t{'9' * 5000}\n", f"line 1: the rank {'9' * 80}... is not a whole number"),
        ('{"q":\n{"d": 1,}}', "line 2: this is not JSON"),
        ('{"q": {"d": 1}', "line 1: this is not JSON (} is missing)"),
        ('{"q": {"d": 1}} x', "line 1: this is not JSON (something follows after the object)"),
        ('{"q": {"d": 1, "d": 2}}', "query q: document d is ranked a second time for topic q"),
        ('{"q": {}, "q": {"d": 1}}', "query q: this query is named twice"),
        ('{"q": [1]}', "query q: its value is not an object of the form {document: number}"),
        ('{"q": {"d": null}}', "query q, document d: its value is not a number"),
        ('{"q": {"d": "1"}}', "query q, document d: its value is not a number"),
        ('{"q": {"d": NaN}}', "query q, document d: the score NaN is not a number"),
        ('{"q": {"": 1}}', "query q, document : the document id is empty"),
        ('{"q": {"\\ud800": 1}}', "query q, document ⟨D800⟩: this id is not Unicode text"),
        (
            '{"qid": "1", "did": "a", "score": 1}\n{"qid": null, "did": "b", "score": 1}\n',
            "line 2: qid and did are texts",
        ),
        ('{"qid": "1", "did": "a", "score": 1}\n{"qid": "1"}\n', "line 2: this is no object with the members"),
    ],
)
def test_a_fault_of_a_table_or_json_is_told_with_its_place(tmp_path: Path, content: str, complaint: str) -> None:
    path = written(tmp_path, "run", content)

    with pytest.raises(FileError) as refusal:
        scores(path)

    assert str(refusal.value).startswith(f"{path}, {complaint}")


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nested too deeply"):
        scores(written(tmp_path, "run", '{"q": ' + 100_000 * "["))


def test_a_large_json_run_is_read_across_its_blocks(tmp_path: Path) -> None:
    topics = {f"t{number}": {f"dé-{number}-{place}": place / 7 for place in range(40)} for number in range(700)}
    text = "{" + ",\n".join(f'"{topic}": {str(of).replace(chr(39), chr(34))}' for topic, of in topics.items()) + "}"
    assert len(text.encode()) > 3 * (1 << 18)

    assert scores(written(tmp_path, "run", text)) == topics


def test_ten_faults_are_told_in_the_order_of_the_lines_and_the_others_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path, "run", "1 Q0 a 1 5 t\n" + "".join(f"1 Q0 b{n} 1 x{n} t\n" for n in range(14)) + "1 Q0 a 1 5 t\n"
    )

    with pytest.raises(FileError) as refusal:
        scores(path)

    told = str(refusal.value).splitlines()
    assert told[:2] == [
        f"{path}, line 2: the score x0 is not a number",
        f"{path}, line 3: the score x1 is not a number",
    ]
    assert len(told) == 11
    assert told[-1] == f"{path}: 5 further faults."


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (gzip.compress(RUN.encode(), mtime=0)[:-9], "the gzip data is broken or ends too early"),
        (RUN.replace("\n", "\r") * 40_000, "a line is longer than 1 MB; lines end with a line feed"),
    ],
)
def test_a_file_that_is_broken_as_a_whole_is_refused(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    with pytest.raises(FileError, match=complaint):
        scores(written(tmp_path, "run", content))


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError) as refusal:
        grades(str(tmp_path / "nothing"))

    assert str(refusal.value) == f"{tmp_path}/nothing: No such file or directory"
