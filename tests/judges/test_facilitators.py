"""The fault rows of real facilitators in docs/faults.md: the Python SDK's and the TypeScript SDK's, on a chain."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from web3 import Web3
from web3.types import RPCEndpoint, TxParams

from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.sandbox import Wallet
from ranking_evaluate.sandbox.anvil import Chain, start_anvil
from ranking_evaluate.sandbox.multicall3 import install_multicall3
from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port
from ranking_evaluate.sandbox.token import Token, deploy_token
from ranking_evaluate.sandbox.wallets import give_ether, new_wallet
from tests.faults.facilitator import FaultyFacilitator, authorization_of, forward_to
from tests.faults.real_matrix import REAL, RealFault
from tests.faults.rpc_proxy import Forward, RpcProxy
from tests.faults.told import SOLD, Told
from tests.judges.conftest import START_SECONDS, Server
from tests.judges.x402_buyer import PRICE, Buyer, Payload, decoded, new_key

HERE: Final = Path(__file__).parent
CHECKOUT: Final = HERE.parents[1]
PROGRAMS: Final = {
    "python": (sys.executable, "-m", "tests.judges.facilitator"),
    "typescript": (shutil.which("node") or "node", HERE / "facilitator.mjs"),
}
SETTLE_SECONDS: Final = 8.0
"""How long the service waits for a settlement."""

CONFIRMATION_SECONDS: Final = 4.0
"""How long a facilitator waits for its transaction's block: less, so that it is the first to give up."""

GETH: Final = "insufficient funds for gas * price + value: balance 1000000000000, tx cost 21000000000000000"


@dataclass
class Between:
    """Stands between service and facilitator: may do something before a call is passed on, and keeps what came back.

    Attributes:
        before: For a path, what happens to the call's body before it is passed on.
        got: The calls, as they arrived.
        said: The last reason for which the facilitator refused.
    """

    url: str = ""
    before: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    got: list[tuple[str, bytes]] = field(default_factory=list)
    said: str | None = None

    def __call__(self, path: str, body: bytes) -> tuple[int, bytes]:
        if body:
            self.got.append((path, body))
        change = self.before.get(path)
        try:
            status, answer = forward_to(self.url)(path, change(body) if change else body)
        except httpx.TransportError as error:
            # As the facilitator does to its caller when it dies.
            raise ConnectionResetError from error
        document = json.loads(answer)
        self.said = document.get("errorReason") or document.get("invalidReason") or self.said
        return status, answer


@dataclass
class Market:
    """A chain, a facilitator on it behind proxies on both sides, and the service that uses it."""

    processes: Processes
    chain: Chain
    token: Token
    payee: str
    operator: Wallet
    node: RpcProxy
    between: Between
    program: tuple[str | Path, ...]
    environment: dict[str, str]
    shop: Buyer
    service: Server

    def ask(self, method: str, *params: object) -> Any:
        return self.chain.web3.provider.make_request(RPCEndpoint(method), list(params))["result"]

    def start_facilitator(self) -> None:
        self.processes.start("facilitator", self.program, self.environment)
        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(trust_env=False) as client:
            while True:
                self.processes.check()
                try:
                    if client.get(f"{self.between.url}/supported").status_code == 200:
                        return
                except httpx.TransportError:
                    assert time.monotonic() < deadline, "the facilitator does not come up"
                    time.sleep(0.03)

    def kill_facilitator(self) -> None:
        self.processes.end("facilitator", kill=True)

    def funded(self, amount: int = 3 * PRICE) -> Wallet:
        wallet = new_wallet()
        if amount:
            self.token.mint(wallet.address, amount)
        return wallet

    def drain(self, wallet: Wallet, *, gas_price: int = 0) -> None:
        """Move the wallet's money away by its own transaction; a high gas price lets it overtake others."""
        self.ask("anvil_impersonateAccount", wallet.address)
        give_ether(self.chain, wallet.address, 1)
        balance = self.token.balance(wallet.address)
        move = self.token.contract.functions.transfer(self.operator.address, balance)
        sent: TxParams = {"from": Web3.to_checksum_address(wallet.address)}
        if gas_price:
            sent |= {"gasPrice": Web3.to_wei(gas_price, "gwei"), "gas": 200_000}
        move.transact(sent)

    def submit(self, body: bytes) -> None:
        """Submit the authorization of a call, as anybody may who sees it."""
        payload = json.loads(body)["paymentPayload"]["payload"]
        signature = bytes.fromhex(payload["signature"][2:])
        authorization = authorization_of(body)
        self.token.send(
            "transferWithAuthorization",
            Web3.to_checksum_address(authorization["from"]),
            Web3.to_checksum_address(authorization["to"]),
            *(int(authorization[name]) for name in ("value", "validAfter", "validBefore")),
            bytes.fromhex(authorization["nonce"][2:]),
            signature[64],
            signature[:32],
            signature[32:64],
        )

    @contextlib.contextmanager
    def no_blocks(self) -> Iterator[None]:
        """Mine no block until the end."""
        self.ask("evm_setAutomine", False)
        self.ask("evm_setIntervalMining", 0)
        try:
            yield
        finally:
            self.ask("evm_setIntervalMining", 1)
            self.ask("evm_setAutomine", True)
            self.ask("anvil_mine", "0x1")

    def mine(self) -> None:
        self.ask("anvil_mine", "0x1")

    def wait_for_transactions(self, count: int = 1) -> None:
        self._wait(lambda waiting: waiting >= count, "no transaction arrives")

    def wait_for_blocks(self) -> None:
        """Wait until every transaction is in a block: the node names its hash a little earlier."""
        self._wait(lambda waiting: waiting == 0, "a transaction stays out of the blocks")

    def _wait(self, is_reached: Callable[[int], bool], failure: str) -> None:
        deadline = time.monotonic() + 10
        while not is_reached(int(self.ask("txpool_status")["pending"], 16)):
            assert time.monotonic() < deadline, failure
            time.sleep(0.01)


