"""The pin of a corpus: one digest of its documents, so that a changed corpus is never measured as the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ranking_evaluate.core import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ranking_evaluate.core.canonical import JsonValue


def pin(documents: Iterable[tuple[str, str, str]]) -> str:
    """Return the digest of a corpus.

    It changes with any id, text or date as sent, but not with the order of the documents.

    Args:
        documents: The id, text and date of publication of each document; the ids are distinct.
    """
    rows: list[JsonValue] = [
        {"id": document, "publishedAt": published_at, "textSha256": canonical.sha256(text.encode())}
        for document, text, published_at in sorted(documents)
    ]
    return canonical.sha256(canonical.encode(rows))
