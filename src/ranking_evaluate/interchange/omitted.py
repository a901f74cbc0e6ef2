"""The line that tells which topics are in no input, so that nobody takes the averages of the others for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict

import orjson

_START: Final = b'{"omitted":'


class Omitted(TypedDict):
    """One topic that fits no input, and why."""

    id: str
    reason: str


def write(reasons: Mapping[str, str]) -> bytes:
    """Return the line, without its newline, for topics and the reason of each."""
    return orjson.dumps({"omitted": [Omitted(id=topic, reason=reason) for topic, reason in reasons.items()]})


def read(line: bytes) -> list[Omitted] | None:
    """Return what the line tells; None when it is another line, such as an input or a response."""
    if not line.lstrip().startswith(_START):
        return None
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    told = found["omitted"]
    is_whole = len(found) == 1 and isinstance(told, list) and all(map(_is_omitted, told))
    return told if is_whole else None


def _is_omitted(one: object) -> bool:
    return (
        isinstance(one, dict) and one.keys() == {"id", "reason"} and all(isinstance(text, str) for text in one.values())
    )