@pytest.fixture(scope="module", params=list(PROGRAMS))
def market(request: pytest.FixtureRequest, body: bytes) -> Iterator[Market]:
    processes = Processes()
    try:
        chain = start_anvil(processes)
        install_multicall3(chain, processes)
        token = deploy_token(chain)
        payee, operator, port = new_wallet(), new_wallet(), free_port()
        give_ether(chain, operator.address, 100)
        between = Between(f"http://{LOOPBACK}:{port}")
        with RpcProxy(chain.rpc) as node, FaultyFacilitator(between) as front:
            told = {
                "RPC": node.url,
                "KEY": operator.key,
                "NETWORK": chain.network,
                "PORT": str(port),
                "CONFIRMATION_SECONDS": str(CONFIRMATION_SECONDS),
                "PYTHONPATH": str(CHECKOUT),
            }
            settings = {
                "DATABASE_URL": f"sqlite:///{processes.directory}/attempts.db",
                "REQUEST_RATE": "",
                "PAYMENT_RATE": "",
                "X402_PAY_TO": payee.address,
                "X402_NETWORK": chain.network,
                "X402_ASSET": token.address,
                "X402_ASSET_NAME": token.name,
                "X402_ASSET_VERSION": token.version,
                "X402_FACILITATOR_URL": front.url,
                "SETTLE_TIMEOUT": str(SETTLE_SECONDS),
            }
            environment = {f"RANKING_EVALUATE_{name}": value for name, value in settings.items()}
            service = Server(processes, "service", environment, free_port())
            with httpx.Client(base_url=service.origin, trust_env=False, timeout=30) as client:
                shop = Buyer(client, "", body)
                program = PROGRAMS[request.param]
                made = Market(
                    processes, chain, token, payee.address, operator, node, between, program, told, shop, service
                )
                made.start_facilitator()
                service.start()
                yield made
    finally:
        processes.stop()


@pytest.fixture
def sdk(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["market"])


@dataclass
class Purchase:
    """One purchase under a fault: who pays, with what, and how it is sent."""

    market: Market
    wallet: Wallet
    key: str
    payload: Payload

    def send(self) -> Told:
        return told(self.market.shop.post(self.key, self.payload))

    def send_while(self, then: Callable[[], None]) -> Told:
        """Send it, do something meanwhile, and return the answer."""
        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(self.send)
            then()
            return sent.result()


def told(answer: httpx.Response) -> Told:
    return answer.status_code, None if answer.is_success else answer.json()["code"]


# What each fault does: it sends the purchase and returns the answer.

Play = Callable[[Purchase], Told]


def nothing(purchase: Purchase) -> Told:
    return purchase.send()


def wrong_signature(purchase: Purchase) -> Told:
    stranger = purchase.market.shop.sign(purchase.key, wallet_key=new_wallet().key)
    purchase.payload["payload"]["signature"] = stranger["payload"]["signature"]
    return purchase.send()


