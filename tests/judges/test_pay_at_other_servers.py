"""`pay` at servers that others wrote, on real chains: at most one debit under a key, and no word that is not known."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from ranking_evaluate.cli import app, buying, exchange, pay, saved_credential
from ranking_evaluate.cli.buying import run_pay
from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from tests.faults import tempo_proxy
from tests.faults.facilitator import Fault, FaultyFacilitator, forward_to
from tests.faults.tempo_proxy import FaultyTempoProxy
from tests.judges.conftest import PROGRAM
from tests.judges.losing_proxy import LosingProxy, Way
from tests.judges.other_servers import ANSWER, BASE, PRICE, other_server

X402: Final = ("fastapi", "express", "hono")
MPP: Final = ("mppx", "pympp")
PAID, NOT_CHARGED, UNCLEAR = 0, 1, 3
IMPATIENT_SECONDS: Final = 4.0
PATIENCE_SECONDS: Final = 3.0


@pytest.fixture(scope="module")
def mpp(sandbox: Sandbox) -> FundedProtocol:
    return next(funded for funded in sandbox.protocols if funded.protocol == "mpp")


@pytest.fixture(scope="module")
def faulty(funded: FundedProtocol) -> Iterator[FaultyFacilitator]:
    """The facilitator of the x402 servers; it says that it serves Base too, where nobody here pays."""
    real = forward_to(str(funded.info["facilitator"]))

    def call(path: str, body: bytes) -> tuple[int, bytes]:
        status, said = real(path, body)
        if path == "/supported":
            document = json.loads(said)
            document["kinds"] += [{**kind, "network": BASE} for kind in document["kinds"]]
            said = json.dumps(document).encode()
        return status, said

    with FaultyFacilitator(call) as running:
        yield running


@pytest.fixture(scope="module")
def node(mpp: FundedProtocol) -> Iterator[FaultyTempoProxy]:
    """The node that the MPP servers use; the buyer asks another one."""
    with FaultyTempoProxy(mpp.rpc) as running:
        yield running


@pytest.fixture(scope="module")
def address_of(
    sandbox: Sandbox, funded: FundedProtocol, mpp: FundedProtocol, faulty: FaultyFacilitator, node: FaultyTempoProxy
) -> Iterator[Callable[[str], str]]:
    """Return the address of a server, which is started when it is first asked for."""
    found: dict[str, str] = {}
    with ExitStack() as running:

        def start(server: str) -> str:
            protocol = mpp if server in MPP else funded
            terms = {"PAY_TO": protocol.payee, "ASSET": protocol.asset, "NETWORK": protocol.network}
            providers = {"FACILITATOR": faulty.url, "RPC": node.url}
            return running.enter_context(other_server(server, sandbox.processes, {**terms, **providers}))

        def address_of(server: str) -> str:
            if server not in found:
                found[server] = start(server)
            return found[server]

        yield address_of


@pytest.fixture(scope="module")
def proxy() -> Iterator[LosingProxy]:
    with LosingProxy() as running:
        yield running


class Buyer:
    """Runs `ranking-evaluate pay` with one key, and knows what the payee got since it came."""

    def __init__(self, protocol: FundedProtocol, folder: Path) -> None:
        self.protocol = protocol
        self.folder = folder
        self.key = f"stock_{secrets.token_hex(12)}"
        self._before = protocol.balance(protocol.payee)
        (folder / "input.json").write_text("{}")

    @property
    def debited(self) -> int:
        return self.protocol.balance(self.protocol.payee) - self._before

    @property
    def environment(self) -> dict[str, str]:
        return {
            "RANKING_EVALUATE_WALLET_KEY": self.protocol.payer.key,
            "RANKING_EVALUATE_MPP_RPC_URL": self.protocol.rpc,
        }

    def command(self, url: str) -> list[str]:
        what = ["pay", url, "--protocol", self.protocol.protocol, "--input", str(self.folder / "input.json")]
        return [*what, "--state-dir", str(self.folder / "state"), "--key", self.key]

    def pay(self, url: str, *options: str) -> Result:
        result = CliRunner().invoke(app, [*self.command(url), *options], env=self.environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.stderr
        return result

    def pay_at_once(self, url: str, runs: int) -> list[tuple[int, str]]:
        """Return exit code and words of each of several runs that start at the same time."""
        command: list[str | Path] = [PROGRAM, *self.command(url)]
        environment = {"PATH": os.defpath, **self.environment}
        started = [
            subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for _ in range(runs)
        ]
        said = [run.communicate(timeout=60)[1] for run in started]
        return [(run.returncode, words) for run, words in zip(started, said, strict=True)]


@pytest.fixture
def buyer(
    request: pytest.FixtureRequest,
    funded: FundedProtocol,
    mpp: FundedProtocol,
    faulty: FaultyFacilitator,
    node: FaultyTempoProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Buyer]:
    """A buyer at the server of this test, who does not wait long before asking again."""
    faulty.reset()
    node.reset()
    monkeypatch.setattr(buying, "PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(exchange, "PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(pay, "run_pay", partial(run_pay, patience=PATIENCE_SECONDS))
    yield Buyer(mpp if request.node.callspec.params["server"] in MPP else funded, tmp_path)
    faulty.reset()
    node.reset()


def expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every credential count as one that no chain takes any more: the buyer would be free to sign a new one."""
    monkeypatch.setattr(saved_credential, "EXPIRY_MARGIN_SECONDS", -1_000_000)


