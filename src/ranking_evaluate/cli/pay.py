"""`ranking-evaluate pay`: one purchase with a wallet of your own, and never two. `cli/buying.py` has the rules."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import typer

from ranking_evaluate.cli.buying import Order, run_pay
from ranking_evaluate.cli.exchange import http_client, read_receipt
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import Mandate, PayError
from ranking_evaluate.cli.streams import say, write_answer
from ranking_evaluate.contract.idempotency import is_key


def new_key() -> str:
    """Return a fresh random idempotency key."""
    return f"pay_{uuid.uuid4().hex}"


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise typer.BadParameter(f"{text!r} is not an amount.") from error
    if not amount.is_finite() or amount < 0:
        raise typer.BadParameter(f"{text!r} is not an amount.")
    return amount


def _protocol(text: str) -> str:
    if text not in PAYERS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(repr(name) for name in PAYERS)}.")
    return text


def _key(text: str | None) -> str | None:
    if text is not None and not is_key(text):
        raise typer.BadParameter("16 to 128 letters, digits, hyphens and underscores, please.")
    return text


def pay(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The paid route, such as https://HOST/v1/x402/ranking-evaluate.")
    ],
    protocol: Annotated[
        str,
        typer.Option(callback=_protocol, metavar=f"[{'|'.join(PAYERS)}]", help="The payment protocol of the route."),
    ],
    input_file: Annotated[
        typer.FileBinaryRead, typer.Option("--input", metavar="FILE", help="The input JSON, or - for standard input.")
    ],
    key: Annotated[
        str | None,
        typer.Option(
            callback=_key, help="The Idempotency-Key of the purchase; a fresh one is made when none is given."
        ),
    ] = None,
    max_amount: Annotated[
        str | None,
        typer.Option(
            help="The most that may be paid, in whole units of the asset; by default this release's highest price."
        ),
    ] = None,
    asset: Annotated[
        str | None,
        typer.Option(help="The one asset to pay with, by address; by default only dollars that the SDK knows."),
    ] = None,
    decimals: Annotated[
        int | None,
        typer.Option(min=0, max=30, help="x402: the decimals of --asset, where the SDK does not know the token."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="The one network to pay on, such as eip155:8453; by default any that has a known dollar."),
    ] = None,
    rpc_url: Annotated[
        str | None,
        typer.Option(help="MPP: the chain's node; by default RANKING_EVALUATE_MPP_RPC_URL, else the SDK's own."),
    ] = None,
    state_dir: Annotated[Path, typer.Option(help="Where is kept what was signed, sent and answered.")] = Path(
        ".ranking-evaluate"
    ),
    sign_again: Annotated[
        bool,
        typer.Option(
            "--sign-again",
            help="Sign a new payment under a key that was sent before, once that payment has expired and the service "
            "says that nothing was charged.",
        ),
    ] = False,
) -> None:
    """Buy one answer with the wallet key in RANKING_EVALUATE_WALLET_KEY.

    The answer goes to standard output byte for byte, everything else to standard error. After a lost connection run
    the same command with the same --key: it sends the same credential again and cannot pay twice, at no server.

    Exit codes: 0 answered; 1 not answered and not charged; 2 wrong usage; 3 it is not clear whether it was charged.
    """
    from ranking_evaluate.contract.document import highest_price_usd
    from ranking_evaluate.settings import read_wallet

    limit = _amount(highest_price_usd() if max_amount is None else max_amount)
    wallet = read_wallet()
    if wallet.key is None:
        raise typer.BadParameter("Put the private key of the wallet into the variable RANKING_EVALUATE_WALLET_KEY.")
    if key is None:
        key = new_key()
        say(f"Idempotency key: {key}")
    order = Order(url=url, protocol=protocol, body=input_file.read(), key=key)
    mandate = Mandate(
        wallet_key=wallet.key,
        key=key,
        max_amount=limit,
        asset=asset,
        decimals=decimals,
        network=network,
        rpc_url=rpc_url or wallet.mpp_rpc_url,
    )
    try:
        with http_client(url) as client:
            answer = run_pay(order, mandate, state_dir=state_dir, client=client, say=say, sign_again=sign_again)
    except PayError as error:
        say(str(error))
        raise typer.Exit(error.exit_code) from error
    write_answer(answer.body)
    if answer.receipt is not None:
        receipt = read_receipt(answer.receipt)
        is_paid = PAYERS[protocol].facts(receipt).success
        done = "Paid" if is_paid else "Answered, but the receipt does not say that the payment succeeded"
        say(f"{'Replayed' if answer.replayed else done}. Receipt: {json.dumps(receipt)}")