def wrong_signature_at_settle(purchase: Purchase) -> Told:
    stranger = purchase.market.shop.sign(purchase.key, wallet_key=new_wallet().key)

    def altered(body: bytes) -> bytes:
        call = json.loads(body)
        call["paymentPayload"]["payload"]["signature"] = stranger["payload"]["signature"]
        return json.dumps(call).encode()

    purchase.market.between.before["/settle"] = altered
    return purchase.send()


def poor(purchase: Purchase) -> Told:
    purchase.market.drain(purchase.wallet)
    answer = purchase.send()
    purchase.market.token.mint(purchase.wallet.address, 3 * PRICE)
    return answer


def before(path: str, happen: Callable[[Purchase, bytes], None]) -> Play:
    """Return a fault that happens before the call to this path reaches the facilitator."""

    def play(purchase: Purchase) -> Told:
        def passed(body: bytes) -> bytes:
            happen(purchase, body)
            return body

        purchase.market.between.before[path] = passed
        return purchase.send()

    return play


def reverted(purchase: Purchase) -> Told:
    market = purchase.market

    def overtake() -> None:
        market.wait_for_transactions()
        market.drain(purchase.wallet, gas_price=500)
        market.wait_for_transactions(2)
        market.mine()

    with market.no_blocks():
        return purchase.send_while(overtake)


def pending(purchase: Purchase) -> Told:
    with purchase.market.no_blocks():
        return purchase.send()


def slow(purchase: Purchase) -> Told:
    def one_second_later() -> None:
        purchase.market.wait_for_transactions()
        time.sleep(1)
        purchase.market.mine()

    with purchase.market.no_blocks():
        return purchase.send_while(one_second_later)


def too_slow(purchase: Purchase) -> Told:
    answered, executed = threading.Event(), threading.Event()

    def held(forward: Forward) -> Any:
        answered.wait(30)
        said = forward()
        executed.set()
        return said

    purchase.market.node.send = held
    answer = purchase.send()
    answered.set()
    assert executed.wait(10)
    purchase.market.wait_for_blocks()
    return answer


def killed_before(purchase: Purchase) -> Told:
    market, killed = purchase.market, threading.Event()

    def never(forward: Forward) -> None:
        killed.wait(30)

    def kill() -> None:
        assert market.node.sent.wait(10)
        market.kill_facilitator()
        killed.set()

    market.node.send = never
    answer = purchase.send_while(kill)
    market.node.reset()
    market.start_facilitator()
    return answer


def killed_after(purchase: Purchase) -> Told:
    market = purchase.market

    def kill() -> None:
        market.wait_for_transactions()
        market.kill_facilitator()

    with market.no_blocks():
        answer = purchase.send_while(kill)
    market.start_facilitator()
    return answer


def answer_lost(purchase: Purchase) -> Told:
    def executed(forward: Forward) -> None:
        forward()
        purchase.market.wait_for_blocks()

    purchase.market.node.send = executed
    return purchase.send()


def gas_empty(purchase: Purchase) -> Told:
    give_ether(purchase.market.chain, purchase.market.operator.address, 0)
    answer = purchase.send()
    give_ether(purchase.market.chain, purchase.market.operator.address, 100)
    return answer


def gas_in_geth_s_words(purchase: Purchase) -> Told:
    purchase.market.node.send = lambda forward: {"error": {"code": -32000, "message": GETH}}
    return purchase.send()


PLAYS: Final[dict[RealFault, Play]] = {
    RealFault.NONE: nothing,
    RealFault.WRONG_SIGNATURE: wrong_signature,
    RealFault.WRONG_SIGNATURE_AT_SETTLE: wrong_signature_at_settle,
    RealFault.POOR: poor,
    RealFault.DRAINED: before("/settle", lambda purchase, body: purchase.market.drain(purchase.wallet)),
    RealFault.USED_BEFORE: before("/verify", lambda purchase, body: purchase.market.submit(body)),
    RealFault.USED_BETWEEN: before("/settle", lambda purchase, body: purchase.market.submit(body)),
    RealFault.REVERTED: reverted,
    RealFault.PENDING: pending,
    RealFault.SLOW: slow,
    RealFault.TOO_SLOW: too_slow,
    RealFault.KILLED_BEFORE: killed_before,
    RealFault.KILLED_AFTER: killed_after,
    RealFault.ANSWER_LOST: answer_lost,
    RealFault.GAS_EMPTY: gas_empty,
    RealFault.GAS_IN_GETH_S_WORDS: gas_in_geth_s_words,
}


