"""The operator's books, refunds and backups, by the commands themselves."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ranking_evaluate.attempts.events import OperatorRelease, RecordSettled, RecordUncertain
from ranking_evaluate.attempts.postgres import PostgresStore
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.cli import app
from tests.attempts.samples import DAY, KEY, draft, settled, settling
from tests.fakes import FixedClock
from tests.postgres import PostgresServer

MIDNIGHT = 1_796_083_200.0
"""2026-12-01T00:00:00Z."""
BACK = "0x" + "cd" * 32
EURO = "0x" + "ee" * 20


def tx(number: int) -> str:
    return f"0x{number:064x}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with four sales: two of one day, one of the next, and one in another asset."""
    path = tmp_path / "attempts.db"
    clock = FixedClock(MIDNIGHT - 1)
    asset = draft().asset

    async def sell() -> None:
        store = SqliteStore(path, clock)
        await store.open()
        sold = (
            ("0xa", "one", asset, 10_000),
            ("0xb", "two", asset, 10_000),
            ("0xa", "one", asset, 2_500_000),
            ("0xa", "one", EURO, 7),
        )
        for number, (payer, operation, asset_, amount) in enumerate(sold):
            bought: dict[str, Any] = {"operation": operation, "asset": asset_, "payer": payer, "amount": amount}
            row = await settling(store, draft(f"c{number}", key=f"purchase-number-{number:04d}", **bought))
            await store.move(row.claim, RecordSettled("receipt", tx(number)))
            if number == 1:
                clock.advance(1)
        await store.close()

    asyncio.run(sell())
    return path


def command(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"RANKING_EVALUATE_DATABASE_URL": f"sqlite:///{path}"})


def lines(path: Path, *arguments: str) -> list[dict[str, object]]:
    done = command(path, "sales", "--format", "json", *arguments)
    assert done.exit_code == 0, done.output
    found: list[dict[str, object]] = json.loads(done.stdout)["lines"]
    return found


def test_the_books_are_summed_up_by_day_and_asset_in_exact_base_units(path: Path) -> None:
    asset = draft().asset
    assert [(line["day"], line["asset"], line["sales"], line["sold"]) for line in lines(path)] == [
        ("2026-11-30", asset, 2, "20000"),
        ("2026-12-01", asset, 1, "2500000"),
        ("2026-12-01", EURO, 1, "7"),
    ]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("operation", [("one", "2510000"), ("one", "7"), ("two", "10000")]),
        ("payer", [("0xa", "2510000"), ("0xa", "7"), ("0xb", "10000")]),
        ("network", [("eip155:84532", "2520000"), ("eip155:84532", "7")]),
    ],
)
def test_they_are_summed_up_by_what_is_asked_for(path: Path, by: str, expected: list[tuple[str, str]]) -> None:
    assert [(line[by], line["sold"]) for line in lines(path, "--by", by)] == expected


def test_a_time_begins_at_since_and_ends_before_until(path: Path) -> None:
    assert [line["sold"] for line in lines(path, "--since", "2026-12-01")] == ["2500000", "7"]
    assert [line["sold"] for line in lines(path, "--until", "2026-12-01T00:00:00Z")] == ["20000"]
    assert lines(path, "--since", "2026-12-02") == []


def test_a_refund_counts_on_its_own_day_beside_the_sales(path: Path) -> None:
    done = command(path, "attempts", "refund", "purchase-number-0000", "--tx", BACK.upper().replace("0X", "0x"))
    assert (done.exit_code, done.stdout.split(".")[0]) == (0, "Recorded")
    totals = json.loads(command(path, "sales", "--format", "json").stdout)["totals"]
    [dollars] = [total for total in totals if total["asset"] == draft().asset]
    assert (dollars["sold"], dollars["refunds"], dollars["refunded"], dollars["kept"]) == (
        "2520000",
        1,
        "10000",
        "2510000",
    )
    again = command(path, "attempts", "refund", "purchase-number-0000", "--tx", tx(9))
    assert (again.exit_code, BACK in again.stderr) == (1, True)
    shown = json.loads(command(path, "attempts", "show", "purchase-number-0000", "--json").stdout)
    assert [decision["what"] for decision in shown["decisions"]] == ["refunded"]


def test_a_refund_of_what_was_never_sold_is_refused(path: Path) -> None:
    unknown = command(path, "attempts", "refund", "nobody-bought-this-0001", "--tx", BACK)
    assert (unknown.exit_code, "no such payment" in unknown.stderr) == (1, True)
    malformed = command(path, "attempts", "refund", "purchase-number-0000", "--tx", "0x12")
    assert (malformed.exit_code, "0x and 64" in malformed.stderr) == (1, True)


def test_of_two_payments_under_a_key_the_refund_names_one(tmp_path: Path) -> None:
    path, clock = tmp_path / "attempts.db", FixedClock(MIDNIGHT)

    async def pay_twice() -> None:
        store = SqliteStore(path, clock)
        await store.open()
        row = await settling(store, draft())
        await store.move(row.claim, RecordUncertain("timeout"))
        await store.move(row.claim, OperatorRelease("ada", "forced"))
        await settled(store, draft("second"))
        await store.move(row.claim, RecordSettled("receipt", tx(1)))
        await store.close()

    asyncio.run(pay_twice())
    both = command(path, "attempts", "refund", KEY, "--tx", BACK)
    assert (both.exit_code, both.stderr.count("--tx-paid")) == (1, 2)
    assert command(path, "attempts", "refund", KEY, "--tx", BACK, "--tx-paid", tx(1)).exit_code == 0
    assert [line["refunded"] for line in lines(path, "--by", "network")] == ["10000"]


def test_csv_and_table_say_the_same(path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(command(path, "sales", "--format", "csv").stdout)))
    assert [row["sold"] for row in rows] == ["20000", "2500000", "7"]
    table = command(path, "sales").stdout
    assert [line.split()[0] for line in table.splitlines()] == ["day", *(row["day"] for row in rows), "total", "total"]
    assert "2.52" in table
    assert "0.000007" in table


def test_a_backup_of_a_store_in_use_is_restored_as_it_was(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"

    async def while_it_runs() -> Result:
        store = SqliteStore(path)
        await store.open()
        done = await asyncio.to_thread(command, path, "attempts", "backup", str(copy))
        await store.close()
        return done

    assert asyncio.run(while_it_runs()).exit_code == 0
    before = lines(path)
    path.unlink()
    copy.rename(path)

    async def restart() -> None:
        store = SqliteStore(path, FixedClock(MIDNIGHT + DAY))
        await store.open()
        await settled(store, draft("after", key="purchase-after-restoring"))
        await store.close()

    asyncio.run(restart())
    assert lines(path, "--until", "2026-12-02") == before
    assert len(lines(path)) == len(before) + 1


def test_a_backup_never_replaces_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "there.db").write_text("mine")
    done = command(path, "attempts", "backup", str(tmp_path / "there.db"))
    assert (done.exit_code, "exists" in done.stderr) == (2, True)
    assert (tmp_path / "there.db").read_text() == "mine"
    nowhere = command(path, "attempts", "backup", str(tmp_path / "no folder" / "copy.db"))
    assert (nowhere.exit_code, "cannot be written" in nowhere.stderr) == (2, True)


def test_a_shared_store_is_backed_up_by_its_own_tool(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.new_database()

    async def make() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    asyncio.run(make())
    environment = {"RANKING_EVALUATE_DATABASE_URL": url}
    done = CliRunner().invoke(app, ["attempts", "backup", str(tmp_path / "copy.db")], env=environment)
    assert (done.exit_code, "point-in-time recovery" in done.stderr) == (2, True)
