"""`ranking-evaluate attempts`: the operator's side of purchases, beside the running service and on its store."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from ranking_evaluate.attempts.attempt import Attempt, Audit, State
from ranking_evaluate.attempts.events import Grounds
from ranking_evaluate.cli import attempt_views as views
from ranking_evaluate.cli.streams import say, tell
from ranking_evaluate.contract.replay import REPLAY_HOURS
from ranking_evaluate.core.visible import visible

if TYPE_CHECKING:
    from ranking_evaluate.attempts.store import AttemptStore
    from ranking_evaluate.chains import Chains
    from ranking_evaluate.payments.protocol import Evidence
    from ranking_evaluate.reconcile import Case, Reconciler

T = TypeVar("T")

REFUSED: Final = 1
UNUSABLE: Final = 2

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
        async with open_store() as store:
            # The probe's key is never sold; the read brings the store's clock.
            now = (await store.read("operator-asks-for-the-time")).now
            return now, await store.recent(state, limit)

    now, found = run(work())
    if as_json:
        views.print_json([views.document(attempt, now) for attempt in found])
        return
    if not found:
        tell("No attempts." if state is None else f"No {state} attempts.")
        return
    views.print_table(views.listing(found, now), views.LIST_WIDTH_BESIDE_KEYS + max(len(one.key) for one in found))
    if len(found) == limit:
        tell(f"These are the {limit} that changed last; --limit shows more.")


@attempts.command("show")
def show(
    key: Key,
    check: Annotated[bool, typer.Option("--check", help="Ask the chain what became of the payment.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the attempt that stands under a key, the decisions about it and, with --check, what the chain says."""

    async def work() -> tuple[Case, Evidence | None] | None:
        async with _open_reconciler(ask_chains=check) as reconciler:
            case = await reconciler.look_up(key)
            if case is None:
                return None
            return case, await reconciler.check(case.attempt) if check else None

    found = run(work())
    if found is None:
        say(f"Nothing is recorded under the key {visible(key)}.")
        raise typer.Exit(REFUSED)
    case, evidence = found
    if as_json:
        views.print_json(views.document(case.attempt, case.now) | views.decisions(case) | views.chain(evidence))
        return
    views.print_table(views.card(case), views.CARD_HEADINGS_WIDTH + max(views.HASH_WIDTH, len(case.attempt.key)))
    advice = views.advice(case, evidence)
    if evidence is not None:
        from ranking_evaluate.reconcile import in_words

        tell(f"\nThe chain says: {visible(in_words(evidence))}.")
    if advice:
        tell(f"\n{advice}")


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
    _report(
        settled, as_json, f"Settled. The caller's identical resend gets the answer for {REPLAY_HOURS} hours from now."
    )


