"""The decision table: every cell of docs/lifecycle.md, section 4, is one case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from ranking_evaluate.attempts.attempt import Attempt, State
from ranking_evaluate.attempts.decide import (
    Cause,
    Challenge,
    Conflict,
    Decision,
    DuplicateProof,
    InProgress,
    OutcomeUnknown,
    Reject,
    Replay,
    Request,
    Reserve,
    Snapshot,
    decide,
)
from tests.attempts.samples import DAY, KEY, NOW, hexdigest, proof, row

CHALLENGE = Challenge()
RESERVE = Reserve()
DUPLICATE = DuplicateProof()
IN_PROGRESS = InProgress()
OTHER_BODY = Conflict(Cause.BODY)
OTHER_RELEASE = Conflict(Cause.RELEASE, "0.29.0")
OTHER_CREDENTIAL = Conflict(Cause.CREDENTIAL)
PAID = Conflict(Cause.PAID)
EXPIRED = Conflict(Cause.EXPIRED)
# These carry the row on which they rest.
REPLAY, REJECT, UNCERTAIN = Replay, Reject, OutcomeUnknown


@dataclass(frozen=True)
class Situation:
    """What the store holds: the key's rows, and which proofs the purge or other keys have left recorded."""

    rows: tuple[Attempt, ...] = ()
    kept: tuple[bytes, ...] = ()
    last_n: int = 0
    paid_and_purged: bool = False

    @property
    def standing(self) -> Attempt:
        return [row for row in self.rows if not row.lapsed(NOW)][-1]

    def read(self, proofs: tuple[bytes, ...]) -> Snapshot:
        held = {p for r in self.rows if not r.lapsed(NOW) for p in r.proofs} | {*self.kept, proof("of another key")}
        return Snapshot(NOW, self.rows, self.last_n, self.paid_and_purged, frozenset(held.intersection(proofs)))


def lapsed(n: int) -> Attempt:
    return row(State.RESERVED, "lapsed", n=n, lease=NOW)


SETTLED_OVER = row(State.SETTLED, expires_at=NOW)
FAILED_OVER = row(State.FAILED, expires_at=NOW)
RELEASED_OVER = row(State.RELEASED, expires_at=NOW)
OWN_PROOF = (proof("first"),)

SITUATIONS = {
    "none": Situation(),
    "reserved": Situation((row(State.RESERVED),)),
    "settling": Situation((row(State.SETTLING),)),
    "uncertain": Situation((row(State.UNCERTAIN),)),
    "settling, lease over": Situation((row(State.SETTLING, lease=NOW),)),
    "settled": Situation((row(State.SETTLED),)),
    "failed": Situation((row(State.FAILED),)),
    "released": Situation((row(State.RELEASED),)),
    "settling above failed": Situation((row(State.FAILED, "older"), row(State.SETTLING, n=2))),
    "paid, over": Situation((SETTLED_OVER,)),
    "paid, over, purged": Situation((), OWN_PROOF, 1, paid_and_purged=True),
    "paid below failed, both over": Situation(
        (replace(SETTLED_OVER, n=1), row(State.FAILED, "x", n=2, expires_at=NOW))
    ),
    "failed, over": Situation((FAILED_OVER,)),
    "failed, over, purged": Situation((), OWN_PROOF, 1),
    "released, over": Situation((RELEASED_OVER,)),
    "released, over, purged": Situation((), OWN_PROOF, 1),
    "lapsed above nothing": Situation((lapsed(1),)),
    "lapsed above failed": Situation((row(State.FAILED), lapsed(2))),
    "lapsed above released": Situation((row(State.RELEASED), lapsed(2))),
    "lapsed above settled": Situation((row(State.SETTLED), lapsed(2))),
    "lapsed above failed, over": Situation((FAILED_OVER, lapsed(2))),
    "lapsed above failed, over, purged": Situation((lapsed(2),), OWN_PROOF, 1),
}

