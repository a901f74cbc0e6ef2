"""The invariants checker proves itself: every broken build is caught, by the real service's own trials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.invariants import Answer, Call, Change, Decision, History, Holder, Move, violations
from tests.faults.lives import Nursery
from tests.faults.sabotage import SABOTAGES
from tests.faults.trials import run

TRIALS = 15
"""Within so many trials each must be caught; most are in the first one."""

SEED = 7


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


@pytest.mark.parametrize("name", SABOTAGES)
def test_every_broken_build_is_caught(nursery: Nursery, tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path / 'attempts.db'}"
    report = asyncio.run(run(nursery, url, tmp_path, trials=TRIALS, seed=SEED, broken=name, day_every=1))
    found = {text.partition(":")[0] for text in report.violations}
    assert found & set(SABOTAGES[name].breaks), found


def test_the_same_trials_find_nothing_in_the_build_that_is_sold(nursery: Nursery, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'attempts.db'}"
    report = asyncio.run(run(nursery, url, tmp_path, trials=3, seed=SEED, day_every=1))
    assert report.violations == []


def test_there_are_enough_broken_builds() -> None:
    assert len(SABOTAGES) >= 8


# The checker by itself: a history that is in order, and what each invariant sees in one that is not.

KEY, PROOF, CLAIM = "key", "proof", "claim"
SETTLED = Holder(CLAIM, "settled", "digest", "receipt")
PAID = Answer(KEY, PROOF, "digest", 2.0, 200, None, b"content", "receipt", (SETTLED,))
BOUGHT = History(
    answers=[PAID],
    calls=[Call(KEY, PROOF, (Holder(CLAIM, "settling", "digest", None),))],
    moves=[Move(KEY, PROOF, 1.0)],
    changes=[
        Change(KEY, 1, CLAIM, None, "reserved", PROOF, None),
        Change(KEY, 1, CLAIM, "reserved", "settling", PROOF, None),
        Change(KEY, 1, CLAIM, "settling", "settled", PROOF, 100.0),
    ],
    last={(KEY, PROOF): PAID},
    now=3.0,
)


def changed(**lists: list[object]) -> History:
    """Return the good history with more in it."""
    members = {name: [*getattr(BOUGHT, name), *lists.get(name, [])] for name in ("answers", "calls", "moves")}
    members |= {name: [*getattr(BOUGHT, name), *lists.get(name, [])] for name in ("changes", "freed", "decisions")}
    members |= {name: lists.get(name, []) for name in ("strays", "canaries")}
    return History(**members, last=dict(BOUGHT.last), now=BOUGHT.now)


def refused(status: int, code: str, proof: str | None = None, **more: object) -> Answer:
    return Answer(KEY, proof, None, 2.0, status, code, **more)  # type: ignore[arg-type]


BROKEN: dict[str, tuple[str, History]] = {
    "a proof moves twice": ("I1", changed(moves=[Move("another key", PROOF, 1.5)])),
    "a key moves twice": ("I2", changed(moves=[Move(KEY, "another proof", 1.5)])),
    "a 200 without a row": ("I3", changed(answers=[Answer("k", "p", "d", 2.0, 200, None, b"", "r", ())])),
    "a 200 to another credential": (
        "I3",
        changed(answers=[Answer(KEY, "p", "other", 2.0, 200, None, b"content", "receipt", (SETTLED,))]),
    ),
    "money without a row": ("I4", changed(moves=[Move("another key", "another proof", 1.0)])),
    "a call before SUBMIT": ("I5", changed(calls=[Call(KEY, "p", (Holder(CLAIM, "reserved", "digest", None),))])),
    "two calls": ("I5", changed(calls=[*BOUGHT.calls])),
    "two different 200s": (
        "I6",
        changed(answers=[Answer(KEY, PROOF, "digest", 2.0, 200, None, b"other", "receipt", (SETTLED,))]),
    ),
    "a submitted row is deleted": ("I9", changed(changes=[Change(KEY, 1, CLAIM, "settled", None, PROOF, 100.0)])),
    "a settled row goes back": ("I9", changed(changes=[Change(KEY, 1, CLAIM, "settled", "uncertain", PROOF, None)])),
    "a submitted proof is deleted": ("I9", changed(freed=[CLAIM])),
    "a stray request": ("I9", changed(strays=["/elsewhere"])),
    "a 402 for a proof that moved": ("I8", changed(answers=[refused(402, "PAYMENT_REJECTED", PROOF)])),
    "a challenge after the money moved": ("I8", changed(answers=[refused(402, "PAYMENT_REQUIRED")])),
    "a canary": ("I10", changed(canaries=["service.log"])),
    "another answer than the table's": (
        "table",
        changed(answers=[refused(409, "DUPLICATE_PROOF", allowed=((409, "PAYMENT_UNCERTAIN"),))]),
    ),
}


def test_a_history_in_order_breaks_nothing() -> None:
    assert violations(BOUGHT) == []


@pytest.mark.parametrize("case", BROKEN)
def test_each_invariant_sees_what_breaks_it(case: str) -> None:
    invariant, history = BROKEN[case]
    assert invariant in {text.partition(":")[0] for text in violations(history)}


def test_a_payment_whose_resend_is_not_answered_is_a_lost_receipt() -> None:
    history = changed()
    history.last[KEY, PROOF] = refused(409, "PAYMENT_UNCERTAIN", PROOF)
    assert any(text.startswith("lost receipt") for text in violations(history))


def test_a_payment_may_follow_a_release_and_a_settling_row_may_not_be_forgotten() -> None:
    released = [
        Change("k", 1, "c", None, "reserved", "p", None),
        Change("k", 1, "c", "reserved", "settling", "p", None),
        Change("k", 1, "c", "settling", "uncertain", "p", None),
        Change("k", 1, "c", "uncertain", "released", "p", 100.0),
    ]
    assert any(text.startswith("I7") for text in violations(History(changes=released)))
    assert violations(History(changes=released, decisions=[Decision("k", 1, "op", "released")])) == []
    forgotten = [*released[:2], Change("k", 1, "c", "settling", None, "p", None)]
    assert violations(History(changes=forgotten)) == [], "it was not sent"
    called = Call("k", "p", (Holder("c", "settling", "digest", None),))
    assert any(text.startswith("I7") for text in violations(History(changes=forgotten, calls=[called])))
