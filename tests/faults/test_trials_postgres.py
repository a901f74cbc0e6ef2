"""Two replicas of the real service on one PostgreSQL: 24 trials, in which they die, and twice their database does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.lives import Nursery
from tests.faults.trials import run
from tests.postgres import PostgresServer

TRIALS = 24
PURCHASES = 4


def test_two_replicas_and_their_database_are_killed_and_nobody_pays_twice(
    tmp_path: Path, stoppable_server: PostgresServer
) -> None:
    url = stoppable_server.new_database()
    with Nursery() as nursery:
        report = asyncio.run(
            run(
                nursery,
                url,
                tmp_path,
                trials=TRIALS,
                seed=20261130,
                plots=PURCHASES,
                replicas=2,
                database=stoppable_server,
            )
        )
    report.hold(TRIALS)
    assert report.kills["the database"] == TRIALS // 10