NOT_CURRENT = "-"
# One line per state, one column per request; "-" where the request cannot be told from another column's.
# The columns:          F≠           F=, none     F=, C=       F=, Cx            F=, Cd
TABLE = {
    "none": (NOT_CURRENT, CHALLENGE, NOT_CURRENT, RESERVE, DUPLICATE),
    "reserved": (OTHER_BODY, IN_PROGRESS, IN_PROGRESS, OTHER_CREDENTIAL, DUPLICATE),
    "settling": (OTHER_BODY, IN_PROGRESS, IN_PROGRESS, OTHER_CREDENTIAL, DUPLICATE),
    "uncertain": (OTHER_BODY, UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN),
    "settling, lease over": (OTHER_BODY, UNCERTAIN, UNCERTAIN, UNCERTAIN, UNCERTAIN),
    "settled": (OTHER_BODY, PAID, REPLAY, PAID, DUPLICATE),
    "failed": (OTHER_BODY, CHALLENGE, REJECT, RESERVE, DUPLICATE),
    "released": (OTHER_BODY, CHALLENGE, REJECT, RESERVE, DUPLICATE),
    # The highest n decides.
    "settling above failed": (OTHER_BODY, IN_PROGRESS, IN_PROGRESS, OTHER_CREDENTIAL, DUPLICATE),
    # A key that was paid is never sold again, in every column.
    "paid, over": (EXPIRED, EXPIRED, EXPIRED, EXPIRED, EXPIRED),
    "paid, over, purged": (EXPIRED, EXPIRED, EXPIRED, EXPIRED, EXPIRED),
    "paid below failed, both over": (EXPIRED, EXPIRED, EXPIRED, EXPIRED, EXPIRED),
    # Past its window a failed attempt is none for every decision; its own credential stays used, for whatever body.
    "failed, over": (DUPLICATE, CHALLENGE, DUPLICATE, RESERVE, DUPLICATE),
    "failed, over, purged": (DUPLICATE, CHALLENGE, DUPLICATE, RESERVE, DUPLICATE),
    "released, over": (DUPLICATE, CHALLENGE, DUPLICATE, RESERVE, DUPLICATE),
    "released, over, purged": (DUPLICATE, CHALLENGE, DUPLICATE, RESERVE, DUPLICATE),
    # A lapsed reservation is answered as the row before it.
    "lapsed above nothing": (NOT_CURRENT, CHALLENGE, NOT_CURRENT, RESERVE, DUPLICATE),
    "lapsed above failed": (OTHER_BODY, CHALLENGE, REJECT, RESERVE, DUPLICATE),
    "lapsed above released": (OTHER_BODY, CHALLENGE, REJECT, RESERVE, DUPLICATE),
    "lapsed above settled": (OTHER_BODY, PAID, REPLAY, PAID, DUPLICATE),
    "lapsed above failed, over": (DUPLICATE, CHALLENGE, DUPLICATE, RESERVE, DUPLICATE),
    "lapsed above failed, over, purged": (DUPLICATE, CHALLENGE, DUPLICATE, RESERVE, DUPLICATE),
}


def request(
    credential: str | None, proof_of: str | None = None, body: str = "body", release: str = "0.29.0"
) -> Request:
    made = Request(KEY, hexdigest(body), release)
    if credential is None:
        return made
    return replace(made, credential_digest=hexdigest(credential), proofs=(proof(proof_of or credential),))


REQUESTS = {
    "F≠, C=": (0, request("first", body="another body")),
    "F=, none": (1, request(None)),
    "F=, C=": (2, request("first")),
    "F=, Cx": (3, request("fresh")),
    "F=, Cd of this attempt": (4, request("first, encoded otherwise", "first")),
    "F=, Cd of another key": (4, request("relabelled", "of another key")),
}


def cells() -> Iterator[object]:
    for state, line in TABLE.items():
        for column, (index, asked) in REQUESTS.items():
            expected = line[index]
            of_nothing = line[0] == NOT_CURRENT and column == "F=, Cd of this attempt"
            if expected != NOT_CURRENT and not of_nothing:
                yield pytest.param(SITUATIONS[state], asked, expected, id=f"{state} | {column}")


def test_the_table_has_a_line_for_every_situation() -> None:
    assert SITUATIONS.keys() == TABLE.keys()


