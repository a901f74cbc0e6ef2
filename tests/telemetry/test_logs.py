from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import structlog

from ranking_evaluate import telemetry


class Full:
    """A disk without room, or a pipe whose reader is gone."""

    def __init__(self) -> None:
        self.refused: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.refused.append(line)
        raise OSError("no space left on device")

    def flush(self) -> None:
        raise OSError("no space left on device")


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full()
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(buffer=full))
    try:
        telemetry.configure_logs("info")
        telemetry.alarm("unrecorded_money", "money moved and is not recorded yet")
    finally:
        structlog.reset_defaults()
    assert b"money moved and is not recorded yet" in full.refused[0]
