"""The moves: every line of docs/lifecycle.md, section 3, and nothing beside them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from ranking_evaluate.attempts.attempt import Attempt, Audit, Bought, State, Step
from ranking_evaluate.attempts.events import (
    Event,
    Lapse,
    OperatorRelease,
    OperatorSettle,
    RecordNotSent,
    RecordRefused,
    RecordSettled,
    RecordSpent,
    RecordUncertain,
    Submit,
    Withdraw,
)
from tests.attempts.samples import DAY, NOW, SETTLE_LEASE, TX, draft, proof, row

EVENTS: dict[str, Event] = {
    "submit": Submit(SETTLE_LEASE),
    "withdraw": Withdraw(),
    "already used": RecordSpent("nonce_already_used"),
    "settle": RecordSettled("receipt", TX, "0xpayer"),
    "refuse": RecordRefused("insufficient_balance", "refusal receipt"),
    "unsend": RecordNotSent(),
    "doubt": RecordUncertain("timeout"),
    "lapse": Lapse(),
    "operator settles": OperatorSettle("reconciled receipt", TX, "ada", "block 7"),
    "operator releases": OperatorRelease("ada", "nonce unused"),
}

SITUATIONS: dict[str, Attempt] = {
    "reserved": row(State.RESERVED),
    "reserved, 1 s of lease left": row(State.RESERVED, lease=NOW + 1),
    "reserved, less than 1 s left": row(State.RESERVED, lease=NOW + 0.9),
    "reserved, lease over": row(State.RESERVED, lease=NOW),
    "settling": row(State.SETTLING),
    "settling, lease over": row(State.SETTLING, lease=NOW),
    "uncertain": row(State.UNCERTAIN, reason="timeout"),
    "settled": row(State.SETTLED, receipt="first receipt", transaction=TX),
    "failed": row(State.FAILED, reason="insufficient_balance"),
    "released": row(State.RELEASED, reason="released by an operator"),
    "released, over": row(State.RELEASED, expires_at=NOW - 1),
    "released, below a newer one": row(State.RELEASED, expires_at=NOW + 100),
}


def becomes(
    situation: str, state: State, *, owned: bool = True, audit: Audit | None = None, **changes: Any
) -> tuple[str, Step]:
    """Return the step to this state, where everything that is not named stays as it was, but without a lease."""
    made = replace(SITUATIONS[situation], state=state, updated_at=NOW, **{"lease": None, "reason": None, **changes})
    return situation, Step(made, owned=owned, audit=audit, sold=state is State.SETTLED)


def expected() -> dict[tuple[str, str], Step]:
    """Return the table of docs/lifecycle.md, section 3, line by line."""
    lines: dict[tuple[str, str], Step] = {}

    def line(event: str, *ends: tuple[str, Step]) -> None:
        lines.update({(situation, event): step for situation, step in ends})

    gone, lost_and_gone = Step(None), Step(None, owned=False)
    paid: dict[str, Any] = {"receipt": "receipt", "transaction": TX, "payer": "0xpayer"}
    reconciled: dict[str, Any] = {"receipt": "reconciled receipt", "transaction": TX, "expires_at": NOW + DAY}
    by_ada = Audit("ada", "settled", "block 7")
    late = Audit("service", "settled after release", TX)
    line(
        "submit",
        becomes("reserved", State.SETTLING, lease=NOW + SETTLE_LEASE),
        becomes("reserved, 1 s of lease left", State.SETTLING, lease=NOW + SETTLE_LEASE),
        ("reserved, less than 1 s left", lost_and_gone),
        ("reserved, lease over", lost_and_gone),
    )
    line(
        "withdraw",
        ("reserved", gone),
        ("reserved, 1 s of lease left", gone),
        ("reserved, less than 1 s left", gone),
        ("reserved, lease over", lost_and_gone),
    )
    line(
        "already used",
        becomes("reserved", State.UNCERTAIN, reason="nonce_already_used"),
        becomes("reserved, 1 s of lease left", State.UNCERTAIN, reason="nonce_already_used"),
        becomes("reserved, less than 1 s left", State.UNCERTAIN, reason="nonce_already_used"),
        ("reserved, lease over", lost_and_gone),
    )
    line(
        "settle",
        becomes("settling", State.SETTLED, expires_at=NOW + DAY, **paid),
        becomes("settling, lease over", State.SETTLED, expires_at=NOW + DAY, **paid),
        becomes("uncertain", State.SETTLED, expires_at=NOW + DAY, **paid),
        # The owner expected another state: it answers by the table, where a replay carries the row's receipt.
        becomes("released", State.SETTLED, owned=False, audit=late, expires_at=NOW + DAY, **paid),
        # Marked where it stands, in the window that it had; the operator refunds.
        becomes("released, over", State.SETTLED, owned=False, audit=late, **paid),
        becomes("released, below a newer one", State.SETTLED, owned=False, audit=late, **paid),
    )
    failed: dict[str, Any] = {"reason": "insufficient_balance", "receipt": "refusal receipt", "expires_at": NOW + DAY}
    line("refuse", *(becomes(s, State.FAILED, **failed) for s in ("settling", "settling, lease over", "uncertain")))
    line("unsend", ("settling", gone), ("settling, lease over", gone), ("uncertain", gone))
    line("doubt", *(becomes(s, State.UNCERTAIN, reason="timeout") for s in ("settling", "settling, lease over")))
    line(
        "lapse",
        becomes("settling, lease over", State.UNCERTAIN, reason="the settle call's outcome was never recorded"),
    )
    line(
        "operator settles",
        *(
            becomes(s, State.SETTLED, audit=by_ada, **reconciled)
            for s in ("settling, lease over", "uncertain", "released")
        ),
    )
    released: dict[str, Any] = {"reason": "released by an operator", "expires_at": NOW + DAY}
    line(
        "operator releases",
        *(
            becomes(s, State.RELEASED, audit=Audit("ada", "released", "nonce unused"), **released)
            for s in ("settling, lease over", "uncertain")
        ),
    )
    return lines


LINES = expected()
OTHERS = [(situation, event) for situation in SITUATIONS for event in EVENTS if (situation, event) not in LINES]


def after(situation: str, event: str) -> Step:
    current = "below a newer one" not in situation
    return SITUATIONS[situation].after(EVENTS[event], NOW, current=current)


@pytest.mark.parametrize(("situation", "event"), LINES, ids=[" | ".join(pair) for pair in LINES])
def test_line_of_the_table(situation: str, event: str) -> None:
    assert after(situation, event) == LINES[situation, event]


@pytest.mark.parametrize(("situation", "event"), OTHERS, ids=[" | ".join(pair) for pair in OTHERS])
def test_what_is_no_line_of_the_table_moves_nothing_and_decides_nothing(situation: str, event: str) -> None:
    assert after(situation, event) == Step(SITUATIONS[situation], owned=False)


@pytest.mark.parametrize(("situation", "event"), LINES, ids=[" | ".join(pair) for pair in LINES])
def test_no_move_changes_what_was_bought(situation: str, event: str) -> None:
    moved = after(situation, event).attempt
    if moved is not None:
        before = SITUATIONS[situation]
        bought = (
            "key n claim protocol operation release fingerprint credential_digest proofs output_sha256 amount asset "
            "network payment_id valid_before created_at answer_sha256 schema_sha256 request_id"
        )
        assert [getattr(moved, name) for name in bought.split()] == [getattr(before, name) for name in bought.split()]


def test_a_payer_that_the_answer_does_not_name_stays_as_it_was() -> None:
    moved = row(State.SETTLING).after(RecordSettled("receipt", TX), NOW).attempt
    assert moved is not None
    assert moved.payer == row(State.SETTLING).payer


@pytest.mark.parametrize(
    ("said", "kept"),
    [("x" * 70_000, "x" * 500), ("half a pair \ud800, NUL \0", "half a pair ?, NUL ?"), ("añb 😀", "añb 😀")],
    ids=["cut", "made storable", "left alone"],
)
def test_a_reason_never_keeps_an_outcome_from_being_written(said: str, kept: str) -> None:
    moved = row(State.SETTLING).after(RecordUncertain(said), NOW).attempt
    assert moved is not None
    assert moved.reason == kept


def test_a_draft_begins_now_at_its_n_with_a_lease_that_ends_later() -> None:
    made = draft(proofs=(proof("b"), proof("a")), transaction=TX)
    begun = made.begun(3, NOW)
    assert (begun.n, begun.state, begun.lease) == (3, State.RESERVED, NOW + 50)
    assert (begun.created_at, begun.updated_at, begun.expires_at) == (NOW, NOW, None)
    assert begun.proofs == tuple(sorted(made.proofs))
    bought = [field.name for field in fields(Bought) if field.name != "proofs"]
    assert [getattr(begun, name) for name in bought] == [getattr(made, name) for name in bought]


@pytest.mark.parametrize("state", State)
def test_only_a_settling_attempt_counts_as_another_state_and_only_once_its_lease_is_over(state: State) -> None:
    assert row(state, lease=NOW + 0.001).state_at(NOW) is state
    over = State.UNCERTAIN if state is State.SETTLING else state
    assert row(state, lease=NOW).state_at(NOW) is over
