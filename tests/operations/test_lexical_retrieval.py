from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ranking_evaluate import evaluate
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations.lexical_retrieval import OPERATION, TIE_POLICY

SCHEMA = Draft202012Validator(OPERATION.adapter.json_schema())


def _example() -> Any:
    return copy.deepcopy(OPERATION.example_input)


def _result(request: Any, operation: str = OPERATION.id) -> Any:
    return json.loads(evaluate(operation, json.dumps(request).encode()))["result"]


def _refusal(request: Any) -> OperationError:
    with pytest.raises(OperationError) as refused:
        _result(request)
    return refused.value


def _request(texts: dict[str, str], queries: list[str], top_k: int, labels: list[Any] | None, complete: bool) -> Any:
    request = _example()
    request["workflow"].update(documentIds=list(texts), topK=top_k)
    request["corpus"]["documents"] = [
        {"id": document, "text": text, "publishedAt": "2025-06-01T00:00:00Z", "access": "granted"}
        for document, text in texts.items()
    ]
    request["queries"] = [{"id": f"q{position}", "text": text} for position, text in enumerate(queries)]
    reference = {"version": "v1", "populationComplete": complete, "labels": labels}
    request["reference"] = None if labels is None else reference
    return request


def _as_measured(request: Any, result: Any) -> Any:
    """Return the retrieval-measure input that says what lexical-retrieval returned."""
    workflow, reference = request["workflow"], request["reference"]
    shared = {
        "corpus": {"id": request["corpus"]["id"], "sha256": result["corpus"]["sha256"]},
        "cutoff": workflow["cutoff"],
        "retrievalUnit": "document",
        "k": workflow["topK"],
        "referenceVersion": workflow["referenceVersion"],
    }
    labels = [] if reference is None else reference["labels"]
    observations = [
        {
            "queryId": row["queryId"],
            **shared,
            "returned": [hit["id"] for hit in row["returned"]],
            "labels": None
            if reference is None
            else [{"id": one["id"], "gain": one["gain"]} for one in labels if one["queryId"] == row["queryId"]],
            "populationComplete": reference is not None and reference["populationComplete"],
            "scan": "complete",
            "access": "permitted",
            "scores": [hit["score"] for hit in row["returned"]],
            "tiePolicy": result["tiePolicy"],
        }
        for row in result["observations"]
    ]
    return {"protocol": {"method": "lexical", **shared}, "observations": observations}


def _without_reciprocal_rank(measured: Any) -> tuple[Any, Any]:
    """Take reciprocal rank out of a measurement, and return it of each observation and of all."""
    measured["conventions"] = [line for line in measured["conventions"] if "reciprocal rank" not in line]
    for row in measured["observations"]:
        row.get("tieBounds", {}).pop("reciprocalRank", None)
    return (
        [row["metrics"].pop("reciprocalRank") for row in measured["observations"]],
        measured["aggregates"].pop("meanReciprocalRank"),
    )


LABELS = st.lists(
    st.fixed_dictionaries(
        {"queryId": st.sampled_from(["q0", "q1"]), "id": st.sampled_from("abcdef"), "gain": st.integers(0, 4)}
    ),
    unique_by=lambda label: (label["queryId"], label["id"]),
)
TEXT = st.lists(st.sampled_from(["x", "y", "Z", "zz"]), max_size=6).map(" ".join)
REQUESTS = st.builds(
    _request,
    st.dictionaries(st.sampled_from("abcde"), TEXT, min_size=1),
    st.lists(TEXT, min_size=2, max_size=2),
    st.integers(1, 4),
    st.none() | LABELS,
    st.booleans(),
)


