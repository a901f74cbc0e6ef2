"""Merging: the means of one large answer, or a refusal that names the line."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranking_evaluate import evaluate
from ranking_evaluate.interchange.merge import MergeError, merge


def query(name: str, retrieved: list[str], grades: dict[str, float]) -> dict[str, Any]:
    return {
        "id": name,
        "retrieved": retrieved,
        "judgments": [{"id": document, "grade": grade} for document, grade in grades.items()],
    }


def response(*queries: dict[str, Any], **members: Any) -> bytes:
    body = {"unjudged": "nonrelevant", "queries": queries, **members}
    return evaluate("ranking-evaluate", json.dumps(body).encode())


Q1 = query("q1", ["a", "b", "c"], {"a": 1, "c": 2, "d": 1})
Q2 = query("q2", ["a"], {})
Q3 = query("q3", ["x", "a"], {"a": 0.1, "b": 3})

documents = st.lists(st.sampled_from("abcdef"), unique=True)
grades = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 10))


@given(st.lists(st.tuples(documents, grades), min_size=1, max_size=12), st.data())
def test_parts_merge_to_the_very_means_of_the_whole(
    contents: list[tuple[list[str], dict[str, float]]], data: Any
) -> None:
    queries = [query(str(number), *content) for number, content in enumerate(contents)]
    cut = data.draw(st.integers(1, len(queries)))
    parts = [part for part in (queries[:cut], queries[cut:]) if part]

    merged = merge([response(*part) for part in parts]).document

    whole = response(*queries)
    means = merged[merged.index(b'"macro"') : merged.index(b',"omitted"')]
    assert means.count(b"{") == 2
    assert means in whole
    assert orjson.loads(merged)["queryCount"] == len(queries)


def test_means_are_over_queries_and_not_over_lines() -> None:
    merged = orjson.loads(merge([response(Q1, Q2), response(Q3)]).document)

    assert merged["queryCount"] == 3
    assert merged["definedQueryCounts"]["recallAtK"] == 2
    assert merged["macro"]["recallAtK"] == (2 / 3 + 0) / 2


def test_blank_lines_hold_no_query_and_are_skipped() -> None:
    assert merge([response(Q1), b"\n", b"", response(Q3)]) == merge([response(Q1), response(Q3)])


def test_the_means_state_their_release_cutoff_and_conventions() -> None:
    merged, one = orjson.loads(merge([response(Q1), response(Q3)]).document), orjson.loads(response(Q1))

    assert merged["release"] == one["version"]
    assert {name: merged[name] for name in ("profile", "k", "conventions")} == {
        name: one["result"][name] for name in ("profile", "k", "conventions")
    }


def test_what_was_omitted_stands_in_the_document_and_is_told() -> None:
    missing = {"id": "big", "reason": "too many judgments"}
    merged = merge([response(Q1), orjson.dumps({"omitted": [missing]})])

    assert orjson.loads(merged.document)["omitted"] == [missing]
    assert orjson.loads(merged.document)["queryCount"] == 1
    assert "1 of 2 queries fit no input and are in no average: see omitted." in merged.remarks


def test_queries_with_unjudged_documents_are_told() -> None:
    judged = query("q4", ["a"], {"a": 1})

    assert "1 of 2 queries have unjudged documents within k" in merge([response(Q1, judged)]).remarks[0]


def test_lines_of_different_thresholds_are_refused_though_no_response_states_its_threshold() -> None:
    low, high = query("q1", ["a"], {"a": 1}), query("q2", ["a", "b"], {"a": 1, "b": 3})

    with pytest.raises(MergeError) as refusal:
        merge([response(low), response(high, relevantAtLeast=2)])

    assert str(refusal.value) == (
        "line 2: grade 1 is relevant in line 1, and grade 1 is not in line 2: "
        "the lines have different values of relevantAtLeast"
    )
    # A threshold of 2 fits both of these.
    assert merge([response(query("q1", ["b"], {"b": 2}), relevantAtLeast=2), response(high, relevantAtLeast=2)])


def edited(line: bytes, **members: Any) -> bytes:
    return orjson.dumps({**orjson.loads(line), **members})


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "there is no response to merge"),
        ([response(Q1), response(Q2, k=5)], "line 2: the cutoff k differs from that of line 1"),
        ([response(Q1), response(Q2, gain="exponential")], "line 2: the conventions differs from that of line 1"),
        ([response(Q1), edited(response(Q2), version="0.28.0")], "line 2: the release differs from that of line 1"),
        (
            [response(Q1), response(Q3), response(Q2, Q1)],
            "line 3: query q1 is scored a second time; it was in line 1 before",
        ),
        ([response(Q1), b"{"], "line 2: this is not JSON"),
        ([b"[]"], "line 1: this is not a response"),
        ([edited(response(Q1), operation="other")], "line 1: this is not a response of ranking-evaluate"),
        (
            [b'{"code":"INPUT_LIMIT","status":413}'],
            "line 1: this input was refused (INPUT_LIMIT); its queries would be missing",
        ),
        ([edited(response(Q1), result=None)], "line 1: this response has no list of queries with their figures"),
        (
            [edited(response(Q1), result={"queries": [{"id": "a"}]})],
            "line 1: this response has no list of queries with their figures",
        ),
        (
            [edited(response(Q1), result={"queries": []})],
            "line 1: this response states another number of queries than it lists",
        ),
        ([edited(response(Q1), version=None)], "line 1: this response does not state its release"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_its_line(lines: list[bytes], complaint: str) -> None:
    with pytest.raises(MergeError) as refusal:
        merge(lines)

    assert str(refusal.value) == complaint
