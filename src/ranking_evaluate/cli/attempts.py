"""`ranking-evaluate attempts`: the operator's side of purchases, beside the running service and on its store."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ranking_evaluate.attempts.attempt import Attempt, State

if TYPE_CHECKING:
    from ranking_evaluate.payments.protocol import Evidence
    from ranking_evaluate.reconcile import Case, Reconciler

T = TypeVar("T")

REFUSED: Final = 1
UNUSABLE: Final = 2

HASH_WIDTH: Final = 66
CARD_HEADINGS_WIDTH: Final = 13
LIST_WIDTH_BESIDE_KEYS: Final = 44

STYLES: Final = {State.UNCERTAIN: "bold yellow", State.SETTLED: "green", State.FAILED: "red"}

attempts: Final = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="""Look at purchases, and decide about the ones whose payment is uncertain.

    The store is the one that RANKING_EVALUATE_DATABASE_URL names. What asks a chain or makes a receipt needs the
    service's other RANKING_EVALUATE_* variables too. The service may run meanwhile.

    Exit codes: 0 done; 1 the decision is refused, or nothing is recorded under the key; 2 a setting is wrong, or the
    store cannot be used.
    """,
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The purchase's Idempotency-Key.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]
Force = Annotated[bool, typer.Option("--force", help="Decide although the chain does not support it.")]


@attempts.command("list")
def list_attempts(
    state: Annotated[State | None, typer.Option(help="Only attempts in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List attempts, the ones that changed last first."""

    async def work() -> tuple[float, list[Attempt]]:
        async with _open_store() as store:
            # The probe's key is never sold; the read brings the store's clock.
            now = (await store.read("operator-asks-for-the-time")).now
            return now, await store.recent(state, limit)

    now, found = _run(work())
    if as_json:
        _print_json([_document(attempt, now) for attempt in found])
        return
    if not found:
        typer.echo("No attempts." if state is None else f"No {state} attempts.")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    # The key stands last, so that a long one runs over the edge alone.
    for heading in ("changed", "state", "price", "key"):
        table.add_column(heading, no_wrap=True, min_width=9)
    for attempt in found:
        seen = _state(attempt, now)
        price = f"{_amount(attempt)} {attempt.protocol}"
        table.add_row(_instant(attempt.updated_at), Text(seen, STYLES.get(seen, "")), price, attempt.key)
    _print(table, LIST_WIDTH_BESIDE_KEYS + max(len(attempt.key) for attempt in found))
    if len(found) == limit:
        typer.echo(f"These are the {limit} that changed last; --limit shows more.")


