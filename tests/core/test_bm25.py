from __future__ import annotations

import math
import random

import bm25s  # type: ignore[import-untyped]
import pytest

from ranking_evaluate.core import bm25


def _oracle(corpus: dict[str, str], query: str) -> dict[str, float]:
    """Return what bm25s says; it is asked nothing that it cannot answer."""
    words = [bm25.tokens(text) for text in corpus.values()]
    vocabulary = {word for text in words for word in text}
    known = [word for word in bm25.tokens(query) if word in vocabulary]
    if not known:
        return {}
    peer = bm25s.BM25(method="lucene", k1=1.2, b=0.75, dtype="float64")
    peer.index(words, show_progress=False)
    scores = peer.get_scores(known)
    matching = [not set(known).isdisjoint(text) for text in words]
    return {one: float(score) for one, score, does in zip(corpus, scores, matching, strict=True) if does}


def test_scores_equal_those_of_bm25s_on_500_random_corpora() -> None:
    chance = random.Random(25)
    words = ["reset", "password", "Login", "vpn", "STRASSE", "straße", "x_y", "don't", "7", "ﬁne", "日本語", "...", "a"]
    for _ in range(500):
        corpus = {
            f"d{position}": " ".join(chance.choices(words, k=chance.randrange(12)))
            for position in range(chance.randrange(1, 12))
        }
        query = " ".join(chance.choices([*words, "absent"], k=chance.randrange(6)))
        expected = _oracle(corpus, query)
        scores = bm25.Index(corpus).scores(query)
        assert scores.keys() == expected.keys()
        for document, score in scores.items():
            assert abs(score - expected[document]) < 1e-9
            # Stronger than promised: before the rounding, the doubles are the same.
            assert score == round(expected[document], bm25.DECIMALS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't PANIC", ["don", "t", "panic"]),
        ("snake_case kebab-case", ["snake_case", "kebab", "case"]),
        ("Straße", ["strasse"]),
        ("ﬁne", ["fine"]),
        ("日本語 ٣", ["日本語", "٣"]),
        ("", []),
        ("!!! ...", []),
    ],
)
def test_tokens_are_the_words_of_the_case_folded_text(text: str, expected: list[str]) -> None:
    assert bm25.tokens(text) == expected


def test_the_formula_is_the_stated_one() -> None:
    # Two of three documents hold the term; lengths are 2, 1 and 0, one on average.
    index = bm25.Index({"a": "x x", "b": "x", "c": ""})
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    assert index.scores("x") == {
        "a": round(idf * (2 / (1.2 * ((1 - 0.75) + 0.75 * 2 / 1) + 2)), 12),
        "b": round(idf * (1 / (1.2 * ((1 - 0.75) + 0.75 * 1 / 1) + 1)), 12),
    }


def test_repeated_terms_add_up() -> None:
    index = bm25.Index({"a": "x y", "b": "y"})
    # Each score is rounded once.
    assert abs(index.scores("x x x")["a"] - 3 * index.scores("x")["a"]) < 2e-12


def test_an_empty_corpus_an_empty_query_and_a_corpus_without_words_return_nothing() -> None:
    assert bm25.Index({}).search("x", 10, 100) == ([], False)
    assert bm25.Index({"a": "x"}).search("", 10, 100) == ([], False)
    assert bm25.Index({"a": "", "b": "..."}).search("x", 10, 100) == ([], False)


def test_documents_that_truly_tie_share_a_group_however_their_sums_were_rounded() -> None:
    # The same three terms weigh the same in both documents, added in different orders.
    index = bm25.Index({"a": "p q q r r r", "b": "r q q p p p", "c": "p", "d": "r"})
    hits = index.search("p q r r q p", 10, 100).hits
    groups = {hit.id: hit.tie_group for hit in hits}
    assert groups["a"] == groups["b"]
    assert groups["c"] == groups["d"]


def test_hits_are_ordered_by_score_then_by_code_point_and_grouped_by_equal_scores() -> None:
    hits = bm25.Index({"～": "t", "😀": "t", "a": "t", "B": "t", "z": "t t"}).search("t", 100, 100).hits
    assert [(hit.id, hit.tie_group) for hit in hits] == [("z", 1), ("B", 2), ("a", 2), ("～", 2), ("😀", 2)]


@pytest.mark.parametrize(
    ("top_k", "most", "returned", "cut"),
    [(1, 100, 1, False), (2, 100, 4, False), (4, 100, 4, False), (5, 100, 5, False), (2, 3, 3, True), (1, 3, 1, False)],
)
def test_whatever_ties_with_the_last_is_returned_up_to_the_bound(
    top_k: int, most: int, returned: int, cut: bool
) -> None:
    index = bm25.Index({"a": "t t t", "b": "t t", "c": "t t", "d": "t t", "e": "t"})
    found = index.search("t", top_k, most)
    assert (len(found.hits), found.tie_is_cut) == (returned, cut)
