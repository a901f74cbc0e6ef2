"""`ranking-evaluate demo`: one paid evaluation over every protocol, on this machine, with everything checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import httpx
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ranking_evaluate import evaluate
from ranking_evaluate.cli.buying import Order
from ranking_evaluate.cli.exchange import http_client, read_receipt
from ranking_evaluate.cli.pay import new_key
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import Mandate, PayError, ReceiptFacts
from ranking_evaluate.cli.sandbox import require_sandbox, termination_as_interrupt
from ranking_evaluate.cli.streams import say
from ranking_evaluate.operations import registry
from ranking_evaluate.operations.figures import LABELS

if TYPE_CHECKING:
    from ranking_evaluate.sandbox import FundedProtocol

OPERATION: Final = "ranking-evaluate"

# A help centre's search, judged by its editors: 3 answers the question, 2 helps, 1 touches on it, 0 is of no use.
INPUT: Final[dict[str, Any]] = {
    "k": 5,
    "unjudged": "nonrelevant",
    "queries": [
        {
            "id": "change delivery address",
            "retrieved": ["orders/address", "account/profile", "orders/track", "returns/label", "orders/cancel"],
            "judgments": [
                {"id": "orders/address", "grade": 3},
                {"id": "account/profile", "grade": 2},
                {"id": "orders/cancel", "grade": 1},
                {"id": "orders/track", "grade": 0},
                {"id": "returns/label", "grade": 0},
            ],
        },
        {
            "id": "refund not received",
            "retrieved": ["payments/methods", "refunds/timing", "returns/start", "refunds/partial", "news/spring-sale"],
            "judgments": [
                {"id": "refunds/timing", "grade": 3},
                {"id": "refunds/missing", "grade": 3},
                {"id": "refunds/partial", "grade": 2},
                {"id": "returns/start", "grade": 1},
                {"id": "payments/methods", "grade": 0},
            ],
        },
        {
            "id": "warranty for a gift",
            "retrieved": ["gifts/wrapping", "gifts/cards", "warranty/register", "gifts/receipts", "warranty/terms"],
            "judgments": [
                {"id": "warranty/terms", "grade": 3},
                {"id": "gifts/receipts", "grade": 2},
                {"id": "warranty/register", "grade": 1},
                {"id": "gifts/cards", "grade": 0},
            ],
        },
        {
            "id": "talk to a person",
            "retrieved": ["news/opening-hours", "account/close", "jobs/support"],
            "judgments": [{"id": "contact/phone", "grade": 3}, {"id": "contact/chat", "grade": 3}],
        },
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """What was seen while one answer was bought and fetched again; balances are (payer, payee) in base units."""

    key: str
    challenge: httpx.Response
    paid: httpx.Response
    replay: httpx.Response
    receipt: ReceiptFacts
    before: tuple[int, int]
    after: tuple[int, int]
    after_replay: tuple[int, int]


class DemoError(Exception):
    """The demonstration cannot go on; the text says what the service answered instead."""


def buy(funded: FundedProtocol, origin: str, body: bytes) -> Purchase:
    """Buy one answer over `protocol` with the official client, then send the same request again.

    Raises:
        DemoError: The service did not answer as it must.
    """
    payer = PAYERS[funded.protocol]
    key = new_key()
    order = Order(url=f"{origin}/v1/{funded.protocol}/{OPERATION}", protocol=funded.protocol, body=body, key=key)
    before = _balances(funded)
    with http_client(order.url) as client:
        challenge = _expect(402, client.post(order.url, content=body, headers=order.headers))
        price = Decimal(registry.find(OPERATION).price_base_units).scaleb(-funded.decimals)
        mandate = Mandate(
            wallet_key=funded.payer.key, key=key, max_amount=price, asset=funded.asset, rpc_url=funded.rpc
        )
        signed = payer.sign(challenge, mandate)
        headers = {**order.headers, signed.header: signed.value}
        paid = _expect(200, client.post(order.url, content=body, headers=headers))
        after = _balances(funded)
        replay = _expect(200, client.post(order.url, content=body, headers=headers))
    receipt = read_receipt(paid.headers.get(payer.wire.receipt_header, ""))
    return Purchase(
        key=key,
        challenge=challenge,
        paid=paid,
        replay=replay,
        receipt=payer.facts(receipt),
        before=before,
        after=after,
        after_replay=_balances(funded),
    )


def check(funded: FundedProtocol, purchase: Purchase, local: bytes) -> list[tuple[str, bool]]:
    """Return every claim about the purchase, and whether it holds."""
    price = registry.find(OPERATION).price_base_units
    header = PAYERS[funded.protocol].wire.receipt_header
    receipt, paid, replay = purchase.receipt, purchase.paid, purchase.replay
    (payer_before, payee_before), (payer_after, payee_after) = purchase.before, purchase.after
    return [
        ("without a payment the service only names its price", purchase.challenge.status_code == 402),
        ("the paid answer is the free local evaluate()'s, byte for byte", paid.content == local),
        ("the receipt is of a payment that the chain confirms", receipt.success and _is_confirmed(funded, receipt)),
        *_naming_claims(funded, purchase),
        _paid_claim(funded, payer_before - payer_after, price),
        ("the payee has received it", payee_after - payee_before == price),
        ("a replay answers with the same bytes", replay.content == paid.content),
        ("and the same receipt", header in replay.headers and replay.headers[header] == paid.headers[header]),
        ("and says Idempotent-Replayed: true", replay.headers.get("Idempotent-Replayed") == "true"),
        ("the first answer does not say so", "Idempotent-Replayed" not in paid.headers),
        ("the replay moved no money", purchase.after_replay == purchase.after),
    ]


def _naming_claims(funded: FundedProtocol, purchase: Purchase) -> list[tuple[str, bool]]:
    """Return the claims about whom the receipt names, as far as receipts of this protocol name anybody."""
    receipt = purchase.receipt
    claims = []
    if receipt.payer is not None:
        claims.append(("it names our payer", receipt.payer.lower() == funded.payer.address.lower()))
    if receipt.network is not None:
        claims.append(("it names this network", receipt.network == funded.network))
    if receipt.key is not None:
        claims.append(("it names our Idempotency-Key", receipt.key == purchase.key))
    return claims


def _paid_claim(funded: FundedProtocol, paid: int, price: int) -> tuple[str, bool]:
    if funded.takes_gas_in_asset:
        return "the payer paid the price, and the chain's fee of at most a cent", price < paid <= 2 * price
    return "the payer paid the price exactly", paid == price


def scores_table(response: Mapping[str, Any]) -> Table:
    """Return the scores of every query, and their means."""
    result = response["result"]
    table = Table(box=box.ROUNDED, title=f"Scores at k = {result['k']}", title_justify="left", title_style="bold")
    table.add_column("query")
    for heading in LABELS.values():
        table.add_column(heading, justify="right")
    for query in result["queries"]:
        table.add_row(query["id"], *(_score(query[name]) for name in LABELS))
    table.add_section()
    table.add_row("mean (macro average)", *(_score(result["macro"][name]) for name in LABELS), style="bold")
    return table


def receipt_table(funded: FundedProtocol, purchase: Purchase) -> Table:
    """Return what the receipt says."""
    receipt = purchase.receipt
    # Without a frame a transaction's hash fits on one line of 80 columns, where it can be copied.
    table = Table.grid(padding=(0, 2))
    table.title, table.title_justify, table.title_style = f"\nReceipt ({funded.protocol})", "left", "bold"
    table.add_row("transaction", receipt.transaction)
    table.add_row("network", receipt.network or funded.network)
    table.add_row("payer", receipt.payer or funded.payer.address)
    received = purchase.after[1] - purchase.before[1]
    table.add_row("amount", f"{_units(int(receipt.amount or received), funded)} {funded.asset_name}")
    return table


def balances_table(funded: FundedProtocol, purchase: Purchase) -> Table:
    """Return what payer and payee had before the payment, after it, and after the replay."""
    table = Table(box=box.ROUNDED, title=f"\nBalances in {funded.asset_name}", title_justify="left", title_style="bold")
    for heading in ("", "before", "after", "after the replay"):
        table.add_column(heading, justify="right" if heading else "left")
    columns = (purchase.before, purchase.after, purchase.after_replay)
    for row, name in enumerate(("payer", "payee")):
        table.add_row(name, *(_units(column[row], funded) for column in columns))
    return table


def demo() -> None:
    """Run the whole service on this machine and buy one evaluation over each payment protocol.

    Exit codes: 0 every claim that it prints was checked and holds; 1 one does not hold, or something broke down; 2
    something must be installed first.
    """
    require_sandbox()
    from ranking_evaluate.sandbox import Sandbox, SandboxError

    console = Console()
    body = json.dumps(INPUT).encode()
    failed: list[str] = []
    try:
        with termination_as_interrupt():
            console.print("Starting two local chains, a test token, a facilitator and the service ...")
            with Sandbox() as running:
                console.print(f"The service runs at {running.origin}. A help centre's search is evaluated.\n")
                local = evaluate(OPERATION, body)
                answers: set[bytes] = set()
                for number, funded in enumerate(running.protocols):
                    purchase = buy(funded, running.origin, body)
                    answers.add(purchase.paid.content)
                    if number == 0:
                        console.print(scores_table(purchase.paid.json()))
                    console.print(receipt_table(funded, purchase))
                    console.print(balances_table(funded, purchase))
                    console.print(f"\nChecked ({funded.protocol})", style="bold")
                    for claim, holds in check(funded, purchase, local):
                        console.print(f"  [green]ok[/]      {claim}" if holds else f"  [bold red]FAILED[/]  {claim}")
                        if not holds:
                            failed.append(f"{funded.protocol}: {claim}")
                if len(answers) > 1:
                    failed.append("both protocols sell the same bytes")
                elif len(running.protocols) > 1:
                    console.print("\nEvery protocol sold the same bytes.")
    except (SandboxError, PayError, DemoError, httpx.HTTPError, OSError) as error:
        say(f"The demonstration failed. {error}")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        say("Interrupted.")
        raise typer.Exit(130) from None
    if failed:
        say("The demonstration failed. Not true: " + "; ".join(failed))
        raise typer.Exit(1)
    console.print("\nEverything above was checked and holds.", style="bold green")


def _expect(status: int, response: httpx.Response) -> httpx.Response:
    if response.status_code != status:
        raise DemoError(f"Instead of {status} the service answered {response.status_code}: {response.text[:1000]}")
    return response


def _balances(funded: FundedProtocol) -> tuple[int, int]:
    return funded.balance(funded.payer.address), funded.balance(funded.payee)


def _is_confirmed(funded: FundedProtocol, receipt: ReceiptFacts) -> bool:
    return len(receipt.transaction) == 66 and funded.is_confirmed(receipt.transaction)


def _score(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _units(amount: int, funded: FundedProtocol) -> str:
    return f"{Decimal(amount).scaleb(-funded.decimals):,.{funded.decimals}f}"
