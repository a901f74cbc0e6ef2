"""BM25 over a small corpus: tokens, scores whose every rounding is stated, and hits with their tie groups.

score = sum over the query's tokens of idf (tf / (k1 ((1 - b) + b length / average) + tf)), added left to right in query
order, without a (k1 + 1) factor; idf = ln(1 + (N - n + 0.5) / (n + 0.5)). `bm25s` with method "lucene" is the oracle.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

K1: Final = 1.2
B: Final = 0.75

# Summation noise stands behind the 15th digit; without rounding it would split documents that truly tie.
DECIMALS: Final = 12

_SIGN: Final = re.compile(r"[^\w\s]")
_MARKS: Final = frozenset({"Mn", "Mc"})


class Hit(NamedTuple):
    """One document that matches a query; hits of equal score share a tie group, numbered from 1 by falling score."""

    id: str
    score: float
    tie_group: int


class Hits(NamedTuple):
    """What a search returns, best first, and whether the bound on hits left out some that tie with the last."""

    hits: list[Hit]
    tie_is_cut: bool


def tokens(text: str) -> list[str]:
    """Return the words of a text in order: the longest runs of letters, digits, marks and `_`, case folded after NFC.

    A mark belongs to its letter; `\\w` alone would cut Hindi, Thai and pointed Hebrew words into pieces. What is a
    letter, a digit or a mark follows the Unicode tables of the running Python.
    """
    return _SIGN.sub(_mark_or_space, unicodedata.normalize("NFC", text).casefold()).split()


def _mark_or_space(sign: re.Match[str]) -> str:
    return sign[0] if unicodedata.category(sign[0]) in _MARKS else " "


class Index:
    """The term statistics of a corpus, empty documents included.

    Args:
        texts: The text of each document by its id.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._ids = list(texts)
        self._lengths: list[int] = []
        self._frequencies: dict[str, dict[int, int]] = defaultdict(dict)
        for document, text in enumerate(texts.values()):
            words = tokens(text)
            self._lengths.append(len(words))
            for term, frequency in Counter(words).items():
                self._frequencies[term][document] = frequency
        self._average = sum(self._lengths) / len(self._lengths) if texts else 0.0
        self._weights: dict[str, dict[int, float]] = {}

    def scores(self, query: str) -> dict[str, float]:
        """Return the score of each document that holds a term of the query, rounded; repeated terms add up."""
        totals: dict[int, float] = defaultdict(float)
        for term in tokens(query):
            for document, weight in self._weights_of(term).items():
                totals[document] += weight
        return {self._ids[document]: round(total, DECIMALS) for document, total in totals.items()}

    def search(self, query: str, top_k: int, most: int) -> Hits:
        """Return the best `top_k` documents and whatever ties with the last of them, `most` in all.

        The order is score descending, then id by code point.
        """
        ranked = sorted(self.scores(query).items(), key=lambda hit: (-hit[1], hit[0]))
        hits: list[Hit] = []
        for group, (_, tied) in enumerate(groupby(ranked, key=lambda hit: hit[1]), 1):
            if len(hits) >= top_k:
                break
            hits += [Hit(document, score, group) for document, score in tied]
        return Hits(hits[:most], len(hits) > most)

    def _weights_of(self, term: str) -> dict[int, float]:
        """Return what one occurrence of the term in a query adds to each document that holds it."""
        if term not in self._weights:
            frequencies = self._frequencies.get(term, {})
            idf = math.log(1 + (len(self._ids) - len(frequencies) + 0.5) / (len(frequencies) + 0.5))
            self._weights[term] = {
                document: idf * (frequency / (K1 * ((1 - B) + B * self._lengths[document] / self._average) + frequency))
                for document, frequency in frequencies.items()
            }
        return self._weights[term]
