"""The outside judge `hostile-facilitator`: an impatient buyer, hidden settlements, and one payment each time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from ast import literal_eval
from pathlib import Path

HERE = Path(__file__).parent


def test_no_mode_of_the_battery_sees_a_second_payment(tmp_path: Path) -> None:
    result, log = tmp_path / "result.json", tmp_path / "buyer.log"
    judge = Path(sysconfig.get_path("scripts")) / "hostile-facilitator"
    buy = [sys.executable, str(HERE / "buy_from_hostile.py")]
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "BUYER_LOG": str(log)}
    done = subprocess.run(
        [judge, "test", "--client-timeout", "1", "--json", result, "--", *buy],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert len(re.findall(r"\[PASS\]", done.stdout)) == 6
    said = json.loads(result.read_text())
    assert said["harness"] == {"valid": True, "clean_control_settlements": 1}
    # Four modes lose the answer of the settlement and then try a read that our service does not do: an operator does.
    modes = {row["mode"]: row for row in said["results"]}
    assert {row["verdict"] for row in modes.values()} == {"pass", "not_exercised"}
    assert {name for name, row in modes.items() if row["verdict"] == "not_exercised"} == {
        "reconcile_unavailable",
        "reconcile_soft_404",
        "reconcile_oversized",
        "reconcile_truncated",
    }
    for row in modes.values():
        assert (row["distinct"], row["settle_calls"], row["unidentified"]) == (1, 1, 0), row
    # Where the settlement was hidden the buyer was told 409 each time: the official client had nothing to sign again.
    buyers = [literal_eval(line) for line in log.read_text().splitlines()]
    assert sorted(buyers) == [[200]] * 3 + [[409, 409, 409]] * 7
