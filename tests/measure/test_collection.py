"""Measuring a run: the core's figures for every topic, wherever it stands in the file and whoever reads it."""

from __future__ import annotations

import gzip
import random
from array import array
from pathlib import Path
from typing import Final

import pytest

from ranking_evaluate.core import metrics
from ranking_evaluate.measure import processes, sources
from ranking_evaluate.measure.collection import Measured
from ranking_evaluate.measure.faults import FileError
from ranking_evaluate.measure.figures import NAMES
from ranking_evaluate.measure.qrels import Qrels
from ranking_evaluate.measure.ranking import ranked
from ranking_evaluate.measure.sources import Source
from tests.measure.files import judged, measured, written

CUTOFFS: Final = (3, 10, 200)


def collection(seed: int, topics: int = 60) -> tuple[Qrels, dict[str, list[tuple[str, float]]]]:
    """Return judgments and a run with ties; two topics are judged alone, and two are in the run alone."""
    chance = random.Random(seed)
    documents = [f"d{number}" for number in range(300)]
    grades = {
        f"t{number}".encode(): {
            document.encode(): float(chance.choice([0, 0, 1, 2, 3]))
            for document in chance.sample(documents, chance.randint(1, 80))
        }
        for number in range(topics)
    }
    run = {
        f"t{number}": [(document, round(chance.gauss(5, 2), 1)) for document in chance.sample(documents, 120)]
        for number in range(2, topics + 2)
    }
    return judged(grades), run


def lines_of(run: dict[str, list[tuple[str, float]]]) -> list[str]:
    """Return the lines of a run, ranked as it stands."""
    return [
        f"{topic} Q0 {document} {rank} {score} tag\n"
        for topic, found in run.items()
        for rank, (document, score) in enumerate(found, 1)
    ]


def by_the_core(qrels: Qrels, run: dict[str, list[tuple[str, float]]]) -> list[list[float]]:
    """Return every figure by one call of the core for each topic and cutoff."""
    columns: list[list[float]] = []
    for k in CUTOFFS:
        rules = metrics.Rules(k, 1)
        rows = []
        for topic, grades in qrels.grades.items():
            found = sorted(run.get(topic.decode(), []), key=lambda row: (row[1], row[0]), reverse=True)[:k]
            by_rank = [grades.get(document.encode()) for document, _ in found]
            scores = metrics.score([by_rank], [metrics.judge(grades.values(), rules)], rules)
            share = sum(grade is not None for grade in by_rank) / len(by_rank) if by_rank else None
            row = [one[0] for one in scores[:5]]
            rows.append([*row, float(bool(scores.hits[0])), share])
        columns += [
            [float("nan") if value is None else value for value in column] for column in zip(*rows, strict=True)
        ]
    return columns


