"""Attempts, requests and the way through the states, as the tests of this folder need them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from ranking_evaluate.attempts.attempt import Attempt, Draft, State
from ranking_evaluate.attempts.decide import Request
from ranking_evaluate.attempts.events import RecordSettled, Submit
from ranking_evaluate.attempts.store import AttemptStore

KEY = "purchase-of-monday-0001"
OTHER_KEY = "purchase-of-tuesday-002"
NOW = 1_800_000_000.0
DAY = 24 * 3600.0
VERIFY_LEASE = 50.0
SETTLE_LEASE = 70.0
TX = "0x" + "ab" * 32


def hexdigest(label: str) -> str:
    return hashlib.sha256(label.encode()).hexdigest()


def proof(label: str) -> bytes:
    return hashlib.sha256(f"proof {label}".encode()).digest()


def draft(credential: str = "first", *, key: str = KEY, body: str = "body", **changes: Any) -> Draft:
    """Return what the walk hands to RESERVE; `credential` names its digest, its proof and its claim."""
    made = Draft(
        key=key,
        claim=f"claim of {credential}",
        lease_seconds=VERIFY_LEASE,
        protocol="x402",
        operation="ranking.evaluate",
        release="0.29.0",
        fingerprint=hexdigest(body),
        credential_digest=hexdigest(credential),
        proofs=(proof(credential),),
        output_sha256=hexdigest(f"answer to {body}"),
        amount=10_000,
        asset="0x036cbd53842c5426634e7929541ec2318f3dcf7e",
        network="eip155:84532",
        payer="0x" + "22" * 20,
        payment_id="0x" + "33" * 32,
        valid_before=1_800_000_180,
        request_id="755bcd6dc50caadbc11fed78",
    )
    return replace(made, **changes)


def row(state: State, credential: str = "first", **changes: Any) -> Attempt:
    """Return a stored attempt in this state at NOW: a lease that runs, or a window that is open."""
    leases = {State.RESERVED: NOW + VERIFY_LEASE, State.SETTLING: NOW + SETTLE_LEASE}
    ended = state in (State.SETTLED, State.FAILED, State.RELEASED)
    made = draft(credential).begun(1, NOW - 5)
    made = replace(made, state=state, lease=leases.get(state), expires_at=NOW + DAY if ended else None)
    return replace(made, **changes)


def asks(made: Draft) -> Request:
    """Return the request that the draft was made of."""
    return Request(
        made.key,
        made.fingerprint,
        made.release,
        made.credential_digest,
        made.proofs,
        new_key_proof=made.new_key_proof,
    )


async def tried(store: AttemptStore, made: Draft) -> Attempt | None:
    """Read, then reserve on what was read."""
    return await store.reserve(made, asks(made), await store.read(made.key, made.proofs))


async def reserved(store: AttemptStore, made: Draft) -> Attempt:
    stored = await tried(store, made)
    assert stored is not None
    return stored


async def settling(store: AttemptStore, made: Draft) -> Attempt:
    stored = await reserved(store, made)
    step = await store.move(stored.claim, Submit(SETTLE_LEASE))
    assert step.owned
    assert step.attempt is not None
    return step.attempt


async def settled(store: AttemptStore, made: Draft) -> Attempt:
    stored = await settling(store, made)
    step = await store.move(stored.claim, RecordSettled("the receipt", TX))
    assert step.owned
    assert step.attempt is not None
    return step.attempt