def check_unclear(result: Result) -> None:
    assert (result.exit_code, result.stdout) == (UNCLEAR, ""), result.stderr
    assert "Whether it was charged is not known" in result.stderr
    assert "look at the wallet's transfers before you pay for this again" in result.stderr
    assert "Nothing was charged" not in result.stderr


@pytest.mark.parametrize("server", [*X402, *MPP])
def test_a_key_that_was_answered_never_pays_again(
    server: str, buyer: Buyer, address_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = address_of(server) + "/tied"
    first = buyer.pay(url)
    assert (first.exit_code, json.loads(first.stdout)) == (PAID, ANSWER), first.stderr
    assert "Paid. Receipt: {" in first.stderr
    assert buyer.debited == PRICE
    for options in ((), ("--sign-again",)):
        for _ in range(2):
            again = buyer.pay(url, *options)
            assert (again.exit_code, again.stdout) == (PAID, first.stdout), again.stderr
            assert "This key was paid and answered before" in again.stderr
        expire(monkeypatch)
    assert buyer.debited == PRICE


@pytest.mark.parametrize("way", [Way.LOST, Way.LATE])
@pytest.mark.parametrize("server", [*X402, *MPP])
def test_an_answer_that_does_not_arrive_leaves_it_unclear_and_is_paid_once(
    server: str,
    way: Way,
    buyer: Buyer,
    address_of: Callable[[str], str],
    proxy: LosingProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = proxy.to(address_of(server), way) + "/tied"
    if way is Way.LATE:
        monkeypatch.setattr(exchange, "ANSWER_SECONDS", IMPATIENT_SECONDS)
    check_unclear(buyer.pay(url))
    # The answer that the buyer never saw was the one that was paid for.
    assert proxy.answers[0] == 200
    check_unclear(buyer.pay(url))
    expire(monkeypatch)
    for options in ((), ("--sign-again",)):
        gone = buyer.pay(url, *options)
        check_unclear(gone)
        assert "It can no longer be used" in gone.stderr
    assert buyer.debited == PRICE


@pytest.mark.parametrize("server", ["fastapi", "mppx"])
def test_runs_at_the_same_time_under_one_key_pay_once(
    server: str, buyer: Buyer, address_of: Callable[[str], str]
) -> None:
    ended = buyer.pay_at_once(address_of(server) + "/tied", 4)
    assert buyer.debited == PRICE
    codes = [code for code, _ in ended]
    assert codes.count(PAID) >= 1, ended
    # The others were too late to sign, or sent what the server had taken already.
    assert set(codes) <= {PAID, UNCLEAR}, ended
    assert not any("Nothing was" in words for code, words in ended if code == UNCLEAR)


@pytest.mark.parametrize("server", [*X402, *MPP])
def test_a_payment_that_did_not_leave_was_not_charged_and_is_sent_by_the_next_run(
    server: str, buyer: Buyer, address_of: Callable[[str], str], proxy: LosingProxy
) -> None:
    url = proxy.to(address_of(server), Way.GONE) + "/tied"
    gone = buyer.pay(url)
    assert (gone.exit_code, gone.stdout) == (NOT_CHARGED, ""), gone.stderr
    assert "The payment did not leave this machine, so nothing was charged." in gone.stderr
    assert buyer.debited == 0
    proxy.listen()
    paid = buyer.pay(url)
    assert (paid.exit_code, json.loads(paid.stdout)) == (PAID, ANSWER), paid.stderr
    assert "nothing new is signed" in paid.stderr
    assert (proxy.answers, buyer.debited) == ([200], PRICE)


@pytest.mark.parametrize("server", X402)
def test_a_server_that_refused_for_a_while_is_paid_with_the_same_credential(
    server: str, buyer: Buyer, address_of: Callable[[str], str], faulty: FaultyFacilitator
) -> None:
    """Nothing moved, but the server has no record that says so."""
    url = address_of(server) + "/tied"
    faulty.set(Fault.REFUSED)
    check_unclear(buyer.pay(url))
    assert buyer.debited == 0
    faulty.set(Fault.NONE)
    paid = buyer.pay(url)
    assert (paid.exit_code, json.loads(paid.stdout)) == (PAID, ANSWER), paid.stderr
    assert (len(faulty.attempts), buyer.debited) == (1, PRICE)


HIDING: Final = (
    Fault.ERROR_AFTER,
    Fault.RESET_AFTER,
    Fault.FAILURE_WITH_TRANSACTION,
    Fault.PENDING,
    Fault.PAYMENT_REQUIRED_AFTER,
)


@pytest.mark.parametrize("fault", HIDING)
@pytest.mark.parametrize("server", X402)
def test_a_refusal_after_the_payment_is_not_taken_for_a_refusal(
    server: str,
    fault: Fault,
    buyer: Buyer,
    address_of: Callable[[str], str],
    faulty: FaultyFacilitator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faulty.set(fault)
    check_unclear(buyer.pay(address_of(server) + "/tied"))
    faulty.set(Fault.NONE)
    assert buyer.debited == PRICE
    expire(monkeypatch)
    for options in ((), ("--sign-again",)):
        check_unclear(buyer.pay(address_of(server) + "/tied", *options))
    assert buyer.debited == PRICE


@pytest.mark.parametrize(
    ("server", "fault", "codes"),
    [
        # It keeps the hash of what it tried to send, and takes it for spent.
        ("mppx", tempo_proxy.Fault.ERROR_AFTER_RECEIPT_HIDDEN, (UNCLEAR, UNCLEAR)),
        ("mppx", tempo_proxy.Fault.REPLY_LOST, (UNCLEAR, UNCLEAR)),
        # It looks for the transaction in the chain, as soon as it can be found there.
        ("pympp", tempo_proxy.Fault.ERROR_AFTER_RECEIPT_HIDDEN, (UNCLEAR, PAID)),
        ("pympp", tempo_proxy.Fault.REPLY_LOST, (PAID, PAID)),
    ],
)
def test_a_node_that_hides_the_payment_from_the_server_does_not_make_it_pay_twice(
    server: str,
    fault: tempo_proxy.Fault,
    codes: tuple[int, int],
    buyer: Buyer,
    address_of: Callable[[str], str],
    node: FaultyTempoProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node.fault = fault
    first = buyer.pay(address_of(server) + "/tied")
    node.fault = tempo_proxy.Fault.NONE
    assert buyer.debited == PRICE
    expire(monkeypatch)
    second = buyer.pay(address_of(server) + "/tied", "--sign-again")
    assert (first.exit_code, second.exit_code) == codes
    for result in (first, second):
        if result.exit_code == UNCLEAR:
            check_unclear(result)
        else:
            assert json.loads(result.stdout) == ANSWER
    assert buyer.debited == PRICE


@pytest.mark.parametrize(
    ("server", "path", "options", "words"),
    [
        *((server, "/untied", (), "not tied to") for server in (*X402, *MPP)),
        *((server, "/dear", (), "The price is 0.5, more than the 0.01 allowed") for server in (*X402, *MPP)),
        *((server, "/tied", ("--network", "eip155:8453"), "another network than") for server in (*X402, *MPP)),
        *((server, "/tied", ("--asset", "0x" + "ee" * 20), "another asset than") for server in (*X402, *MPP)),
        *((server, "/foreign", (), "only dollars that the SDK knows") for server in MPP),
        *((server, "/foreign", (), f"on {BASE}: the SDK knows no dollar of this address there") for server in X402),
        *((server, "/tied", ("--protocol", "mpp"), "one over x402: --protocol x402") for server in X402),
        *((server, "/tied", ("--protocol", "x402"), "one over MPP: --protocol mpp") for server in MPP),
    ],
)
def test_what_may_not_be_paid_is_refused_before_anything_is_signed(
    server: str, path: str, options: tuple[str, ...], words: str, buyer: Buyer, address_of: Callable[[str], str]
) -> None:
    result = buyer.pay(address_of(server) + path, *options)
    assert (result.exit_code, words in result.stderr, "Nothing was paid." in result.stderr) == (
        NOT_CHARGED,
        True,
        True,
    ), result.stderr
    assert not (buyer.folder / "state").exists()
    assert buyer.debited == 0