def same(one: Measured, other: list[list[float]]) -> bool:
    """Return whether all figures are the same to the last bit."""
    return [column.tobytes() for column in one.columns] == [array("d", column).tobytes() for column in other]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files be read in blocks and parts, as large ones are."""
    monkeypatch.setattr(sources, "BLOCK", 10_000)
    monkeypatch.setattr(processes, "_PART", 30_000)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("small_parts")
def test_every_figure_of_every_topic_is_the_cores_to_the_last_bit(tmp_path: Path, count: int) -> None:
    qrels, run = collection(1)
    path = written(tmp_path, "run", "".join(lines_of(run)))
    found = measured(path, qrels, count, cutoffs=CUTOFFS)

    assert same(found, by_the_core(qrels, run))
    assert found.without_run == [0, 1]
    assert found.without_judgments == [b"t60", b"t61"]
    assert (found.topics, list(found.scattered)) == (60, [])


@pytest.mark.parametrize("order", ["shuffled", "by rank", "halves", "gzip", "crlf", "msmarco"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("small_parts")
def test_the_order_of_the_lines_and_the_form_of_the_file_change_no_figure(
    tmp_path: Path, order: str, count: int
) -> None:
    qrels, run = collection(2)
    lines = lines_of(run)
    expected = by_the_core(qrels, run)
    content: bytes | None = None
    scattered = 60
    if order == "shuffled":
        random.Random(3).shuffle(lines)
    elif order == "by rank":
        lines.sort(key=lambda line: int(line.split()[3]))
    elif order == "halves":
        lines = lines[60:] + lines[:60]
        scattered = 1
    else:
        scattered = 0
        text = "".join(lines)
        if order == "msmarco":
            run = {topic: [(name, -float(rank)) for rank, (name, _) in enumerate(of, 1)] for topic, of in run.items()}
            expected = by_the_core(qrels, run)
            text = "".join("\t".join(line.split()[at] for at in (0, 2, 3)) + "\n" for line in lines)
        content = text.replace("\n", "\r\n").encode() if order == "crlf" else text.encode()
        content = gzip.compress(content) if order == "gzip" else content
    path = written(tmp_path, "run", content or "".join(lines))

    found = measured(path, qrels, count, cutoffs=CUTOFFS)

    assert same(found, expected)
    assert len(found.scattered) == scattered


@pytest.mark.usefixtures("small_parts")
def test_parts_end_where_topics_do_and_hold_the_whole_file(tmp_path: Path) -> None:
    _, run = collection(4)
    lines = lines_of(run)
    source = Source(written(tmp_path, "run", "".join(lines)))
    parts = processes._parts(source)

    content = Path(source.path).read_bytes()
    assert b"".join(content[start:end] for start, end in parts) == content
    firsts = [content[start:].split(None, 1)[0] for start, _ in parts]
    lasts = [content[:end].splitlines()[-1].split()[0] for _, end in parts]
    assert len(parts) >= 4
    assert all(last != first for last, first in zip(lasts, firsts[1:], strict=False))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("small_parts")
def test_faults_in_later_parts_are_told_with_the_line_of_the_file(tmp_path: Path, count: int) -> None:
    qrels, run = collection(5)
    lines = lines_of(run)
    lines[5000] = lines[5000].replace(lines[5000].split()[4], "high")
    lines[7000] = lines[6999]
    path = written(tmp_path, "run", "# a comment\n" + "".join(lines))
    document = lines[6999].split()[2]

    with pytest.raises(FileError) as refusal:
        measured(path, qrels, count)

    assert str(refusal.value).splitlines() == [
        f"{path}, line 5002: the score high is not a number",
        f"{path}, line 7002: document {document} is ranked a second time for topic {lines[7000].split()[0]}",
    ]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("small_parts")
def test_a_document_that_is_ranked_again_far_away_is_told_with_its_line(tmp_path: Path, count: int) -> None:
    qrels, run = collection(6)
    lines = lines_of(run)
    path = written(tmp_path, "run", "".join([*lines, lines[7]]))

    with pytest.raises(FileError) as refusal:
        measured(path, qrels, count)

    document = lines[7].split()[2]
    assert str(refusal.value) == (
        f"{path}, line {len(lines) + 1}: document {document} is ranked a second time for topic t2"
    )


def test_ranked_is_by_score_then_by_id_both_descending_down_to_the_depth() -> None:
    documents = [b"b", b"a", b"c", b"B", "ü".encode()]
    scores = [1.0, 2.0, 1.0, 1.0, 1.0]

    assert ranked(documents, scores, 4) == [b"a", "ü".encode(), b"c", b"b"]
    assert ranked(documents, scores, 9) == [b"a", "ü".encode(), b"c", b"b", b"B"]
    assert ranked([b"a", b"b"], [float("inf"), float("-inf")], 5) == [b"a", b"b"]
    assert ranked([], [], 5) == []


def test_scores_are_compared_in_double_precision_and_like_trec_eval_9_in_single(tmp_path: Path) -> None:
    # trec_eval 10 gives recip_rank 1.0000 for this, and pytrec_eval 0.5.
    path = written(tmp_path, "run", "1 Q0 a 1 20.000002 t\n1 Q0 b 2 20.000001 t\n")
    qrels = judged({b"1": {b"a": 1}})
    rr = NAMES.index("rr")

    assert measured(path, qrels).columns[rr][0] == 1
    assert measured(path, qrels, like="trec_eval").columns[rr][0] == 1
    assert measured(path, qrels, like="trec_eval9").columns[rr][0] == 0.5


def test_condensed_drops_unjudged_documents_before_the_cutoff(tmp_path: Path) -> None:
    path = written(tmp_path, "run", "1 Q0 x 1 5 t\n1 Q0 y 2 4 t\n1 Q0 a 3 3 t\n1 Q0 b 4 2 t\n")
    qrels = judged({b"1": {b"a": 0, b"b": 1}})
    p, rr, share = (NAMES.index(name) for name in ("p", "rr", "judged"))

    columns = measured(path, qrels, cutoffs=(2,), condensed=True).columns
    assert (columns[p][0], columns[rr][0], columns[share][0]) == (0.5, 0.5, 1.0)
    columns = measured(path, qrels, cutoffs=(2,)).columns
    assert (columns[p][0], columns[rr][0], columns[share][0]) == (0.0, 0.0, 0.0)


def test_a_document_with_the_id_of_its_topic_leaves_the_ranking_when_told_so(tmp_path: Path) -> None:
    path = written(tmp_path, "run", "1 Q0 1 1 5 t\n1 Q0 a 2 4 t\n2 Q0 1 1 5 t\n2 Q0 a 2 4 t\n")
    qrels = judged({b"1": {b"a": 1}, b"2": {b"a": 1}})
    rr = NAMES.index("rr")

    assert list(measured(path, qrels).columns[rr]) == [0.5, 0.5]
    assert list(measured(path, qrels, ignore_identical_ids=True).columns[rr]) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("run", "complaint"),
    [
        ("", "there is no ranked document in it"),
        ("# nothing\n\n", "there is no ranked document in it"),
        ("x Q0 a 1 5 t\n", "no topic is in both files, so they do not belong together; its first topic is x, and the"),
    ],
)
def test_a_run_that_has_nothing_to_measure_is_refused(tmp_path: Path, run: str, complaint: str) -> None:
    with pytest.raises(FileError, match=complaint):
        measured(written(tmp_path, "run", run), judged({b"1": {b"a": 1}}))


def test_ranks_that_contradict_the_scores_are_counted_by_topic(tmp_path: Path) -> None:
    distances = "".join(f"{topic} Q0 d{rank} {rank} {rank / 10} t\n" for topic in (1, 2) for rank in range(1, 5))
    path = written(tmp_path, "run", distances + "3 Q0 a 1 9 t\n3 Q0 b 2 8 t\n4 Q0 a 0 9 t\n4 Q0 b 0 8 t\n")

    assert measured(path, judged({b"1": {b"a": 1}})).contradicted == 2
