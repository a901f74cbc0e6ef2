"""Broken builds of the service: each is a mistake that somebody could make, and each must be caught by the invariants.

A sabotage is applied to the classes of a process before it serves; the product knows nothing of them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import apsw
import pytest

from ranking_evaluate import purchase, telemetry
from ranking_evaluate.attempts import decide as table
from ranking_evaluate.attempts import sqlite
from ranking_evaluate.attempts.attempt import Attempt, Draft, State, Step
from ranking_evaluate.attempts.decide import (
    Challenge,
    Decision,
    OutcomeUnknown,
    Replay,
    Request,
    Reserve,
    Snapshot,
)
from ranking_evaluate.attempts.events import Event, OperatorRelease, RecordRefused, Submit
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.order import Delivery, Order, Purchase, draft
from ranking_evaluate.payments.protocol import Credential, NotSent, Offer, Refused, Settled, Settlement, Uncertain
from ranking_evaluate.payments.x402.protocol import X402Protocol
from ranking_evaluate.purchase import Purchases

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Sabotage:
    """One mistake.

    Attributes:
        apply: Makes it, in this process.
        breaks: How the violations begin that it may show itself by.
    """

    apply: Callable[[Patch], None]
    breaks: tuple[str, ...]


SABOTAGES: Final[dict[str, Sabotage]] = {}


def sabotages(name: str, *breaks: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Enter a mistake into the list."""

    def enter(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        SABOTAGES[name] = Sabotage(apply, breaks)
        return apply

    return enter


# What the settle call said.


def _outcome(patch: Patch, change: Callable[[Settlement], Settlement]) -> None:
    record = Purchases._record

    async def changed(self: Purchases, attempt: Attempt, bought: Purchase, outcome: Settlement) -> Delivery:
        return await record(self, attempt, bought, change(outcome))

    patch.setattr(Purchases, "_record", changed)


@sabotages("an unknown outcome is taken as a refusal", "I4", "I8")
def _unknown_is_refused(patch: Patch) -> None:
    _outcome(patch, lambda said: Refused("it took too long") if isinstance(said, Uncertain) else said)


@sabotages("a broken connection is taken as not sent", "I7", "I5", "I1")
def _broken_is_not_sent(patch: Patch) -> None:
    _outcome(patch, lambda said: NotSent("it broke") if isinstance(said, Uncertain) else said)


@sabotages("an unknown outcome is settled again", "I5", "I1")
def _settle_again(patch: Patch) -> None:
    settle = X402Protocol.settle

    async def twice(self: X402Protocol, credential: Credential, offer: Offer) -> Settlement:
        said = await settle(self, credential, offer)
        return await settle(self, credential, offer) if isinstance(said, Uncertain) else said

    patch.setattr(X402Protocol, "settle", twice)


# The order of the steps.


@sabotages("the settle call is made before SUBMIT", "I5")
def _call_before_submit(patch: Patch) -> None:
    verify, settle = X402Protocol.verify, X402Protocol.settle
    early: dict[str, Settlement] = {}

    async def hasty(self: X402Protocol, credential: Credential, offer: Offer) -> Any:
        said = await verify(self, credential, offer)
        early[credential.digest] = await settle(self, credential, offer)
        return said

    async def remembered(self: X402Protocol, credential: Credential, offer: Offer) -> Settlement:
        return early.pop(credential.digest)

    patch.setattr(X402Protocol, "verify", hasty)
    patch.setattr(X402Protocol, "settle", remembered)


@sabotages("the answer leaves before the record is committed", "I3")
def _answer_before_commit(patch: Patch) -> None:
    record = Purchases._record
    kept: set[asyncio.Task[object]] = set()

    async def eager(self: Purchases, attempt: Attempt, bought: Purchase, outcome: Settlement) -> Delivery:
        if not isinstance(outcome, Settled):
            return await record(self, attempt, bought, outcome)

        async def later() -> object:
            await asyncio.sleep(0.05)
            return await record(self, attempt, bought, outcome)

        task = asyncio.create_task(later())
        kept.add(task)
        task.add_done_callback(kept.discard)
        return Delivery(bought.answer.body, bought.order.wire.receipt_header, outcome.receipt, False)

    patch.setattr(Purchases, "_record", eager)


@sabotages("a reservation is submitted without a look at the store", "I5", "I9")
def _submit_in_memory(patch: Patch) -> None:
    move = SqliteStore.move

    async def forgetful(self: SqliteStore, claim: str, event: Event) -> Step:
        if not isinstance(event, Submit):
            return await move(self, claim, event)
        found = await self.find(claim)
        return Step(found) if found else Step(None, owned=False)

    patch.setattr(SqliteStore, "move", forgetful)


# Proofs.


@sabotages("proofs are not recorded", "I5", "I1")
def _no_proof_table(patch: Patch) -> None:
    reserve = SqliteStore.reserve

    def unproven(bought: Purchase, lease_seconds: float) -> Draft:
        return replace(draft(bought, lease_seconds), proofs=(secrets.token_bytes(32),))

    async def blind(self: SqliteStore, unproven: Draft, request: Request, seen: Snapshot) -> Attempt | None:
        return await reserve(self, unproven, replace(request, proofs=()), seen)

    patch.setattr(purchase, "draft", unproven)
    patch.setattr(SqliteStore, "reserve", blind)


def _free_proofs(patch: Patch, after: type[Event]) -> None:
    move = SqliteStore.move

    async def freeing(self: SqliteStore, claim: str, event: Event) -> Step:
        step = await move(self, claim, event)
        if isinstance(event, after) and step.owned:
            await self._writer.do(lambda db: db.execute("DELETE FROM proofs WHERE claim = ?", (claim,)), durable=True)
        return step

    patch.setattr(SqliteStore, "move", freeing)


@sabotages("a failed attempt gives its proofs back", "I9")
def _failed_frees(patch: Patch) -> None:
    _free_proofs(patch, RecordRefused)


@sabotages("a release gives the proofs back", "I9")
def _release_frees(patch: Patch) -> None:
    _free_proofs(patch, OperatorRelease)


# The table.


def _decide(patch: Patch, change: Callable[[Snapshot, Request, Decision], Decision]) -> None:
    decide = table.decide

    def changed(seen: Snapshot, request: Request) -> Decision:
        return change(seen, request, decide(seen, request))

    for module in (purchase, sqlite):
        patch.setattr(module, "decide", changed)


@sabotages("an uncertain key is challenged", "I8", "table")
def _challenge_uncertain(patch: Patch) -> None:
    def change(seen: Snapshot, request: Request, said: Decision) -> Decision:
        return Challenge() if isinstance(said, OutcomeUnknown) and request.credential_digest is None else said

    _decide(patch, change)


@sabotages("a paid key is challenged when no credential comes", "I8", "table")
def _challenge_paid(patch: Patch) -> None:
    def change(seen: Snapshot, request: Request, said: Decision) -> Decision:
        is_paid = seen.standing is not None and seen.standing.state is State.SETTLED
        return Challenge() if is_paid and request.credential_digest is None else said

    _decide(patch, change)


@sabotages("a paid key replays to any credential", "I3", "table")
def _replay_to_any(patch: Patch) -> None:
    def change(seen: Snapshot, request: Request, said: Decision) -> Decision:
        row = seen.current
        if row is None or row.state is not State.SETTLED or not request.credential_digest:
            return said
        return Replay(row) if row.fingerprint == request.fingerprint else said

    _decide(patch, change)


@sabotages("an uncertain key takes another credential", "I2", "table")
def _sell_uncertain(patch: Patch) -> None:
    def change(seen: Snapshot, request: Request, said: Decision) -> Decision:
        fresh = request.credential_digest is not None and not seen.recorded.intersection(request.proofs)
        return Reserve() if isinstance(said, OutcomeUnknown) and fresh else said

    _decide(patch, change)


@sabotages("a paid key is sold again after its day", "I2", "table")
def _sold_again(patch: Patch) -> None:
    patch.setattr(Snapshot, "paid", False)


# The start, and what is cleared away.


def _at_start(patch: Patch, statements: tuple[str, ...]) -> None:
    start = SqliteStore.open

    async def sweeping(self: SqliteStore) -> None:
        await start(self)

        def sweep(db: apsw.Connection) -> None:
            for statement in statements:
                db.execute(statement)

        await self._writer.do(sweep, durable=True)

    patch.setattr(SqliteStore, "open", sweeping)


@sabotages("the start takes settling rows for failed", "I4", "I8")
def _sweep_failed(patch: Patch) -> None:
    # The window is as far off as the clock that the trials move on.
    _at_start(patch, ("UPDATE attempts SET state = 'failed', expires_at = 1e11 WHERE state = 'settling'",))


@sabotages("the start deletes settling rows", "I7")
def _sweep_gone(patch: Patch) -> None:
    settling = "SELECT claim FROM attempts WHERE state = 'settling'"
    _at_start(
        patch,
        (f"DELETE FROM proofs WHERE claim IN ({settling})", "DELETE FROM attempts WHERE state = 'settling'"),  # noqa: S608
    )


@sabotages("the purge takes uncertain rows", "I7")
def _purge_uncertain(patch: Patch) -> None:
    _at_start(patch, ("DELETE FROM attempts WHERE state = 'uncertain'",))


# What is delivered, and what is written down.


@sabotages("a replay brings a receipt of its own", "I3", "I6")
def _own_receipt(patch: Patch) -> None:
    delivery = purchase._delivery

    def renewed(bought: Purchase, row: Attempt, *, replayed: bool) -> Delivery:
        made = delivery(bought, row, replayed=replayed)
        return replace(made, receipt=f"{made.receipt}{time.time_ns()}") if replayed else made

    patch.setattr(purchase, "_delivery", renewed)


@sabotages("the log holds what callers send", "I10")
def _log_bodies(patch: Patch) -> None:
    buy = Purchases.buy

    async def talkative(self: Purchases, order: Order) -> Delivery:
        with suppress(UnicodeDecodeError):
            telemetry.logger().info("order", body=order.body.decode())
        return await buy(self, order)

    patch.setattr(Purchases, "buy", talkative)
