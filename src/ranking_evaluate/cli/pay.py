"""`ranking-evaluate pay`: one purchase with a wallet of your own, and never two.

The rule behind every step: under one idempotency key at most one credential is alive. A credential is saved before it
is sent, sent again instead of signed again, and replaced only after it can no longer move money and the service has
said that nothing was charged.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer

from ranking_evaluate.cli import saved_credential
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import UNCLEAR, Mandate, PayError, Signed
from ranking_evaluate.cli.saved_credential import SavedCredential
from ranking_evaluate.cli.streams import say, write_answer
from ranking_evaluate.contract.idempotency import is_key
from ranking_evaluate.core.visible import visible

CONNECT_SECONDS: Final = 10.0
# Above the time in which the service settles, whatever its provider does.
ANSWER_SECONDS: Final = 130.0
PATIENCE_SECONDS: Final = 150.0
PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 30.0

WORDS_LENGTH: Final = 1000
"""Characters of each of a server's texts that are printed."""

_WORDS: Final = ("code", "detail", "nextStep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to buy."""

    url: str
    protocol: str
    body: bytes = field(repr=False)
    key: str

    @property
    def input_sha256(self) -> str:
        """The digest of the raw input."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def headers(self) -> dict[str, str]:
        """The request headers of every try."""
        return {"Content-Type": "application/json", "Idempotency-Key": self.key}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A delivered answer, its receipt header (None when nothing was charged), and whether it was a replay."""

    body: bytes = field(repr=False)
    receipt: str | None
    replayed: bool


def run_pay(
    order: Order,
    mandate: Mandate,
    *,
    state_dir: Path,
    client: httpx.Client,
    say: Callable[[str], None],
    patience: float = PATIENCE_SECONDS,
) -> Answer:
    """Make one purchase and return its answer.

    Args:
        order: What to buy.
        mandate: What may be signed for it.
        state_dir: Where signed credentials are kept.
        client: The HTTP client; it must not follow redirects.
        say: Tells the person what happens.
        patience: Seconds for which a credential whose outcome is open is sent again.

    Raises:
        PayError: There is no answer.
    """
    try:
        saved = saved_credential.latest(state_dir, order.key)
    except saved_credential.UnreadableFileError as error:
        raise PayError(f"{error} Nothing is signed without knowing what was signed before.", UNCLEAR) from error
    if saved is not None and (saved.url, saved.protocol, saved.input_sha256) != (
        order.url,
        order.protocol,
        order.input_sha256,
    ):
        raise PayError(f"The key {order.key} was used for another purchase (other URL, protocol or input).")
    state = _attempt_state(order, client)
    if state == "uncertain":
        raise PayError(
            "It is not known yet whether this purchase was charged. Do not pay again: the service's operator decides, "
            "then the same command with the same --key brings the answer or a new offer.",
            UNCLEAR,
        )
    if saved is None and state in {"reserved", "settling", "settled"}:
        raise PayError(
            f"The service has a {state} payment under this key, and its credential is not in {state_dir}. Nothing new "
            "is signed. Run this where the first payment was made.",
            UNCLEAR,
        )
    is_open = state in {None, "failed", "released"}
    if saved is None or (is_open and saved.is_dead(time.time())):
        challenge = _post(order, client, None)
        if challenge.is_success:
            say("The service asked for no payment.")
            return _answer(order, challenge)
        if challenge.status_code != httpx.codes.PAYMENT_REQUIRED:
            raise PayError(f"{_explain(challenge)} Nothing was paid.")
        number = 1 if saved is None else saved.number + 1
        saved = _save(order, PAYERS[order.protocol].sign(challenge, mandate), number, state_dir)
        say(f"Paying {saved.terms}.")
    else:
        say(f"Sending the credential signed before again ({saved.terms}); nothing new is signed.")
    return _deliver(order, saved, client, say, patience)


def _save(order: Order, signed: Signed, number: int, state_dir: Path) -> SavedCredential:
    credential = SavedCredential(
        key=order.key,
        number=number,
        protocol=order.protocol,
        url=order.url,
        input_sha256=order.input_sha256,
        header=signed.header,
        value=signed.value,
        expires_at=signed.expires_at,
        terms=signed.terms,
    )
    try:
        saved_credential.save(state_dir, credential)
    except saved_credential.AlreadySavedError as error:
        raise PayError("Another run is paying under this key. Run again with the same --key.", UNCLEAR) from error
    except OSError as error:
        raise PayError(f"The credential cannot be kept in {state_dir}: {error}. Nothing was paid.") from error
    return credential


def _deliver(
    order: Order, saved: SavedCredential, client: httpx.Client, say: Callable[[str], None], patience: float
) -> Answer:
    """Send the credential, the same one as often as it takes, and return the answer it buys."""
    again = f"Run again with --key {order.key}: that sends the same credential and cannot pay twice."
    deadline = time.monotonic() + patience
    while True:
        pause = PAUSE_SECONDS
        try:
            response = _post(order, client, saved)
        except httpx.RequestError as error:
            trouble = f"The connection failed ({type(error).__name__})."
        else:
            if response.is_success:
                return _answer(order, response)
            trouble = _explain(response)
            if response.status_code == httpx.codes.PAYMENT_REQUIRED:
                until = time.strftime("%H:%M:%S", time.localtime(saved.expires_at))
                raise PayError(
                    f"{trouble} Nothing was charged. The same --key sends this credential again until {until}, and "
                    "signs a new one only after it can no longer be used."
                )
            if response.status_code == httpx.codes.CONFLICT and _problem(response).get("code") != "PAYMENT_IN_PROGRESS":
                raise PayError(f"{trouble} Do not pay again for this.", UNCLEAR)
            if response.is_client_error and response.status_code not in {
                httpx.codes.CONFLICT,
                httpx.codes.TOO_MANY_REQUESTS,
                httpx.codes.REQUEST_TIMEOUT,
            }:
                raise PayError(f"{trouble} Nothing was charged.")
            pause = _retry_after(response)
        if time.monotonic() + pause > deadline:
            raise PayError(f"{trouble} Whether it was charged is not known yet. {again}", UNCLEAR)
        say(f"{trouble} Sending the same credential again in {pause:.0f} s.")
        time.sleep(pause)


def _attempt_state(order: Order, client: httpx.Client) -> str | None:
    """Return the state that the service has of the purchase under this key, or None when it knows none."""
    try:
        response = client.get(httpx.URL(order.url).join("/v1/attempts"), headers={"Idempotency-Key": order.key})
    except httpx.RequestError as error:
        raise PayError(
            f"The service cannot be asked about the key ({type(error).__name__}). Nothing was sent."
        ) from error
    if response.status_code == httpx.codes.NOT_FOUND:
        return None
    state = _problem(response).get("state")
    if not response.is_success or not isinstance(state, str):
        raise PayError(f"The service cannot be asked about the key: {_explain(response)} Nothing was sent.")
    return state


def _post(order: Order, client: httpx.Client, saved: SavedCredential | None) -> httpx.Response:
    credential = {} if saved is None else {saved.header: saved.value}
    try:
        return client.post(order.url, content=order.body, headers={**order.headers, **credential})
    except httpx.RequestError as error:
        if saved is None:
            raise PayError(f"The service cannot be reached ({type(error).__name__}). Nothing was paid.") from error
        raise


def _answer(order: Order, response: httpx.Response) -> Answer:
    return Answer(
        body=response.content,
        receipt=response.headers.get(PAYERS[order.protocol].wire.receipt_header),
        replayed=response.headers.get("Idempotent-Replayed") == "true",
    )


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        content = response.json()
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _explain(response: httpx.Response) -> str:
    """Return the service's own words about an answer that is not the wanted one."""
    problem = _problem(response)
    # On one line and not endless, so that none of them passes for a line of ours, or hides one.
    texts = [text for name in _WORDS if isinstance(text := problem.get(name), str) and text]
    words = [visible(text[:WORDS_LENGTH]).rstrip(".") for text in texts]
    return f"The service answered {response.status_code}" + "".join(f"; {word}" for word in words) + "."


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("Retry-After", "")
    return min(float(value), LONGEST_PAUSE_SECONDS) if re.fullmatch(r"[0-9]{1,9}", value) else PAUSE_SECONDS


def read_receipt(header: str) -> dict[str, Any]:
    """Return the members of a receipt header of either protocol: JSON in base64. Empty when it cannot be read."""
    try:
        content = json.loads(urlsafe_b64decode(header.replace("+", "-").replace("/", "_") + "=" * (-len(header) % 4)))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def new_key() -> str:
    """Return a fresh random idempotency key."""
    return f"pay_{uuid.uuid4().hex}"


def http_client(url: str) -> httpx.Client:
    """Return a client for one purchase at `url`.

    A credential must not be read on the way, since whoever holds it first can spend it: HTTPS, but on this machine.

    Raises:
        PayError: The URL is not one to send a payment to.
    """
    parsed = httpx.URL(url)
    is_local = parsed.host in {"127.0.0.1", "::1", "localhost"}
    if parsed.scheme != "https" and not (is_local and parsed.scheme == "http"):
        raise PayError("A payment is sent over https:// only (http:// is for this machine). Nothing was paid.")
    timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    return httpx.Client(follow_redirects=False, trust_env=not is_local, timeout=timeout)


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
    rpc_url: Annotated[
        str | None,
        typer.Option(help="MPP: the chain's node; by default RANKING_EVALUATE_MPP_RPC_URL, else the SDK's own."),
    ] = None,
    state_dir: Annotated[Path, typer.Option(help="Where signed credentials are kept.")] = Path(".ranking-evaluate"),
) -> None:
    """Buy one answer with the wallet key in RANKING_EVALUATE_WALLET_KEY.

    The answer goes to standard output byte for byte, everything else to standard error. After a lost connection run
    the same command with the same --key: it sends the same credential again and cannot pay twice.

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
        rpc_url=rpc_url or wallet.mpp_rpc_url,
    )
    try:
        with http_client(url) as client:
            answer = run_pay(order, mandate, state_dir=state_dir, client=client, say=say)
    except PayError as error:
        say(str(error))
        raise typer.Exit(error.exit_code) from error
    write_answer(answer.body)
    if answer.receipt is not None:
        say(f"{'Replayed' if answer.replayed else 'Paid'}. Receipt: {json.dumps(read_receipt(answer.receipt))}")