@settings(deadline=None)
@given(REQUESTS)
def test_the_measurement_is_what_retrieval_measure_says_about_what_was_returned(request_: Any) -> None:
    result = _result(request_)
    measured, asked = result["measurement"], _as_measured(request_, result)
    strict = _result(asked, "retrieval-measure")
    ranks, _ = _without_reciprocal_rank(measured), _without_reciprocal_rank(strict)
    assert measured == strict

    # Reciprocal rank alone ends at topK, as if nothing below it had been returned.
    for observation in asked["observations"]:
        observation["returned"] = observation["returned"][: request_["workflow"]["topK"]]
        del observation["scores"], observation["tiePolicy"]
    within = _result(asked, "retrieval-measure")
    assert ranks == _without_reciprocal_rank(within)


@settings(deadline=None)
@given(REQUESTS)
def test_the_returned_pin_is_accepted_and_changes_nothing_else(request_: Any) -> None:
    free = _result(request_)
    request_["corpus"]["sha256"] = free["corpus"]["sha256"]
    pinned = _result(request_)
    assert (free["corpus"].pop("pinned"), pinned["corpus"].pop("pinned")) == (False, True)
    assert pinned == free


def test_members_of_the_result_stand_in_the_declared_order() -> None:
    request = _example()
    request["workflow"] = dict(reversed(request["workflow"].items()))
    result = _result(request)
    assert list(result) == [
        "profile",
        "corpus",
        "workflow",
        "tiePolicy",
        "observations",
        "measurement",
        "conventions",
    ]
    assert list(result["corpus"]) == ["id", "sha256", "pinned", "documentCount", "excludedAfterCutoffCount"]
    assert list(result["workflow"].items()) == list(_example()["workflow"].items())
    assert list(result["observations"][0]["returned"][0]) == ["rank", "id", "score", "tieGroup", "beyondTopK"]


def test_the_tie_policy_is_one_that_retrieval_measure_accepts() -> None:
    assert 1 <= len(TIE_POLICY) <= 200
    assert _result(_example())["tiePolicy"] == TIE_POLICY


def test_rows_beyond_top_k_are_marked_and_reciprocal_rank_does_not_see_them() -> None:
    # Five documents tie, two are asked for, and the relevant one is the fifth by id.
    texts = dict.fromkeys("abcde", "same words")
    request = _request(texts, ["same", "other"], 2, [{"queryId": "q0", "id": "e", "gain": 1}], True)
    result = _result(request)

    rows = result["observations"][0]["returned"]
    assert [(row["id"], row["beyondTopK"]) for row in rows] == [
        ("a", False),
        ("b", False),
        ("c", True),
        ("d", True),
        ("e", True),
    ]
    # Nothing but e has a label; with the others known not to be relevant the rank would be 5 in the whole list.
    labels = [{"queryId": "q0", "id": one, "gain": int(one == "e")} for one in "abcde"]
    measured = _result(_request(texts, ["same", "other"], 2, labels, True))["measurement"]["observations"][0]
    assert measured["metrics"]["reciprocalRank"] == {"status": "available", "value": 0}
    # In the best order of the ties it comes first, in the worst it stands below rank 2.
    assert measured["tieBounds"]["reciprocalRank"] == {"min": 0, "max": 1}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        # The vowel signs of Hindi are combining marks, and so are the points of Hebrew and the dot of a Turkish I.
        ("तैनाती", ["hindi"]),
        ("İstanbul", ["turkish"]),
        ("קָפֶה", ["hebrew"]),
        ("ไม่ได้", ["thai"]),
        # NFC makes one letter of e and its accent.
        ("cafe\u0301", ["french"]),
    ],
)
def test_a_word_holds_its_marks(query: str, found: list[str]) -> None:
    texts = {
        "hindi": "तैनाती के लिए डॉकर",
        "rules": "तर्क और नियम",
        "turkish": "İstanbul guide",
        "here": "I am here, stanbul",
        "hebrew": "קָפֶה",
        "letters": "ק פ ה",
        "thai": "ไม่ได้",
        "half": "ไม ได",
        "french": "un café",
        "plain": "cafe",
    }
    result = _result(_request(texts, [query, "x"], 5, None, False))

    assert [row["id"] for row in result["observations"][0]["returned"]] == found