@pytest.mark.parametrize(("situation", "asked", "expected"), list(cells()))
def test_cell(
    situation: Situation, asked: Request, expected: Decision | type[Replay] | type[Reject] | type[OutcomeUnknown]
) -> None:
    if isinstance(expected, type):
        expected = expected(situation.standing)
    assert decide(situation.read(asked.proofs), asked) == expected


STANDING = [state for state, line in TABLE.items() if line[0] == OTHER_BODY]
ANY_CREDENTIAL = [
    (None, None),
    ("first", None),
    ("fresh", None),
    ("recoded", "first"),
    ("relabelled", "of another key"),
]


@pytest.mark.parametrize("credential", ANY_CREDENTIAL, ids=["none", "C=", "Cx", "Cd here", "Cd elsewhere"])
@pytest.mark.parametrize("state", STANDING)
def test_another_body_conflicts_whatever_the_credential(state: str, credential: tuple[str | None, str | None]) -> None:
    asked = request(*credential, body="another body")
    assert decide(SITUATIONS[state].read(asked.proofs), asked) == OTHER_BODY


@pytest.mark.parametrize("state", STANDING)
def test_another_release_conflicts_and_says_so(state: str) -> None:
    asked = request("first", body="the body under 0.30.0", release="0.30.0")
    assert decide(SITUATIONS[state].read(asked.proofs), asked) == OTHER_RELEASE


@pytest.mark.parametrize("state", ["paid, over", "paid, over, purged"])
@pytest.mark.parametrize("credential", ANY_CREDENTIAL, ids=["none", "C=", "Cx", "Cd here", "Cd elsewhere"])
@pytest.mark.parametrize("body", ["body", "another body"])
def test_a_paid_key_is_over_for_ever_in_every_column(
    state: str, credential: tuple[str | None, str | None], body: str
) -> None:
    asked = request(*credential, body=body)
    assert decide(SITUATIONS[state].read(asked.proofs), asked) == EXPIRED


def test_the_credential_of_a_lapsed_reservation_may_come_again() -> None:
    asked = request("lapsed")
    assert decide(SITUATIONS["lapsed above nothing"].read(asked.proofs), asked) == RESERVE


@pytest.mark.parametrize("state", [State.SETTLING, State.UNCERTAIN, State.SETTLED])
def test_money_that_may_have_moved_is_never_answered_with_a_challenge(state: State) -> None:
    for credential in ANY_CREDENTIAL:
        asked = request(*credential)
        got = decide(Situation((row(state),)).read(asked.proofs), asked)
        assert not isinstance(got, Challenge | Reject | Reserve)


def test_one_recorded_proof_of_two_is_enough_to_be_a_duplicate() -> None:
    asked = replace(request("fresh"), proofs=(proof("fresh"), proof("of another key")))
    assert decide(Situation().read(asked.proofs), asked) == DUPLICATE


@pytest.mark.parametrize(
    ("situation", "n"),
    [
        pytest.param(Situation(), 1, id="nothing yet"),
        pytest.param(Situation((row(State.FAILED),)), 2, id="above a failed attempt"),
        pytest.param(Situation((row(State.FAILED), lapsed(2))), 2, id="in a lapsed reservation's place"),
        pytest.param(Situation((lapsed(1),)), 1, id="in the first one's place"),
        pytest.param(Situation((), OWN_PROOF, 3), 4, id="above purged attempts"),
        pytest.param(Situation((row(State.FAILED, n=4),), OWN_PROOF, 3), 5, id="above both"),
        pytest.param(Situation((lapsed(4),), OWN_PROOF, 3), 4, id="in a lapsed one's place above purged ones"),
    ],
)
def test_a_reservation_counts_on_from_what_was_read(situation: Situation, n: int) -> None:
    assert situation.read(()).next_n == n


def test_the_end_of_a_lease_and_of_a_window_belong_to_what_follows() -> None:
    assert not row(State.RESERVED, lease=NOW + 0.001).lapsed(NOW)
    assert row(State.RESERVED, lease=NOW).lapsed(NOW)
    assert not row(State.SETTLED, expires_at=NOW + 0.001).expired(NOW)
    assert row(State.SETTLED, expires_at=NOW).expired(NOW)
    assert not row(State.RESERVED).expired(NOW + 400 * DAY)
