"""CSV in which no text is a formula, read by Python, by pandas, and as a spreadsheet of another country would."""

from __future__ import annotations

import csv
import importlib
import io
from typing import Any, Final

import pytest

from ranking_evaluate.interchange.csv_table import csv_table, guarded

# It has no types of its own.
pandas: Final[Any] = importlib.import_module("pandas")


def rows(text: str, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain", "plain"),
        ("a=b-c", "a=b-c"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t'=1"),
        ("\tplain", "'\tplain"),
        ("q1\r=cmd|' /C calc'!A0", "q1\r'=cmd|' /C calc'!A0"),
        ("q1\n=1", "q1\n'=1"),
        ("q1\r\n@x", "q1\r\n'@x"),
        ("q1\u2028=1", "q1\u2028'=1"),
        ("＝1", "'＝1"),
        ("＋1", "'＋1"),
        ("－1", "'－1"),
        ("＠x", "'＠x"),
        ("﹦1", "'﹦1"),
        (" =1", "' =1"),
        ("\ufeff=1", "'\ufeff=1"),
        ("\x00=1", "'\x00=1"),
        ('"=1', "'\"=1"),
        ("x;=1", "x;'=1"),
        ("", ""),
    ],
)
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str, safe: str) -> None:
    assert guarded(text) == safe


def test_every_cell_is_quoted_and_a_row_stays_one_row() -> None:
    table = csv_table(["id", "value"], [["q1\r=cmd|' /C calc'!A0", -0.25], ['say "hi", twice', 3]])
    assert table == '"id","value"\n"q1\r\'=cmd|\' /C calc\'!A0","-0.25"\n"say ""hi"", twice","3"\n'
    assert [row[1] for row in rows(table)] == ["value", "-0.25", "3"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_cell_begins_a_formula_whatever_separates_cells(separator: str) -> None:
    hostile = [f"x{mark}{quote}={mark}1" for mark in "\r\n\t;," for quote in ("", '"', ' "', "'")]
    text = csv_table(["id", "value"], [[one, 1] for one in hostile])
    # Whoever splits at line ends and separators alone, without a look at quotes, finds no formula either.
    for line in text.replace("\r", "\n").split("\n"):
        for cell in line.split(separator):
            assert separator == "," or not cell.lstrip('" ').startswith(("=", "+", "@")), cell
    for row in rows(text, separator):
        assert separator == "," or not [cell for cell in row if cell.startswith(("=", "+", "@"))]
    if separator == ",":
        assert [row[0] for row in rows(text)][1:] == [guarded(one) for one in hostile]


def test_numbers_stay_numbers_for_programs() -> None:
    table = csv_table(["id", "value", "count"], [["-1", -0.25, 1], ["b", 1e-07, -20], ["c", 0.1 + 0.2, 2**53 + 1]])
    frame = pandas.read_csv(io.StringIO(table))
    assert frame["value"].dtype == float
    assert list(frame["value"]) == [-0.25, 1e-07, 0.1 + 0.2]
    assert list(frame["count"]) == [1, -20, 2**53 + 1]
    assert list(frame["id"]) == ["'-1", "b", "c"]


def test_no_figure_is_no_text() -> None:
    frame = pandas.read_csv(io.StringIO(csv_table(["value"], [[0.5], [""]])), skip_blank_lines=False)
    assert frame["value"].dtype == float
    assert frame["value"].isna().sum() == 1
