"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum


class Gain(StrEnum):
    """What a grade is worth to NDCG."""

    LINEAR = "linear"
    EXPONENTIAL = "exponential"
