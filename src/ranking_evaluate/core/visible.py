"""Text that somebody else wrote, as people may see it: on a terminal, in a page or in a pull request."""

from __future__ import annotations

import unicodedata
from typing import Final

_HIDING: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def visible(text: str) -> str:
    """Return a text with the number of each character in its place that a terminal obeys, or that deceives the reader.

    These are the control characters (escape sequences, line breaks and tabs too), half of a surrogate pair, and what
    turns letters around. Marks and joiners that scripts and emoji need are left alone.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if unicodedata.category(character) in _HIDING or unicodedata.bidirectional(character) in _TURNING:
        return f"⟨{ord(character):04X}⟩"
    return character