@attempts.command("release")
def release(
    key: Key,
    force: Force = False,
    tx: Annotated[
        str | None,
        typer.Option("--tx", metavar="HASH", help="With --force, where the chain shows the payment: its transaction."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record that an uncertain payment was never made; the key may then be paid again, by a new credential.

    Refused before the payment can no longer land (ten minutes past its last second), and where the chain shows it or
    cannot be asked, unless it is forced. **A forced release is your word against the chain: it may charge twice.** Of a
    payment that the chain shows it wants the transaction again, with --tx: its caller is told that they were charged.
    """
    released = _decide(lambda reconciler: reconciler.release(key, force=force, transaction=tx))
    words = "Released. The caller may pay again under this key, with a new credential."
    if released[0].reason == Grounds.ALTHOUGH_PAID:
        words += (
            "\nThey were charged, and GET /v1/attempts tells them so: pay them back. The books do not have it. "
            f"`attempts settle {key} --tx {released[0].transaction}` would mend that, and the caller get the answer."
        )
    _report(released, as_json, words)


@attempts.command("reconcile")
def reconcile(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The purchase; all uncertain ones without it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask the chain, and record nothing.")] = False,
) -> None:
    """Ask the chain about uncertain payments now, and record what it says finally, as the service does by itself.

    A payment that never landed is released when the chain says so twice, a minute apart: the command waits for that.

    Exit codes: 0 all are decided, or would be; 1 the chain does not tell of some; 2 a setting is wrong, or the store
    cannot be used.
    """
    from ranking_evaluate.keeper import MOST_WATCHED, decide_now

    async def work() -> bool | None:
        async with _open_chains() as (store, chains):
            seen = await store.read(key or "operator-asks-for-the-time")
            standing = [seen.standing] if seen.standing is not None else []
            found = standing if key is not None else await store.recent(State.UNCERTAIN, MOST_WATCHED)
            uncertain = [attempt for attempt in found if attempt.state_at(seen.now) is State.UNCERTAIN]
            if not uncertain:
                return None
            return await decide_now(store, chains, uncertain, dry_run=dry_run, tell=lambda line: tell(visible(line)))

    told = run(work())
    if told is None:
        tell("No attempts are uncertain." if key is None else f"No attempt under the key {visible(key)} is uncertain.")
    elif not told:
        raise typer.Exit(REFUSED)


@attempts.command("refund")
def refund(
    key: Key,
    tx: Annotated[str, typer.Option("--tx", metavar="HASH", help="The transaction that paid the money back.")],
    tx_paid: Annotated[
        str | None, typer.Option("--tx-paid", metavar="HASH", help="Of several payments under the key, the one in it.")
    ] = None,
) -> None:
    """Record in the books that you paid a purchase back; the refund itself is yours to make.

    It changes nothing for the caller: what was paid for is delivered as before.
    """

    async def work() -> str | None:
        async with open_store() as store:
            return await _refund(store, key, tx, tx_paid)

    refusal = run(work())
    if refusal is not None:
        say(f"Refused. {visible(str(refusal))}")
        raise typer.Exit(REFUSED)
    tell("Recorded. `ranking-evaluate sales` shows the refund on the day of this record.")


async def _refund(store: AttemptStore, key: str, tx: str, tx_paid: str | None) -> str | None:
    """Record a refund, and return why it is refused, if it is."""
    from ranking_evaluate.payments.protocol import TRANSACTION

    if not all(TRANSACTION.fullmatch(text) for text in (tx, tx_paid or tx)):
        return "A transaction hash is 0x and 64 hexadecimal digits."
    sales = await store.sales_of(key)
    if tx_paid is not None:
        sales = [sale for sale in sales if sale.transaction == tx_paid.lower()]
    if not sales:
        return f"The books have no such payment under the key {key}."
    if len(sales) > 1:
        paid = " or ".join(f"--tx-paid {sale.transaction}" for sale in sales)
        return f"There are several payments under this key: say which one by {paid}."
    [sale] = sales
    if await store.refund(sale, tx.lower(), Audit(operator(), "refunded", f"paid back in {tx.lower()}"), key):
        return None
    return f"A refund of it is recorded already, in {sale.refund_transaction or 'another transaction'}."


@attempts.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; it must not exist.")],
) -> None:
    """Copy the store into one file while the service runs: as it is at this moment, and in no need of a log.

    For SQLite alone. To restore it: stop every process, delete the store's -wal and -shm, put the copy in its place.
    """
    from ranking_evaluate.attempts.sqlite import SqliteStore

    async def work() -> str | None:
        async with open_store() as store:
            if not isinstance(store, SqliteStore):
                return (
                    "This store is PostgreSQL: use its point-in-time recovery (docs/operate.md#back-up). A dump lacks "
                    "what was sold since."
                )
            try:
                await store.back_up(file)
            except OSError as error:
                return f"The copy cannot be written: {error}"
            return None

    refusal = f"{file} exists; a copy goes into a new file." if file.exists() else run(work())
    if refusal is not None:
        say(visible(refusal))
        raise typer.Exit(UNUSABLE)
    tell(f"Copied to {visible(str(file))}.")


def operator() -> str:
    """Return who decides, for the audit: the login, also behind sudo, and the machine."""
    login = os.environ.get("SUDO_USER") or getpass.getuser()
    return f"{login}@{socket.gethostname()}"[:256]


@asynccontextmanager
async def open_store() -> AsyncIterator[AttemptStore]:
    """Open the service's store, and never make one: in a wrong folder an empty one would say that all is well."""
    from ranking_evaluate import bootstrap
    from ranking_evaluate.settings import read_database_url

    store = bootstrap.open_store(read_database_url(), create=False)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _open_chains(*, ask: bool = True) -> AsyncIterator[tuple[AttemptStore, Chains]]:
    """Open the store and what asks the chains; where none is asked, a wrong setting of a protocol does not matter."""
    from ranking_evaluate import bootstrap
    from ranking_evaluate.chains import Chains
    from ranking_evaluate.settings import read_settings

    protocols = bootstrap.configured(read_settings()) if ask else ()
    try:
        async with open_store() as store:
            yield store, Chains(protocols)
    finally:
        for protocol in protocols:
            await protocol.close()


@asynccontextmanager
async def _open_reconciler(*, ask_chains: bool) -> AsyncIterator[Reconciler]:
    """Open what an operator's decision needs."""
    from ranking_evaluate.reconcile import Reconciler

    async with _open_chains(ask=ask_chains) as (store, chains):
        yield Reconciler(store, chains, operator())


def _decide(decision: Callable[[Reconciler], Awaitable[Attempt]]) -> tuple[Attempt, Case | None]:
    from ranking_evaluate.reconcile import DecisionRefused

    async def work() -> tuple[Attempt, Case | None]:
        async with _open_reconciler(ask_chains=True) as reconciler:
            decided = await decision(reconciler)
            return decided, await reconciler.look_up(decided.key)

    try:
        return run(work())
    except DecisionRefused as refusal:
        say(f"Refused. {visible(str(refusal))}")
        raise typer.Exit(REFUSED) from None


def run(work: Awaitable[T]) -> T:
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
        say(visible(line))
    raise typer.Exit(UNUSABLE)


def _report(decided: tuple[Attempt, Case | None], as_json: bool, text: str) -> None:
    attempt, case = decided
    if as_json:
        views.print_json(views.document(attempt, attempt.updated_at) | (views.decisions(case) if case else {}))
    else:
        tell(text)
