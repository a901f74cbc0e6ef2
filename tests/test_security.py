"""Every threat in SECURITY.md names a test, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
TABLE: Final = (ROOT / "SECURITY.md").read_text(encoding="utf-8").split("## Threats")[1].split("\n## ")[0]
ROWS: Final = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]


def test_there_are_threats() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip()[:40] for row in ROWS])
def test_each_threat_names_a_test_that_is_there(row: str) -> None:
    _, threat, defence, test, _ = row.split("|")
    assert threat.strip()
    assert defence.strip()
    named = re.fullmatch(r" `(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)` ", test)
    assert named, row
    source = (ROOT / named[1]).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {named[2]}\(", source, re.MULTILINE)
