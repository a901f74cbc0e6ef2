"""`ranking-evaluate sales`: the operator's books, from the store that the service writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from ranking_evaluate.cli.attempt_views import print_json, print_table, tokens
from ranking_evaluate.cli.attempts import open_store, run
from ranking_evaluate.cli.streams import write
from ranking_evaluate.core.visible import visible
from ranking_evaluate.interchange.csv_table import csv_table

if TYPE_CHECKING:
    from ranking_evaluate.attempts.sales import Sale

PAGE: Final = 10_000
"""Sales that are read at once."""

TABLE_WIDTH: Final = 160
"""Columns for a payer, a network, an asset and the figures: an address that was folded could not be copied."""


AMOUNTS: Final = ("sold", "refunded", "kept")
"""The members that are base units of the asset."""


class By(StrEnum):
    """What the books are summed up by; currencies are never added up."""

    DAY = "day"
    OPERATION = "operation"
    NETWORK = "network"
    PAYER = "payer"


class Format(StrEnum):
    """How they are shown."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@dataclass(slots=True)
class Line:
    """What was sold and paid back of one group, in one asset of one network; amounts are base units of the asset."""

    group: str
    network: str
    asset: str
    sales: int = 0
    sold: int = 0
    refunds: int = 0
    refunded: int = 0

    @property
    def kept(self) -> int:
        """What was sold and not paid back."""
        return self.sold - self.refunded

    def document(self, by: By) -> dict[str, str | int]:
        """Return the line as JSON has it: amounts as text, since a reader of JSON may round a number."""
        members = asdict(self) | {"kept": self.kept}
        amounts = {name: str(members[name]) for name in AMOUNTS}
        return {by.value: members.pop("group"), **members, **amounts}


_FORMATS: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"]


def sales(
    since: Annotated[
        datetime | None, typer.Option(formats=_FORMATS, metavar="INSTANT", help="Only from then on, in UTC.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=_FORMATS, metavar="INSTANT", help="Only before then, in UTC.")
    ] = None,
    by: Annotated[By, typer.Option(help="What to sum up by.")] = By.DAY,
    output: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TABLE,
) -> None:
    """Show the books: what was sold and what was paid back, by day, operation, network or payer.

    A sale counts when its payment was recorded, a refund when `attempts refund` recorded it. Amounts of CSV and JSON
    are base units of the asset. The store is the one that RANKING_EVALUATE_DATABASE_URL names; the service may run
    meanwhile.

    Exit codes: 0 done; 2 a setting is wrong, or the store cannot be used.
    """
    lines = sum_up(run(_read()), by, _seconds(since, float("-inf")), _seconds(until, float("inf")))
    match output:
        case Format.JSON:
            totals = [_without_group(line.document(by), by) for line in _totals(lines)]
            print_json({"lines": [line.document(by) for line in lines], "totals": totals})
        case Format.CSV:
            write(_csv(lines, by).encode())
        case Format.TABLE:
            print_table(_table(lines, by), TABLE_WIDTH)


async def _read() -> list[Sale]:
    async with open_store() as store:
        found: list[Sale] = []
        while page := await store.sales(found[-1].id if found else 0, PAGE):
            found += page
        return found


def sum_up(found: Iterable[Sale], by: By, since: float, until: float) -> list[Line]:
    """Return the books of a time, in the order of their groups."""
    group_of: dict[By, Callable[[Sale, float], str]] = {
        By.DAY: lambda sale, at: datetime.fromtimestamp(at, UTC).date().isoformat(),
        By.OPERATION: lambda sale, at: sale.operation,
        By.NETWORK: lambda sale, at: sale.network,
        By.PAYER: lambda sale, at: sale.payer or "unknown",
    }
    lines: dict[tuple[str, str, str], Line] = {}

    def line(sale: Sale, at: float) -> Line:
        names = (group_of[by](sale, at), sale.network, sale.asset)
        return lines.setdefault(names, Line(*names))

    for sale in found:
        if since <= sale.at < until:
            of = line(sale, sale.at)
            of.sales, of.sold = of.sales + 1, of.sold + sale.amount
        if sale.refunded_at is not None and since <= sale.refunded_at < until:
            of = line(sale, sale.refunded_at)
            of.refunds, of.refunded = of.refunds + 1, of.refunded + sale.amount
    return [lines[names] for names in sorted(lines)]


def _totals(lines: Iterable[Line]) -> list[Line]:
    totals: dict[tuple[str, str], Line] = {}
    for line in lines:
        total = totals.setdefault((line.network, line.asset), Line("total", line.network, line.asset))
        for name in ("sales", "sold", "refunds", "refunded"):
            setattr(total, name, getattr(total, name) + getattr(line, name))
    return list(totals.values())


def _without_group(document: dict[str, str | int], by: By) -> dict[str, str | int]:
    # By network the group and the network are one member.
    return document if by is By.NETWORK else {name: value for name, value in document.items() if name != by.value}


def _csv(lines: Iterable[Line], by: By) -> str:
    rows = [line.document(by) for line in lines]
    names = list(rows[0] if rows else Line("", "", "").document(by))
    return csv_table(names, ([_cell(name, row[name]) for name in names] for row in rows))


def _cell(name: str, value: str | int) -> str | int:
    # Text in JSON, where a reader might round it; in CSV a number, since what was paid back may exceed what was sold.
    return int(value) if name in AMOUNTS else value


def _table(lines: list[Line], by: By) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in (by.value, "network", "asset"):
        table.add_column(heading, no_wrap=True)
    for heading in ("sales", "sold", "refunds", "refunded", "kept"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in (*lines, *_totals(lines)):
        counts = (str(line.sales), tokens(line.sold), str(line.refunds), tokens(line.refunded), tokens(line.kept))
        table.add_row(*(visible(text) for text in (line.group, line.network, line.asset)), *counts)
    return table


def _seconds(instant: datetime | None, otherwise: float) -> float:
    return otherwise if instant is None else instant.replace(tzinfo=UTC).timestamp()
