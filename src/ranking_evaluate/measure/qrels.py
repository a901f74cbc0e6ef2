"""Judgments: the grades of each topic, in the order of their file, and what was remarkable about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from ranking_evaluate.measure.faults import Faults, FileError, shown
from ranking_evaluate.measure.formats import Kind, Named, sniff
from ranking_evaluate.measure.numbers import grade_of
from ranking_evaluate.measure.rows import Rows, read
from ranking_evaluate.measure.rules import HIGHEST_EXPONENTIAL, HIGHEST_GRADE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ranking_evaluate.measure.rules import Rules
    from ranking_evaluate.measure.sources import Source


@dataclass(slots=True)
class Qrels:
    """The judgments of a collection, by topic and document; ids are UTF-8, whose order is that of code points.

    Args:
        grades: Grades as the rules take them: a negative one is 0, and like trec_eval a fractional one is cut to an
            integer and a negative one is no judgment.
        fractional: How many grades are no integers.
        negative: How many grades are below 0.
    """

    grades: dict[bytes, dict[bytes, float]] = field(default_factory=dict)
    fractional: int = 0
    negative: int = 0


def read_qrels(source: Source, rules: Rules, named: Named = Named.AUTO) -> Qrels:
    """Return the judgments in a file; one that is repeated with the same grade counts once.

    Raises:
        FileError: It cannot be used, or holds no judgment.
    """
    faults = Faults(source.name)
    qrels = _collected(read(source, sniff(source, Kind.QRELS, named), faults), faults)
    faults.refuse()
    if not qrels.grades:
        raise FileError(f"{source.name}: there is no judgment in it")
    return _ruled(qrels, rules, source.name)


def given_qrels(judgments: Mapping[str, Mapping[str, float]], rules: Rules) -> Qrels:
    """Return judgments that are given as {topic: {document: grade}}; a topic may have none.

    Raises:
        FileError: A grade is no finite number, or there is no topic.
        TypeError: An id is no text.
        ValueError: An id is empty, or no Unicode text.
    """
    faults = Faults("qrels")
    qrels = _collected(given_rows(judgments), faults)
    faults.refuse()
    if not judgments:
        raise FileError("qrels: there is no topic in it")
    qrels.grades = {(name := topic.encode()): qrels.grades.get(name, {}) for topic in judgments}
    return _ruled(qrels, rules, "qrels")


def given_rows(mapping: Mapping[str, Mapping[str, float]]) -> Iterator[Rows]:
    """Yield the rows of a mapping {topic: {document: number}}, topic by topic.

    Raises:
        TypeError: An id is no text.
        ValueError: An id is empty, or no Unicode text.
    """
    for topic, numbers in mapping.items():
        documents = [_id(document) for document in numbers]
        figures = [repr(float(number)).encode() for number in numbers.values()]
        yield Rows([_id(topic)] * len(documents), documents, figures, [], ())


def _id(one: object) -> bytes:
    if not isinstance(one, str):
        raise TypeError(f"ids of topics and documents are str, and this is {type(one).__name__}: {one!r}")
    if not one:
        raise ValueError("an id of a topic or document is empty")
    return one.encode()


def _collected(content: Iterable[Rows], faults: Faults) -> Qrels:
    """Return the grades as they are written."""
    qrels = Qrels()
    # Files hold few different grades, so each is read once, and all that are equal are one object.
    known: dict[bytes, float | None] = {b"": 1}
    for rows in content:
        for figure in set(rows.figures).difference(known):
            known[figure] = grade_of(figure)
        grades = [*map(known.__getitem__, rows.figures)] if rows.figures else [1] * len(rows.topics)
        start = 0
        for topic, group in groupby(rows.topics):
            end = start + len([*group])
            of_topic = qrels.grades.setdefault(topic, {})
            for index in range(start, end):
                document, grade = rows.documents[index], grades[index]
                if grade is None or abs(grade) > HIGHEST_GRADE:
                    faults.add(rows.place(index), f"the grade {shown(rows.figures[index])} is not a number")
                elif of_topic.setdefault(document, grade) != grade:
                    reason = f"document {shown(document)} of topic {shown(topic)} is judged {grade} here and "
                    faults.add(rows.place(index), f"{reason}{of_topic[document]} before")
            start = end
    return qrels


def _ruled(qrels: Qrels, rules: Rules, name: str) -> Qrels:
    """Return the judgments with their grades as the rules take them."""
    for topic, grades in qrels.grades.items():
        values = grades.values()
        if rules.gain == "exponential" and max(values, default=0) > HIGHEST_EXPONENTIAL:
            highest = max(values)
            raise FileError(f"{name}: topic {shown(topic)} has the grade {highest}, too high for exponential gain")
        qrels.negative += sum(grade < 0 for grade in values)
        qrels.fractional += sum(type(grade) is float for grade in values)
        if rules.like is not None:
            taken = ((document, int(grade)) for document, grade in grades.items())
            grades = {document: grade for document, grade in taken if grade >= 0}
        elif min(values, default=0) < 0:
            grades = {document: max(grade, 0) for document, grade in grades.items()}
        else:
            continue
        qrels.grades[topic] = grades
    return qrels