# The pin.


def _pinned() -> Any:
    request = _example()
    request["corpus"]["sha256"] = _result(request)["corpus"]["sha256"]
    return request


Change = Callable[[Any], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["corpus"]["documents"][0].update(text="How to reset a password. Reset links expire!"),
        # The same instant, written otherwise, is another date as sent.
        lambda r: r["corpus"]["documents"][0].update(publishedAt="2025-06-01T00:00:00.0Z"),
        lambda r: r["workflow"]["documentIds"].pop(),
        lambda r: r["corpus"].update(sha256="0" * 64),
    ],
)
def test_a_changed_text_date_or_selection_is_refused(change: Change) -> None:
    request = _pinned()
    change(request)
    refused = _refusal(request)
    assert (refused.code, refused.status, refused.pointer) == (ErrorCode.CORPUS_CHANGED, 422, "/corpus/sha256")


def test_the_pin_is_of_the_named_documents_in_any_order() -> None:
    request = _pinned()
    request["workflow"]["documentIds"].reverse()
    request["corpus"]["documents"].reverse()
    request["corpus"]["documents"].append({**request["corpus"]["documents"][0], "id": "other", "access": "revoked"})
    request["corpus"]["id"] = "renamed"
    assert _result(request)["corpus"]["pinned"]


def test_a_missing_document_is_refused() -> None:
    request = _example()
    request["corpus"]["documents"].pop(1)
    refused = _refusal(request)
    assert (refused.code, refused.status) == (ErrorCode.DOCUMENT_MISSING, 422)
    assert refused.pointer == "/workflow/documentIds/1"


def test_a_revoked_document_is_refused_when_it_is_named() -> None:
    request = _example()
    request["corpus"]["documents"][2]["access"] = "revoked"
    refused = _refusal(request)
    assert (refused.code, refused.status) == (ErrorCode.ACCESS_REVOKED, 422)
    assert refused.pointer == "/corpus/documents/2/access"
    request["workflow"]["documentIds"].remove("vpn")
    assert _result(request)["corpus"]["documentCount"] == 2


def test_a_reference_of_another_version_is_refused() -> None:
    request = _example()
    request["reference"]["version"] = "v2"
    refused = _refusal(request)
    assert (refused.code, refused.status) == (ErrorCode.REFERENCE_VERSION_MISMATCH, 422)
    assert refused.pointer == "/reference/version"


def test_each_check_speaks_over_the_whole_list_before_the_next() -> None:
    request = _example()
    request["reference"]["labels"].append({"queryId": "unknown", "id": "a", "gain": 0})
    request["queries"].append(request["queries"][0])
    request["workflow"]["documentIds"].append("gone")
    request["corpus"]["documents"][0]["access"] = "revoked"
    request["corpus"]["sha256"] = "0" * 64
    request["reference"]["version"] = "v2"
    mend: list[tuple[ErrorCode, Change]] = [
        (ErrorCode.INVALID_INPUT, lambda r: r["reference"]["labels"].pop()),
        (ErrorCode.DUPLICATE_ID, lambda r: r["queries"].pop()),
        (ErrorCode.DOCUMENT_MISSING, lambda r: r["workflow"]["documentIds"].pop()),
        (ErrorCode.ACCESS_REVOKED, lambda r: r["corpus"]["documents"][0].update(access="granted")),
        (ErrorCode.CORPUS_CHANGED, lambda r: r["corpus"].update(sha256=None)),
        (ErrorCode.REFERENCE_VERSION_MISMATCH, lambda r: r["reference"].update(version="v1")),
    ]
    for code, change in mend:
        assert _refusal(request).code == code
        change(request)
    assert _result(request) == _result(_example())


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda r: r["workflow"]["documentIds"].append("reset"), "/workflow/documentIds/3"),
        (lambda r: r["corpus"]["documents"].append(r["corpus"]["documents"][0]), "/corpus/documents/3/id"),
        (lambda r: r["queries"].append({"id": "q1", "text": ""}), "/queries/1/id"),
        (lambda r: r["reference"]["labels"].append(r["reference"]["labels"][0]), "/reference/labels/2/id"),
    ],
)
def test_a_repeated_id_is_refused_at_its_second_place(change: Change, pointer: str) -> None:
    request = _example()
    change(request)
    refused = _refusal(request)
    assert (refused.code, refused.pointer) == (ErrorCode.DUPLICATE_ID, pointer)


