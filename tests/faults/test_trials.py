"""76 kills of the real service in the middle of purchases; with `test_trials_postgres.py` a hundred; and the keeper.

A trial is one kill -9 with four purchases under way, which callers, a provider and an operator make difficult; see
`trials.py`. `scripts/trials` makes thousands.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.lives import Nursery
from tests.faults.trials import run

TRIALS = 76
"""Nearly every named point twice, and as many random moments."""

PURCHASES = 4


def test_killed_at_every_point_and_at_random_nobody_pays_twice_and_no_receipt_is_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'attempts.db'}"
    with Nursery() as nursery:
        report = asyncio.run(run(nursery, url, tmp_path, trials=TRIALS, seed=20261130, plots=PURCHASES))
    report.hold(TRIALS)


def test_what_is_uncertain_after_a_kill_the_services_decide_by_the_chain_in_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'attempts.db'}"
    with Nursery() as nursery:
        report = asyncio.run(run(nursery, url, tmp_path, trials=20, seed=20261201, plots=PURCHASES, with_keeper=True))
    assert report.violations == []
    assert report.trials == 20
    assert {"settled", "uncertain", "released"} <= report.ended.keys()
