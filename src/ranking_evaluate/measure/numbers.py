"""How grades and scores are written in files."""

from __future__ import annotations

import math
import re
from typing import Final

_NUMBER: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY: Final = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
# Of more digits two ranks may be one number in binary64.
_RANK: Final = re.compile(rb"0*[0-9]{1,15}")


def grade_of(text: bytes) -> float | None:
    """Return a grade, an int where it is integral; None when it is none. It is finite."""
    if not _NUMBER.fullmatch(text):
        return None
    grade = float(text)
    if not math.isfinite(grade):
        return None
    return int(grade) if grade.is_integer() else grade


def score_of(text: bytes) -> float | None:
    """Return a score, which may be infinite; None when it is none: NaN would stand nowhere in a ranking."""
    return float(text) if _NUMBER.fullmatch(text) or _INFINITY.fullmatch(text) else None


def scores_of(texts: list[bytes]) -> list[float] | None:
    """Return all scores, None when any is none."""
    try:
        # Python reads digits that are grouped with underscores, which no other tool does.
        scores = [*map(float, texts)] if b"_" not in b"".join(texts) else None
    except ValueError:
        return None
    # A sum is NaN when a score is, or when infinities meet: then each is looked at.
    return scores if scores is None or not math.isnan(sum(scores)) else None


def rank_of(text: bytes) -> int | None:
    """Return a rank, None when it is none."""
    return int(text) if _RANK.fullmatch(text) else None
