"""Every cell of the fault matrix over x402, through the whole service; the MPP half is `test_matrix_mpp.py`.

The facilitator keeps the ledger itself and lies about it as each mode says; `tests/judges/test_x402_faults.py` has the
same modes before a real chain.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import apsw
import httpx
import pytest
from eth_account import Account

from ranking_evaluate import order
from ranking_evaluate.payments import refusing
from tests.faults.facilitator import Fault, FaultyFacilitator, ledger_only
from tests.faults.matrix import COLUMNS, IN_FLIGHT, MPP, PAGE, X402, Row, page
from tests.faults.real_matrix import REAL
from tests.faults.sabotage import SABOTAGES
from tests.faults.served import Served, served
from tests.faults.told import IN_PROGRESS, REJECTED, SOLD, UNAVAILABLE, UNKNOWN, Told
from tests.hostile.service import BODY, CHAIN_ID, CURRENCY, MPP_KEY, NETWORK, PAYEE, node
from tests.judges.x402_buyer import Buyer, Payload, decoded, new_key, signed

DEADLINE: Final = 0.5
TESTS: Final = Path(__file__).parent.parent


@dataclass
class Shop:
    """A service whose facilitator does as the test says, and a buyer."""

    service: Served
    facilitator: FaultyFacilitator
    buyer: Buyer

    def post(self, key: str, payload: Payload | None, *, garbage: bool = False) -> Told:
        """Send a request and return status and code; a challenge comes with a 402 and with nothing else."""
        headers = {"PAYMENT-SIGNATURE": "%%%"} if garbage else {}
        answer = self.buyer.post(key, payload, headers=headers)
        assert ("payment-required" in answer.headers) is (answer.status_code == 402)
        waits = answer.status_code == 503 or told(answer) == IN_PROGRESS
        assert ("retry-after" in answer.headers) is waits
        return told(answer)

    def further(self, column: str, key: str, payload: Payload) -> Told:
        """Send the further request of a column."""
        match column:
            case "identical":
                return self.post(key, payload)
            case "fresh":
                return self.post(key, self.buyer.sign(key))
            case "none":
                return self.post(key, None)
            case _:
                return self.post(key, None, garbage=True)

    def state(self, key: str) -> str | None:
        """Return what the service says of a key."""
        found = self.buyer.attempt(key)
        return None if found is None else found["state"]


def told(answer: httpx.Response) -> Told:
    return answer.status_code, None if answer.is_success else answer.json()["code"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with FaultyFacilitator(ledger_only(NETWORK)) as facilitator, node() as node_url:
        environment = {
            "X402_PAY_TO": PAYEE,
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": facilitator.url,
            "MPP_RECIPIENT": PAYEE,
            "MPP_CHAIN_ID": str(CHAIN_ID),
            "MPP_RPC_URL": node_url,
            "MPP_CURRENCY": CURRENCY,
            "MPP_SECRET_KEY": MPP_KEY,
            "VERIFY_TIMEOUT": str(DEADLINE),
            "SETTLE_TIMEOUT": str(DEADLINE),
        }
        with (
            # Each fault is tried by several purchases at once: three refused bills would close the shop to the rest.
            pytest.MonkeyPatch.context() as patch,
            served(tmp_path_factory.mktemp("matrix") / "attempts.db", environment) as service,
        ):
            patch.setattr(refusing, "PAUSE", 0.0)
            yield Shop(service, facilitator, Buyer(service.client, Account.create().key.hex(), BODY))


@pytest.fixture
def facilitator(shop: Shop) -> Iterator[FaultyFacilitator]:
    shop.facilitator.reset()
    yield shop.facilitator
    shop.facilitator.reset()


@pytest.mark.parametrize("fault", Fault)
def test_every_further_request_is_answered_by_the_table_and_pays_nothing_twice(
    shop: Shop, facilitator: FaultyFacilitator, fault: Fault
) -> None:
    row = X402[fault]
    keys = {column: new_key() for column in COLUMNS}
    payloads = {column: shop.buyer.sign(key) for column, key in keys.items()}
    facilitator.set(fault)
    with ThreadPoolExecutor(len(COLUMNS)) as threads:
        posting = {column: threads.submit(shop.post, keys[column], payloads[column]) for column in COLUMNS}
    firsts = {column: posted.result() for column, posted in posting.items()}
    assert set(firsts.values()) == {row.first}
    assert facilitator.attempts.total() == row.calls * len(COLUMNS)
    assert facilitator.moves.total() == row.moves * len(COLUMNS)
    assert {shop.state(key) for key in keys.values()} == {row.state}
    facilitator.set(Fault.NONE)
    for column, expected in row.columns.items():
        moves, calls = facilitator.moves.total(), facilitator.attempts.total()
        assert shop.further(column, keys[column], payloads[column]) == expected, column
        # What is answered 200 and was not paid before pays now, and nothing else does.
        paid = int(expected == SOLD and row.first != SOLD)
        assert facilitator.moves.total() - moves == facilitator.attempts.total() - calls == paid, column
    # Once more, whatever became of it: no key has paid twice, and no authorization was sent twice.
    for column, key in keys.items():
        shop.post(key, payloads[column])
    assert set(facilitator.attempts.values()) <= {1}
    assert set(facilitator.moves.values()) <= {1}
    assert facilitator.strays == []


@pytest.mark.parametrize("fault", IN_FLIGHT)
def test_while_a_request_waits_for_its_facilitator_the_others_are_told_so(
    shop: Shop, facilitator: FaultyFacilitator, fault: Fault
) -> None:
    row, key = IN_FLIGHT[fault], new_key()
    payload, other = shop.buyer.sign(key), shop.buyer.sign(key)
    facilitator.set(fault)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(shop.post, key, payload)
        until(lambda: shop.state(key) == row.state)
        assert shop.post(key, payload) == row.identical
        assert shop.post(key, other) == row.fresh
        assert shop.post(key, None) == row.none
        assert shop.post(key, None, garbage=True) == row.malformed
        assert not first.done(), "the first request was over before the others were asked"
        assert first.result() == row.first
    assert (facilitator.attempts.total(), facilitator.moves.total()) == (row.calls, row.moves)


def until(condition: Any) -> None:
    give_up = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.002)


def test_every_fault_has_its_row() -> None:
    assert set(X402) == set(Fault)
    assert {row.first for row in X402.values()} >= {SOLD, UNAVAILABLE}
    assert all(row.moves <= row.calls <= 1 for row in (*X402.values(), *IN_FLIGHT.values()))


def test_the_published_matrix_is_the_one_that_is_tested() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(tuple(SABOTAGES)), "stale: run python -m tests.faults.matrix"


def test_a_credential_signed_before_the_price_changed_is_refused_with_the_new_price(
    shop: Shop, facilitator: FaultyFacilitator, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_key()
    payload = shop.buyer.sign(key)
    offer_of = order.offer_of
    dearer = lambda *args, **named: replace(offer_of(*args, **named), amount=20_000)  # noqa: E731
    monkeypatch.setattr(order, "offer_of", dearer)
    answer = shop.buyer.post(key, payload)
    assert told(answer) == REJECTED
    [asked] = decoded(answer.headers["payment-required"])["accepts"]
    assert asked["amount"] == "20000"
    assert shop.post(key, signed(answer, shop.buyer.wallet_key)) == SOLD
    assert set(facilitator.attempts.values()) == {1}


def test_a_store_that_takes_no_purchase_is_503_and_nobody_is_asked_to_settle(
    shop: Shop, facilitator: FaultyFacilitator
) -> None:
    key = new_key()
    payload = shop.buyer.sign(key)
    full = "CREATE TRIGGER full BEFORE INSERT ON attempts BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END"
    with closing(apsw.Connection(str(shop.service.database))) as database:
        database.execute(full)
        for _ in range(2):
            assert shop.post(key, payload) == (503, "STATE_UNAVAILABLE")
        assert (facilitator.verifications.total(), facilitator.attempts.total()) == (0, 0)
        database.execute("DROP TRIGGER full")
    # Nothing is sold until the service has seen a write succeed, which it tries every second.
    until = time.monotonic() + 10
    while (answer := shop.post(key, payload)) == (503, "STATE_UNAVAILABLE") and time.monotonic() < until:
        time.sleep(0.1)
    assert answer == SOLD


def test_a_facilitator_whose_bill_is_unpaid_leaves_three_buyers_uncertain_and_no_more(
    shop: Shop, facilitator: FaultyFacilitator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sold_key, keys, later = new_key(), [new_key() for _ in range(3)], new_key()
    sold, late = shop.buyer.sign(sold_key), shop.buyer.sign(later)
    assert shop.post(sold_key, sold) == SOLD
    monkeypatch.setattr(refusing, "PAUSE", 3.0)
    payloads = [shop.buyer.sign(key) for key in keys]
    facilitator.reset(Fault.UNPAID_BILL)
    for key, payload in zip(keys, payloads, strict=True):
        assert shop.post(key, payload) == UNKNOWN
    assert shop.post(later, late) == UNAVAILABLE
    x402 = shop.service.client.get("/readyz").json()["rails"]["x402"]
    assert (x402["ready"], x402["reason"]) == (False, "the facilitator refuses every call for reasons of its own")
    # What needs no facilitator goes on.
    assert shop.post(sold_key, sold) == SOLD
    assert shop.post(keys[0], payloads[0]) == UNKNOWN
    assert facilitator.attempts.total() == len(keys)
    facilitator.set(Fault.NONE)
    until = time.monotonic() + 10
    while (answer := shop.post(later, late)) == UNAVAILABLE and time.monotonic() < until:
        time.sleep(0.1)
    assert answer == SOLD
    assert shop.service.client.get("/readyz").json()["rails"]["x402"]["ready"] is True


def is_safe(row: Row) -> bool:
    """Whether a row keeps the promise: what paid or may have paid is never asked to pay, nor paid for, again."""
    if row.state in {"settled", "uncertain"}:
        return all(status != 402 for status, _ in row.columns.values()) and row.fresh != SOLD
    return row.moves == 0


def test_no_row_of_the_matrix_asks_anybody_to_pay_again() -> None:
    assert all(is_safe(row) for row in (*X402.values(), *(row for _, row in MPP.values())))
    for real in REAL.values():
        assert real.moves == 0 or 402 not in {real.first[0], real.none[0], real.identical[0], real.fresh[0]}
        assert real.state not in {"settled", "uncertain"} or real.fresh != SOLD


# The sequences of the hostile cases, and the tests that play them.

CASES: Final = TESTS / "hostile" / "hostile-http.jsonl"
"""Its rows of kind `sequence` have several requests each; `tests/hostile` sends the other rows."""

SEQUENCES: Final = {
    "Q01": "judges/test_x402_clients.py::test_a_paid_credential_buys_nothing_else",
    "Q02": "judges/test_x402_clients.py::test_a_paid_credential_buys_nothing_else",
    "Q03": "judges/test_x402_clients.py::test_a_paid_credential_buys_nothing_else",
    "Q04": "faults/test_mpp_faults.py::test_the_key_is_taken_on_the_other_protocols_route_in_every_state_past_absent",
    "Q05": "judges/test_x402_clients.py::test_a_paid_credential_buys_nothing_else",
    "Q06": "judges/test_x402_clients.py::test_a_paid_credential_buys_nothing_else",
    "Q07": "judges/test_x402_clients.py::test_identical_resends_get_identical_bytes",
    "Q08": "judges/test_x402_processes.py::test_fifty_identical_requests_in_two_processes_settle_once",
    "Q09": "judges/test_x402_clients.py::test_only_one_of_many_relabelled_copies_is_sold",
    "Q10": "judges/test_x402_faults.py::test_a_settlement_whose_outcome_is_hidden_is_uncertain_for_ever",
    "Q11": "judges/test_x402_faults.py::test_a_settlement_whose_outcome_is_hidden_is_uncertain_for_ever",
    "Q12": "judges/test_x402_faults.py::test_a_call_that_was_not_made_is_503_and_the_identical_request_buys_later",
    "Q13": "judges/test_x402_faults.py::test_a_settlement_whose_outcome_is_hidden_is_uncertain_for_ever",
    "Q14": "judges/test_x402_faults.py::test_a_settlement_whose_outcome_is_hidden_is_uncertain_for_ever",
    "Q15": "judges/test_x402_faults.py::test_a_definite_refusal_is_a_402_with_its_receipt_and_a_new_credential_buys",
    "Q16": "judges/test_x402_faults.py::test_a_client_that_leaves_mid_settle_finds_its_answer",
    "Q17": "test_day_after.py::test_a_paid_key_is_replayed_for_a_day_and_never_sold_again",
    "Q18": "test_day_after.py::test_a_paid_key_is_replayed_for_a_day_and_never_sold_again",
    "Q19": "test_day_after.py::test_an_uncertain_payment_waits_for_its_operator_however_long",
    "Q20": "test_day_after.py::test_another_release_within_the_day_is_a_conflict_with_its_cause",
    "Q21": "faults/test_matrix.py::test_a_credential_signed_before_the_price_changed_is_refused_with_the_new_price",
    "Q22": "faults/test_matrix.py::test_a_store_that_takes_no_purchase_is_503_and_nobody_is_asked_to_settle",
    "Q23": "http/test_app.py::test_a_client_over_its_rate_waits_and_another_does_not",
    "Q24": "http/test_app.py::test_a_client_that_was_limited_while_it_paid_still_gets_what_it_paid_for",
    "Q25": "faults/test_mpp_faults.py::test_every_cell_of_the_decision_table",
    "Q26": "judges/test_x402_processes.py::test_a_service_that_is_told_to_end_mid_settle_delivers_first",
    "Q27": "faults/test_mpp_faults.py::test_500_malformed_credentials_are_refused_and_never_a_bug",
    "Q28": "faults/test_mpp_faults.py::test_a_replay_survives_the_challenge_and_two_rotations_of_the_secret",
    "Q29": "judges/test_x402_faults.py::test_a_replay_does_not_need_the_facilitator",
    "Q30": "judges/test_x402_faults.py::test_a_failed_credential_stays_refused_after_a_later_one_was_not_verified",
    "Q31": "judges/test_x402_faults.py::test_a_settlement_whose_outcome_is_hidden_is_uncertain_for_ever",
    "Q32": "judges/test_x402_faults.py::test_an_authorization_that_somebody_has_used_is_uncertain",
    "Q33": "test_day_after.py::test_a_failed_key_is_free_after_a_day_and_its_proof_is_not",
}


def test_every_sequence_names_the_test_that_plays_it() -> None:
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    assert set(SEQUENCES) == {row["id"] for row in rows if row["kind"] == "sequence"}
    for sequence, test in SEQUENCES.items():
        path, _, name = test.partition("::")
        assert re.search(rf"def {name}\(", (TESTS / path).read_text(encoding="utf-8")), sequence