def test_documents_that_are_not_named_may_repeat() -> None:
    request = _example()
    request["corpus"]["documents"] += [{**request["corpus"]["documents"][0], "id": "other"}] * 2
    assert _result(request) == _result(_example())


# What is searched.


def test_a_document_after_the_cutoff_is_not_searched_but_counted_and_its_label_stays_in_the_population() -> None:
    request = _example()
    # One nanosecond, across offsets.
    request["corpus"]["documents"][0]["publishedAt"] = "2026-01-01T01:00:00.000000001+01:00"
    result = _result(request)
    assert result["corpus"]["documentCount"] == 3
    assert result["corpus"]["excludedAfterCutoffCount"] == 1
    assert [hit["id"] for hit in result["observations"][0]["returned"]] == ["login"]
    row = result["measurement"]["observations"][0]
    assert (row["relevantPopulationCount"], row["missedRelevantIds"]) == (2, ["reset"])


def test_a_document_at_the_cutoff_is_searched() -> None:
    request = _example()
    request["corpus"]["documents"][0]["publishedAt"] = "2025-12-31T19:00:00-05:00"
    assert _result(request)["corpus"]["excludedAfterCutoffCount"] == 0


def test_documents_after_the_cutoff_do_not_weigh_in_the_scores() -> None:
    request = _example()
    request["workflow"]["documentIds"].append("late")
    late = {"id": "late", "text": "password", "publishedAt": "2027-01-01T00:00:00Z", "access": "granted"}
    request["corpus"]["documents"].append(late)
    assert _result(request)["observations"] == _result(_example())["observations"]


def test_labels_for_documents_that_are_not_named_stay_in_the_population() -> None:
    request = _example()
    request["reference"]["labels"].append({"queryId": "q1", "id": "elsewhere", "gain": 2})
    row = _result(request)["measurement"]["observations"][0]
    assert (row["relevantPopulationCount"], row["missedRelevantIds"]) == (3, ["elsewhere"])


def test_ties_are_ordered_marked_and_bounded() -> None:
    texts = {"b": "t", "a": "t", "c": "t t", "d": "t"}
    labels = [{"queryId": "q0", "id": one, "gain": gain} for one, gain in {"c": 0, "a": 1, "b": 0, "d": 0}.items()]
    result = _result(_request(texts, ["t"], 2, labels, True))
    returned = result["observations"][0]["returned"]
    assert [(hit["rank"], hit["id"], hit["tieGroup"]) for hit in returned] == [
        (1, "c", 1),
        (2, "a", 2),
        (3, "b", 2),
        (4, "d", 2),
    ]
    # Another of the three could have stood at rank 2.
    row = result["measurement"]["observations"][0]
    assert row["metrics"]["recall"]["value"] == 1
    assert row["tieBounds"]["recall"] == {"min": 0, "max": 1}


@pytest.mark.parametrize(("count", "cut"), [(100, False), (101, True)])
def test_a_tie_cut_by_the_bound_makes_every_available_bound_unavailable(count: int, cut: bool) -> None:
    texts = {f"{position:03}": "t" for position in range(count)}
    labels = [{"queryId": "q0", "id": "000", "gain": 1}]
    result = _result(_request(texts, ["t"], 1, labels, False))
    assert len(result["observations"][0]["returned"]) == 100
    bounds = result["measurement"]["observations"][0]["tieBounds"]
    # The population is incomplete, so recall and nDCG are not available in the first place.
    assert set(bounds) == {"precision", "reciprocalRank"}
    reason = "TIES_CUT" if cut else "UNLABELED_RETURNED_UNIT"
    assert all(one == {"status": "unavailable", "reasons": [reason]} for one in bounds.values())