@attempts.command("show")
def show(
    key: Key,
    check: Annotated[bool, typer.Option("--check", help="Ask the chain what became of the payment.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the attempt that stands under a key, the decisions about it and, with --check, what the chain says."""

    async def work() -> tuple[Case, Evidence | None] | None:
        async with _open_reconciler(rails=check) as reconciler:
            case = await reconciler.look_up(key)
            if case is None:
                return None
            return case, await reconciler.check(case.attempt) if check else None

    found = _run(work())
    if found is None:
        typer.echo(f"Nothing is recorded under the key {key}.", err=True)
        raise typer.Exit(REFUSED)
    case, evidence = found
    if as_json:
        _print_json(_document(case.attempt, case.now) | _decisions(case) | _chain(evidence))
        return
    _print(_card(case), CARD_HEADINGS_WIDTH + max(HASH_WIDTH, len(case.attempt.key)))
    advice = _advice(case, evidence)
    if evidence is not None:
        from ranking_evaluate.reconcile import in_words

        typer.echo(f"\nThe chain says: {_plain(in_words(evidence))}.")
    if advice:
        typer.echo(f"\n{advice}")


@attempts.command("settle")
def settle(
    key: Key,
    tx: Annotated[str, typer.Option("--tx", metavar="HASH", help="The transaction that made the payment.")],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Record that an uncertain payment was made; the caller's identical resend then gets the answer.

    Refused when the chain does not show this very payment in the transaction, unless it is forced.
    """
    settled = _decide(lambda reconciler: reconciler.settle(key, tx, force=force))
    _report(settled, as_json, "Settled. The caller's identical resend gets the answer for 24 hours from now.")


@attempts.command("release")
def release(key: Key, force: Force = False, as_json: AsJson = False) -> None:
    """Record that an uncertain payment was never made; the key may then be paid again, by a new credential.

    Refused before the payment can no longer land (ten minutes past its last second), and where the chain shows it or
    cannot be asked, unless it is forced. **A forced release is your word against the chain: it may charge twice.**
    """
    released = _decide(lambda reconciler: reconciler.release(key, force=force))
    _report(released, as_json, "Released. The caller may pay again under this key, with a new credential.")


def operator() -> str:
    """Return who decides, for the audit: the login, also behind sudo, and the machine."""
    login = os.environ.get("SUDO_USER") or getpass.getuser()
    return f"{login}@{socket.gethostname()}"[:256]


@asynccontextmanager
async def _open_store() -> AsyncIterator[Any]:
    """Open the service's store, and never make one: in a wrong folder an empty one would say that all is well."""
    from ranking_evaluate.bootstrap import open_store
    from ranking_evaluate.settings import read_database_url

    store = open_store(read_database_url(), create=False)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _open_reconciler(*, rails: bool) -> AsyncIterator[Reconciler]:
    """Open what a decision needs; without rails a wrong setting of one does not matter."""
    from ranking_evaluate import bootstrap
    from ranking_evaluate.reconcile import Reconciler
    from ranking_evaluate.settings import read_settings

    protocols = bootstrap.rails(read_settings()) if rails else ()
    try:
        async with _open_store() as store:
            yield Reconciler(store, protocols, operator())
    finally:
        for protocol in protocols:
            await protocol.close()


def _decide(decision: Callable[[Reconciler], Awaitable[Attempt]]) -> tuple[Attempt, Case | None]:
    from ranking_evaluate.reconcile import DecisionRefused

    async def work() -> tuple[Attempt, Case | None]:
        async with _open_reconciler(rails=True) as reconciler:
            decided = await decision(reconciler)
            return decided, await reconciler.look_up(decided.key)

    try:
        return _run(work())
    except DecisionRefused as refusal:
        typer.echo(f"Refused. {refusal}", err=True)
        raise typer.Exit(REFUSED) from None


def _run(work: Awaitable[T]) -> T:
    """Run the work; what an operator has to mend ends the command with one line each."""
    from ranking_evaluate.attempts.store import StoreUnavailable
    from ranking_evaluate.settings import SettingsError

    async def awaited() -> T:
        return await work

    try:
        return asyncio.run(awaited())
    except SettingsError as error:
        lines: Sequence[str] = error.faults
    except StoreUnavailable as error:
        lines = [f"{error}", "Is RANKING_EVALUATE_DATABASE_URL the one of the service?"]
    for line in lines:
        typer.echo(line, err=True)
    raise typer.Exit(UNUSABLE)


def _report(decided: tuple[Attempt, Case | None], as_json: bool, text: str) -> None:
    attempt, case = decided
    if as_json:
        _print_json(_document(attempt, attempt.updated_at) | (_decisions(case) if case else {}))
    else:
        typer.echo(text)


def _state(attempt: Attempt, now: float) -> State:
    return State.UNCERTAIN if attempt.doubtful(now) else attempt.state


def _document(attempt: Attempt, now: float) -> dict[str, Any]:
    """Return all that is kept of an attempt, but for its claim: who holds that owns the row."""
    return {
        "key": attempt.key,
        "n": attempt.n,
        "state": _state(attempt, now).value,
        "protocol": attempt.protocol,
        "operation": attempt.operation,
        "release": attempt.release,
        "amount": str(attempt.amount),
        "asset": attempt.asset,
        "network": attempt.network,
        "payer": attempt.payer,
        "paymentId": attempt.payment_id,
        "validBefore": None if attempt.valid_before is None else _instant(attempt.valid_before),
        "transaction": attempt.transaction,
        "reason": attempt.reason,
        "receipt": attempt.receipt,
        "outputSha256": attempt.output_sha256,
        "createdAt": _instant(attempt.created_at),
        "updatedAt": _instant(attempt.updated_at),
        "expiresAt": None if attempt.expires_at is None else _instant(attempt.expires_at),
    }


def _decisions(case: Case) -> dict[str, Any]:
    return {
        "decisions": [
            {"at": _instant(at), "n": n, "who": audit.who, "what": audit.what, "evidence": audit.evidence}
            for at, n, audit in case.audits
        ]
    }


def _chain(evidence: Evidence | None) -> dict[str, Any]:
    from ranking_evaluate.payments.protocol import Landed, NeverLanded
    from ranking_evaluate.reconcile import in_words

    match evidence:
        case None:
            return {}
        case Landed(transaction=transaction):
            return {"chain": {"says": "landed", "transaction": transaction, "reason": in_words(evidence)}}
        case NeverLanded():
            return {"chain": {"says": "never landed", "transaction": None, "reason": in_words(evidence)}}
        case _:
            return {"chain": {"says": "unknown", "transaction": None, "reason": in_words(evidence)}}


def _card(case: Case) -> Table:
    """Return the attempt as a table without a frame: so a hash fits on one line of 80 columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    attempt, state = case.attempt, case.state
    table.add_row("key", attempt.key)
    table.add_row("state", Text(state, STYLES.get(state, "")))
    if attempt.n > 1:
        table.add_row("attempt", f"number {attempt.n} under this key")
    for name, value in (
        ("reason", attempt.reason),
        ("purchase", f"{attempt.operation} {attempt.release} over {attempt.protocol}"),
        ("amount", f"{_amount(attempt)} of {attempt.asset}"),
        ("network", attempt.network),
        ("payer", attempt.payer),
        ("payment id", attempt.payment_id),
        ("valid until", None if attempt.valid_before is None else _instant(attempt.valid_before)),
        ("transaction" if state is State.SETTLED else "would be in", attempt.transaction),
        ("created", _instant(attempt.created_at)),
        ("changed", _instant(attempt.updated_at)),
        ("over at", None if attempt.expires_at is None else _instant(attempt.expires_at)),
    ):
        if value is not None:
            table.add_row(name, _plain(value))
    for at, n, audit in case.audits:
        words = f"{_instant(at)}, attempt {n}: {audit.what} by {audit.who} ({audit.evidence})"
        table.add_row("decision", _plain(words))
    return table


def _advice(case: Case, evidence: Evidence | None) -> str | None:
    """Return what an operator may do about an uncertain payment."""
    from ranking_evaluate.payments.protocol import Landed, NeverLanded

    if case.state is not State.UNCERTAIN:
        return None
    command, key = "ranking-evaluate attempts", case.attempt.key
    match evidence:
        case None:
            return f"Ask the chain: {command} show {key} --check"
        case Landed(transaction=transaction):
            return f"It was paid: {command} settle {key} --tx {transaction}"
        case NeverLanded() if case.releasable_at is not None and case.now >= case.releasable_at:
            return f"It was never paid: {command} release {key}"
        case _ if case.releasable_at is not None and case.now < case.releasable_at:
            return f"Check again at {_instant(case.releasable_at)}, when nothing of it can land any more."
        case _:
            return "The chain does not tell. Look at the transactions of the payer before you force anything."


def _amount(attempt: Attempt) -> str:
    from ranking_evaluate.payments.protocol import AMOUNT_DECIMALS

    whole, rest = divmod(attempt.amount, 10**AMOUNT_DECIMALS)
    return f"{whole}.{rest:0{AMOUNT_DECIMALS}d}".rstrip("0").rstrip(".") or "0"


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _print(table: Table, at_least: int) -> None:
    """Print a table, wider than the terminal if need be: a key or a hash that was folded could not be copied."""
    # What comes from a store or a chain is text, never markup or an emoji's name.
    console = Console(markup=False, emoji=False, highlight=False)
    console.width = max(console.width, at_least)
    console.print(table)


def _plain(text: str) -> str:
    """Return a provider's text without what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _print_json(document: object) -> None:
    typer.echo(json.dumps(document, indent=2))
