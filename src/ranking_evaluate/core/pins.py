"""The pin of a corpus: one digest over what its documents are, so that a changed corpus is never silently measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

from ranking_evaluate.core import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ranking_evaluate.core.canonical import JsonValue


class Document(TypedDict):
    """One document of a corpus, as on the wire."""

    id: str
    text: str
    publishedAt: str
    access: Literal["granted", "revoked"]


def pin(documents: Iterable[Document]) -> str:
    """Return the digest that changes with any id, text or date as sent, but not with the order of the documents."""
    rows: list[JsonValue] = [
        {
            "id": document["id"],
            "publishedAt": document["publishedAt"],
            "textSha256": canonical.sha256(document["text"].encode()),
        }
        for document in sorted(documents, key=lambda one: one["id"])
    ]
    return canonical.sha256(canonical.encode(rows))