def test_nothing_to_search_and_nothing_to_search_for_are_no_errors() -> None:
    request = _request({"a": "..."}, ["", "!!!", "x"], 3, None, False)
    assert all(row["returned"] == [] for row in _result(request)["observations"])
    request["corpus"]["documents"][0]["publishedAt"] = "2030-01-01T00:00:00Z"
    assert _result(request)["corpus"]["excludedAfterCutoffCount"] == 1


def test_the_conventions_and_the_tool_page_say_that_it_is_lexical_and_what_not_to_claim() -> None:
    text = " ".join(_result(_example())["conventions"])
    for words in ("Search is lexical", "No reranker, no vectors, no relevance inference", "TIES_CUT"):
        assert words in text
    notes = " ".join(OPERATION.notes)
    assert "Unicode tables" in notes
    for words in ("exhaustive recall", "hybrid-system results separately", "used it faithfully"):
        assert words in text
        assert words in notes


# What is refused.


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda r: r["workflow"].update(kind="search"), "/workflow/kind"),
        (lambda r: r["workflow"].update(method="vector"), "/workflow/method"),
        (lambda r: r["workflow"].update(topK=101), "/workflow/topK"),
        (lambda r: r["workflow"].update(documentIds=[]), "/workflow/documentIds"),
        (lambda r: r["workflow"].update(documentIds=[str(i) for i in range(501)]), "/workflow/documentIds"),
        (lambda r: r["workflow"].update(cutoff="2026-01-01T00:00:60Z"), "/workflow/cutoff"),
        (lambda r: r["corpus"].update(documents=[]), "/corpus/documents"),
        (lambda r: r["corpus"].pop("sha256"), "/corpus/sha256"),
        (lambda r: r["corpus"].update(sha256="0" * 63), "/corpus/sha256"),
        (lambda r: r["corpus"]["documents"][0].update(publishedAt="2025-06-01"), "/corpus/documents/0/publishedAt"),
        (lambda r: r["corpus"]["documents"][0].update(access="yes"), "/corpus/documents/0/access"),
        (lambda r: r.update(queries=[]), "/queries"),
        (lambda r: r["queries"][0].update(text="x" * 401), "/queries/0/text"),
        (lambda r: r.pop("reference"), "/reference"),
        (lambda r: r["reference"]["labels"][0].update(gain=-1), "/reference/labels/0/gain"),
        (lambda r: r["reference"].update(populationComplete="true"), "/reference/populationComplete"),
    ],
)
def test_the_published_schema_and_the_service_refuse_the_same(change: Change, pointer: str) -> None:
    request = _example()
    assert SCHEMA.is_valid(request)
    change(request)
    assert not SCHEMA.is_valid(request)
    refused = _refusal(request)
    assert (refused.code, refused.pointer) == (ErrorCode.INVALID_INPUT, pointer)


def test_a_query_of_400_code_points_and_an_empty_text_are_accepted() -> None:
    request = _example()
    request["queries"][0]["text"] = "😀" * 400
    request["corpus"]["documents"][0]["text"] = ""
    assert _result(request)["observations"][0]["returned"] == []


def test_a_query_has_at_most_500_labels() -> None:
    request = _example()
    labels = [{"queryId": "q1", "id": f"l{position}", "gain": 0} for position in range(501)]
    request["reference"]["labels"] = labels[:500]
    assert _result(request)
    request["reference"]["labels"] = labels
    refused = _refusal(request)
    assert (refused.code, refused.pointer) == (ErrorCode.INVALID_INPUT, "/reference/labels/500")
