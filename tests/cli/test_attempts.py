"""The operator's commands beside the running service: real chains, both protocols, both stores."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import httpx
import psycopg
import pytest
from typer.testing import CliRunner, Result

from ranking_evaluate import evaluate
from ranking_evaluate.cli import app
from ranking_evaluate.cli.pay import new_key
from ranking_evaluate.cli.payers import PAYERS
from ranking_evaluate.cli.payers.payer import Mandate
from ranking_evaluate.cli.sandbox import SMALL_INPUT
from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from tests.faults import facilitator, tempo_proxy
from tests.faults.facilitator import FaultyFacilitator, forward_to
from tests.faults.tempo_proxy import FaultyTempoProxy
from tests.postgres import PostgresServer

BODY = SMALL_INPUT.encode()
PROTOCOLS = ["x402", "mpp"]
PRICE = 10_000
SOME_TRANSACTION = "0x" + "77" * 32
ONE_STORE = pytest.mark.parametrize("shop", ["sqlite"], indirect=True)


@dataclass
class Payment:
    """What a caller keeps of a purchase: the request that it sends again."""

    url: str
    headers: dict[str, str]
    key: str


class Shop:
    """The running service, the faults between it and its chains, and the operator's terminal."""

    def __init__(
        self, sandbox: Sandbox, environment: dict[str, str], faulty: FaultyFacilitator, proxy: FaultyTempoProxy
    ) -> None:
        self.sandbox, self.faulty, self.proxy = sandbox, faulty, proxy
        self.environment = environment
        self.protocols: dict[str, FundedProtocol] = {funded.protocol: funded for funded in sandbox.protocols}
        self.client = httpx.Client(trust_env=False, timeout=30)

    def operator(self, *arguments: str, **environment: str | None) -> Result:
        """Run a command as the operator does, with the service's environment."""
        given = self.environment | environment
        return CliRunner().invoke(app, ["attempts", *arguments], env={**given, "COLUMNS": "200"})

    def reads(self, *arguments: str) -> Any:
        done = self.operator(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def sign(self, protocol: str, key: str) -> Payment:
        url = f"{self.sandbox.origin}/v1/{protocol}/ranking-evaluate"
        funded = self.protocols[protocol]
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        challenge = self.client.post(url, content=BODY, headers=headers)
        assert challenge.status_code == 402, challenge.text
        mandate = Mandate(
            wallet_key=funded.payer.key, key=key, max_amount=Decimal("0.01"), asset=funded.asset, rpc_url=funded.rpc
        )
        signed = PAYERS[protocol].sign(challenge, mandate)
        return Payment(url, {**headers, signed.header: signed.value}, key)

    def send(self, payment: Payment) -> httpx.Response:
        return self.client.post(payment.url, content=BODY, headers=payment.headers)

    def leave_uncertain(self, protocol: str, *, paid: bool) -> Payment:
        """Buy while the answer of the provider is lost; the money moves or not."""
        payment = self.sign(protocol, new_key())
        before = self.earned(protocol)
        self.faulty.set(facilitator.Fault.RESET_AFTER if paid else facilitator.Fault.RESET_BEFORE)
        hidden = tempo_proxy.Fault.OTHER_RECEIPT
        self.proxy.fault = hidden if paid else tempo_proxy.Fault.REFUSED_BY_NODE
        answer = self.send(payment)
        self.faulty.set(facilitator.Fault.NONE)
        self.proxy.fault = tempo_proxy.Fault.NONE
        assert (answer.status_code, answer.json()["code"]) == (409, "PAYMENT_UNCERTAIN"), answer.text
        assert self.earned(protocol) - before == (PRICE if paid else 0)
        return payment

    def shown_finally(self, key: str) -> str:
        """Return what `show --check` prints once the block that shows the payment is final."""
        give_up = time.monotonic() + 20
        while "not final yet" in (seen := self.operator("show", key, "--check").stdout):
            assert time.monotonic() < give_up
        return seen

    def earned(self, protocol: str) -> int:
        funded = self.protocols[protocol]
        return funded.balance(funded.payee)

    def age(self, payment: Payment, seconds: int) -> None:
        """Let the payment be one that was signed so long ago; the chains' time cannot be moved for one of many."""
        query = "UPDATE {} SET valid_before = valid_before - {} WHERE key = '{}'"
        url = self.environment["RANKING_EVALUATE_DATABASE_URL"]
        if url.startswith("sqlite"):
            with contextlib.closing(apsw.Connection(url.removeprefix("sqlite:///"))) as file:
                file.execute(query.format("attempts", seconds, payment.key))
        else:
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(query.format("ranking_evaluate.attempts", seconds, payment.key).encode())


@pytest.fixture(scope="module")
def sandbox() -> Iterator[tuple[Sandbox, dict[str, str], FaultyFacilitator, FaultyTempoProxy]]:
    own = {
        "RANKING_EVALUATE_VERIFY_TIMEOUT": "5",
        "RANKING_EVALUATE_SETTLE_TIMEOUT": "8",
        # The operator decides here, not the chain before it.
        "RANKING_EVALUATE_RECONCILE": "off",
    }
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(Sandbox(environment=own))
        faulty = stack.enter_context(FaultyFacilitator(forward_to(str(running.info["x402"]["facilitator"]))))
        proxy = stack.enter_context(FaultyTempoProxy(str(running.info["mpp"]["rpc"])))
        own["RANKING_EVALUATE_X402_FACILITATOR_URL"] = faulty.url
        own["RANKING_EVALUATE_MPP_RPC_URL"] = proxy.url
        yield running, own, faulty, proxy


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, sandbox: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    running, own, faulty, proxy = sandbox
    if request.param == "sqlite":
        own["RANKING_EVALUATE_DATABASE_URL"] = f"sqlite:///{tmp_path_factory.mktemp('store') / 'attempts.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        own["RANKING_EVALUATE_DATABASE_URL"] = server.new_database()
    running.stop_service()
    running.start_service()
    environment: dict[str, str] = {}
    for funded in running.protocols:
        environment |= funded.environment
    made = Shop(running, {**environment, **own}, faulty, proxy)
    yield made
    made.client.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_payment_that_landed_is_found_checked_and_settled_and_the_resend_gets_its_answer(
    shop: Shop, protocol: str
) -> None:
    payment = shop.leave_uncertain(protocol, paid=True)
    earned = shop.earned(protocol)

    assert payment.key in [attempt["key"] for attempt in shop.reads("list", "--state", "uncertain")]
    assert payment.key in shop.operator("list", "--state", "uncertain").stdout
    seen = shop.shown_finally(payment.key)
    [advised] = re.findall(r"ranking-evaluate attempts (settle .*)", seen)
    assert shop.operator("release", payment.key).exit_code == 1
    settled = shop.operator(*advised.split())
    assert (settled.exit_code, settled.stderr) == (0, "")

    resent = shop.send(payment)
    assert (resent.status_code, resent.content) == (200, evaluate("ranking-evaluate", BODY))
    shown = shop.reads("show", payment.key)
    receipt = resent.headers["payment-response" if protocol == "x402" else "payment-receipt"]
    assert (shown["state"], shown["receipt"]) == ("settled", receipt)
    [decision] = shown["decisions"]
    assert decision["what"] == "settled"
    assert decision["evidence"] == f"chain: landed: this payment is in transaction {shown['transaction']}"
    assert "@" in decision["who"]
    assert shop.protocols[protocol].is_confirmed(shown["transaction"])
    assert shop.earned(protocol) == earned


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_payment_that_never_landed_is_released_when_it_cannot_any_more_and_may_be_paid_again(
    shop: Shop, protocol: str
) -> None:
    payment = shop.leave_uncertain(protocol, paid=False)
    earned = shop.earned(protocol)

    early = shop.operator("release", payment.key)
    assert early.exit_code == 1
    assert "may still land" in early.stderr
    assert "Check again at" in shop.operator("show", payment.key, "--check").stdout
    shop.age(payment, 900)
    seen = shop.operator("show", payment.key, "--check").stdout
    [advised] = re.findall(r"ranking-evaluate attempts (release .*)", seen)
    released = shop.operator(*advised.split())
    assert (released.exit_code, released.stderr) == (0, "")

    refused = shop.send(payment)
    assert (refused.status_code, refused.json()["code"]) == (402, "PAYMENT_REJECTED")
    again = shop.send(shop.sign(protocol, payment.key))
    assert (again.status_code, again.content) == (200, evaluate("ranking-evaluate", BODY))
    assert shop.earned(protocol) == earned + PRICE
    shown = shop.reads("show", payment.key)
    assert (shown["n"], shown["state"]) == (2, "settled")
    [decision] = shown["decisions"]
    assert (decision["n"], decision["what"]) == (1, "released")
    assert decision["evidence"].startswith("chain: never landed: ")


@ONE_STORE
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_transaction_of_another_payment_settles_nothing(shop: Shop, protocol: str) -> None:
    other = shop.sign(protocol, new_key())
    assert shop.send(other).status_code == 200
    transaction = shop.reads("show", other.key)["transaction"]
    payment = shop.leave_uncertain(protocol, paid=True)
    for wrong in (transaction, SOME_TRANSACTION):
        refused = shop.operator("settle", payment.key, "--tx", wrong)
        assert refused.exit_code == 1
        assert "The chain does not show this payment in" in refused.stderr
    malformed = shop.operator("settle", payment.key, "--tx", "0x12")
    assert (malformed.exit_code, "not a transaction hash" in malformed.stderr) == (1, True)
    assert shop.reads("show", payment.key)["decisions"] == []
    assert shop.send(payment).json()["code"] == "PAYMENT_UNCERTAIN"


@ONE_STORE
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_forced_release_is_the_operators_word_and_the_audit_says_so(shop: Shop, protocol: str) -> None:
    payment = shop.leave_uncertain(protocol, paid=False)
    forced = shop.reads("release", payment.key, "--force")
    assert forced["state"] == "released"
    assert forced["decisions"][0]["evidence"].startswith("forced; chain: unknown: ")
    assert shop.operator("release", payment.key, "--force").exit_code == 1
    assert shop.operator("settle", payment.key, "--tx", SOME_TRANSACTION).exit_code == 1
    turned = shop.reads("settle", payment.key, "--tx", SOME_TRANSACTION, "--force")
    assert (turned["state"], turned["transaction"]) == ("settled", SOME_TRANSACTION)
    assert [decision["what"] for decision in turned["decisions"]] == ["released", "settled"]
    assert shop.send(payment).status_code == 200


@ONE_STORE
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_chain_shows_is_released_only_by_whoever_repeats_its_transaction(shop: Shop, protocol: str) -> None:
    payment = shop.leave_uncertain(protocol, paid=True)
    shop.shown_finally(payment.key)
    for arguments in (("--force",), ("--force", "--tx", SOME_TRANSACTION), ("--tx", SOME_TRANSACTION)):
        refused = shop.operator("release", payment.key, *arguments)
        assert refused.exit_code == 1
        assert "The chain shows the payment in" in refused.stderr
    landed = shop.reads("show", payment.key, "--check")["chain"]["transaction"]
    assert shop.reads("show", payment.key)["decisions"] == []
    done = shop.operator("release", payment.key, "--force", "--tx", landed)
    assert (done.exit_code, "They were charged" in done.stdout, landed in done.stdout) == (0, True, True)
    # What its caller is told is true, wherever it asks.
    asked = shop.client.get(f"{shop.sandbox.origin}/v1/attempts", headers={"Idempotency-Key": payment.key})
    told = asked.json()
    assert (told["state"], told["transaction"]) == ("released", landed)
    assert told["nextStep"].startswith("You were charged")
    again = shop.send(payment)
    assert (again.status_code, again.json()["code"]) == (402, "PAYMENT_REJECTED")
    assert "although it was paid" in again.json()["detail"]
    # The decision can be mended while it stands.
    assert shop.reads("settle", payment.key, "--tx", landed)["state"] == "settled"
    assert shop.send(payment).status_code == 200


@ONE_STORE
def test_looking_needs_no_protocol_and_asking_a_chain_names_the_wrong_setting(shop: Shop) -> None:
    payment = shop.sign("x402", new_key())
    assert shop.send(payment).status_code == 200
    broken: dict[str, str | None] = {"RANKING_EVALUATE_X402_PAY_TO": "0x12", "RANKING_EVALUATE_MPP_CHAIN_ID": None}
    assert payment.key in shop.operator("list", **broken).stdout
    assert "settled" in shop.operator("show", payment.key, **broken).stdout
    checked = shop.operator("show", payment.key, "--check", **broken)
    assert checked.exit_code == 2
    assert {line.split(":")[0] for line in checked.stderr.splitlines()} == {
        "RANKING_EVALUATE_X402_PAY_TO",
        "RANKING_EVALUATE_MPP_CHAIN_ID",
    }


@ONE_STORE
def test_without_a_node_the_chain_is_unknown_and_nothing_is_decided_without_force(shop: Shop) -> None:
    payment = shop.leave_uncertain("x402", paid=True)
    shop.age(payment, 900)
    blind: dict[str, str | None] = {"RANKING_EVALUATE_X402_RPC_URL": None}
    assert "X402_RPC_URL names no node of eip155:31337" in shop.operator("show", payment.key, "--check", **blind).stdout
    assert shop.operator("release", payment.key, **blind).exit_code == 1
    assert shop.operator("settle", payment.key, "--tx", SOME_TRANSACTION, **blind).exit_code == 1


@ONE_STORE
def test_a_key_that_stands_for_nothing_is_told(shop: Shop) -> None:
    for command in (["show", "nobody-bought-this-0001"], ["release", "nobody-bought-this-0001"]):
        done = shop.operator(*command)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "Nothing is recorded under the key nobody-bought-this-0001." in done.stderr


def test_a_service_that_is_asked_to_end_mid_settle_leaves_a_row_that_is_replayed(shop: Shop) -> None:
    payment = shop.sign("x402", new_key())
    settling, go_on = threading.Event(), threading.Event()
    call = shop.faulty._call

    def slow(path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/settle":
            settling.set()
            go_on.wait(10)
        return call(path, body)

    shop.faulty._call = slow
    try:
        with httpx.Client(trust_env=False, timeout=1) as impatient, pytest.raises(httpx.ReadTimeout):
            impatient.post(payment.url, content=BODY, headers=payment.headers)
        assert settling.is_set()
        process = shop.sandbox.processes._running["service"]
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None, "it did not wait for the settlement"
        go_on.set()
        assert process.wait(10) in {0, -signal.SIGTERM}
    finally:
        shop.faulty._call = call
        shop.sandbox.stop_service()
        shop.sandbox.start_service()
    replayed = shop.send(payment)
    assert (replayed.status_code, replayed.headers["idempotent-replayed"]) == (200, "true")


def test_an_operator_in_the_wrong_folder_makes_no_empty_store(tmp_path: Path) -> None:
    command = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
    done = subprocess.run([command, "attempts", "list"], cwd=tmp_path, env={}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == ["Is RANKING_EVALUATE_DATABASE_URL the one of the service?"]
    assert list(tmp_path.iterdir()) == []


def test_an_operator_at_the_wrong_database_makes_no_tables(postgres_server: PostgresServer) -> None:
    nothing = CliRunner().invoke(
        app, ["attempts", "list"], env={"RANKING_EVALUATE_DATABASE_URL": postgres_server.new_database()}
    )
    assert (nothing.exit_code, "holds no attempt store" in nothing.stderr) == (2, True)


# The chain decides, asked by the operator.


@ONE_STORE
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_round_now_settles_what_landed(shop: Shop, protocol: str) -> None:
    payment = shop.leave_uncertain(protocol, paid=True)
    shop.shown_finally(payment.key)
    tried = shop.operator("reconcile", payment.key, "--dry-run")
    assert (tried.exit_code, shop.reads("show", payment.key)["state"]) == (0, "uncertain")
    assert "would be settled: this payment is in transaction" in tried.stdout
    done = shop.operator("reconcile", payment.key)
    assert (done.exit_code, done.stderr) == (0, "")
    shown = shop.reads("show", payment.key)
    assert (shown["state"], [decision["who"] for decision in shown["decisions"]]) == ("settled", ["chain"])
    assert shop.send(payment).status_code == 200
    again = shop.operator("reconcile", payment.key)
    assert (again.exit_code, again.stdout) == (0, f"No attempt under the key {payment.key} is uncertain.\n")


@ONE_STORE
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_round_now_releases_what_never_landed_when_the_chain_has_said_it_twice(
    shop: Shop, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ranking_evaluate.keeper.ROUNDS_APART", 0.1)
    payment = shop.leave_uncertain(protocol, paid=False)
    early = shop.operator("reconcile", payment.key)
    assert (early.exit_code, "not decided" in early.stdout) == (1, True)
    shop.age(payment, 900)
    done = shop.operator("reconcile", payment.key)
    assert done.exit_code == 0, done.output
    assert "1 did not land" in done.stdout
    assert shop.reads("show", payment.key)["state"] == "released"
    assert shop.send(payment).status_code == 402


@ONE_STORE
def test_one_round_about_all_says_of_each_what_it_found(shop: Shop) -> None:
    payments = [shop.leave_uncertain(protocol, paid=True) for protocol in PROTOCOLS]
    for payment in payments:
        shop.shown_finally(payment.key)
    done = shop.operator("reconcile")
    for payment in payments:
        assert re.search(rf"^{payment.key}: settled: this payment is in transaction 0x", done.stdout, re.MULTILINE)
    assert "No attempts are uncertain." in shop.operator("reconcile").stdout or done.exit_code == 1