def test_every_row_is_played() -> None:
    assert set(PLAYS) == set(REAL) == set(RealFault)


@pytest.fixture(autouse=True)
def calm(request: pytest.FixtureRequest) -> None:
    """Nothing goes wrong at the start of a test."""
    if "market" in request.fixturenames:
        market: Market = request.getfixturevalue("market")
        market.node.reset()
        market.between.before.clear()
        market.between.got.clear()
        market.between.said = None


@pytest.mark.parametrize("fault", RealFault)
def test_a_fault_of_a_real_facilitator_comes_to_its_row(market: Market, sdk: str, fault: RealFault) -> None:
    row = REAL[fault]
    wallet, key = market.funded(), new_key()
    purchase = Purchase(market, wallet, key, market.shop.sign(key, wallet_key=wallet.key))
    fresh = market.shop.sign(key, wallet_key=wallet.key)
    had = market.token.balance(market.payee)
    assert PLAYS[fault](purchase) == row.first
    assert market.between.said == row.codes[sdk]
    found = market.shop.attempt(key)
    assert (None if found is None else found["state"]) == row.state
    assert market.token.balance(market.payee) - had == row.moves * PRICE
    # Nothing goes wrong any more.
    market.node.reset()
    market.between.before.clear()
    settled = [path for path, _ in market.between.got].count("/settle")
    answers = {
        "none": told(market.shop.post(key)),
        "identical": told(market.shop.post(key, purchase.payload)),
        "fresh": told(market.shop.post(key, fresh)),
    }
    assert answers == {"none": row.none, "identical": row.identical, "fresh": row.fresh}
    bought = int(row.first != SOLD and SOLD in answers.values())
    assert market.token.balance(market.payee) - had == (row.moves + bought) * PRICE
    assert [path for path, _ in market.between.got].count("/settle") == settled + bought


def test_twelve_buyers_at_once_are_all_sold(market: Market) -> None:
    """Without an order in its transactions a facilitator's account nonces collide, and payments become uncertain."""
    keys = [new_key() for _ in range(12)]
    payloads = [market.shop.sign(key, wallet_key=market.funded().key) for key in keys]
    had = market.token.balance(market.payee)
    with ThreadPoolExecutor(len(keys)) as threads:
        answers = list(threads.map(lambda key, payload: told(market.shop.post(key, payload)), keys, payloads))
    assert answers == [SOLD] * len(keys)
    assert market.token.balance(market.payee) - had == len(keys) * PRICE


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: str(operation.id))
def test_a_facilitator_gets_what_the_challenge_of_this_purchase_says(
    market: Market, operation: Operation[object]
) -> None:
    """Byte for byte, in every verification and settlement, whatever the payer wrote beside the authorization."""
    body = json.dumps(operation.example_input).encode()
    shop = replace(market.shop, path=f"/v1/x402/{operation.id}", body=body)
    key, wallet = new_key(), market.funded(0)
    challenge = base64.b64decode(shop.post(key).headers["payment-required"])
    payload = shop.sign(key, wallet_key=wallet.key)
    payload["resource"] = {"url": "https://evil.example/x", "description": "CHEAP"}
    payload["extensions"]["bazaar"]["info"]["input"]["body"] = {"insult": True}
    payload["extensions"]["other"] = {"info": {}}
    refused = shop.post(key, payload)
    assert (refused.status_code, refused.json()["code"]) == (402, "PAYMENT_REJECTED")
    market.token.mint(wallet.address, PRICE)
    # The challenge of a refusal declares less, and is what a client would sign next.
    echoed = {name: decoded(refused.headers["payment-required"])[name] for name in ("resource", "extensions")}
    assert shop.post(key, shop.sign(key, wallet_key=wallet.key) | echoed).status_code == 200
    assert [path for path, _ in market.between.got] == ["/verify", "/verify", "/settle"]
    asked = json.loads(challenge)
    assert set(asked["extensions"]) == {"payment-identifier", "bazaar"}
    assert asked["resource"]["url"].endswith(shop.path)
    assert asked["extensions"]["payment-identifier"]["info"]["id"] == key
    for _, call in market.between.got:
        sent = json.loads(call)["paymentPayload"]
        assert (sent["resource"], sent["extensions"]) == (asked["resource"], asked["extensions"])
        for name in ("resource", "extensions"):
            text = json.dumps(asked[name], separators=(",", ":"), ensure_ascii=False).encode()
            assert text in challenge
            assert text in call
