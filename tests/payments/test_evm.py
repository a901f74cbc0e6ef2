"""What a real chain says of an authorization: landed, never landed, or unknown; only the first two are evidence."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
import structlog
from eth_account import Account
from web3.types import RPCEndpoint
from x402.schemas import PaymentPayload

from ranking_evaluate.payments import config as payment_config
from ranking_evaluate.payments.config import X402Config, X402Network
from ranking_evaluate.payments.evm import AuthorizationLookup
from ranking_evaluate.payments.protocol import (
    Credential,
    Evidence,
    Landed,
    NeverLanded,
    Offer,
    PaymentFacts,
    Rejected,
    Spent,
    Unknown,
    Unreachable,
    Verification,
)
from ranking_evaluate.payments.reasons import in_words
from ranking_evaluate.payments.x402.credential import Content
from ranking_evaluate.payments.x402.protocol import X402Protocol
from ranking_evaluate.sandbox import Wallet, multicall3
from ranking_evaluate.sandbox.anvil import Chain, start_anvil
from ranking_evaluate.sandbox.processes import Processes
from ranking_evaluate.sandbox.token import Token, deploy_token
from ranking_evaluate.sandbox.wallets import new_wallet
from tests.faults.facilitator import FaultyFacilitator

pytestmark = pytest.mark.anyio

PRICE = 10_000
TRANSFER = {
    "from": "address",
    "to": "address",
    "value": "uint256",
    "validAfter": "uint256",
    "validBefore": "uint256",
    "nonce": "bytes32",
}
CANCEL = {"authorizer": "address", "nonce": "bytes32"}
AGGREGATE = [
    {
        "type": "function",
        "name": "aggregate",
        "stateMutability": "payable",
        "inputs": [
            {
                "name": "calls",
                "type": "tuple[]",
                "components": [{"name": "target", "type": "address"}, {"name": "callData", "type": "bytes"}],
            }
        ],
        "outputs": [{"name": "blockNumber", "type": "uint256"}, {"name": "returnData", "type": "bytes[]"}],
    }
]


@dataclass
class Bank:
    """A chain of this module's own, whose time only goes forward by hand, and somebody who pays on it."""

    chain: Chain
    token: Token
    payer: Wallet
    payee: str

    @property
    def now(self) -> int:
        return int(self.chain.web3.eth.get_block("latest")["timestamp"])

    def ask(self, method: str, *params: Any) -> Any:
        return self.chain.web3.provider.make_request(RPCEndpoint(method), list(params))

    def pass_time(self, seconds: int) -> None:
        """Let time pass, and so many blocks that a final one is past it (anvil's is 64 behind)."""
        self.ask("evm_increaseTime", seconds)
        self.ask("anvil_mine", hex(70))

    def facts(self, *, valid_for: int = 120) -> PaymentFacts:
        return PaymentFacts(
            network=self.chain.network,
            asset=self.token.address.lower(),
            amount=PRICE,
            pay_to=self.payee.lower(),
            payer=self.payer.address.lower(),
            payment_id="0x" + secrets.token_hex(32),
            valid_before=self.now + valid_for,
        )

    def pay(self, facts: PaymentFacts, *, amount: int = PRICE, to: str | None = None) -> str:
        """Use the authorization and return the transaction."""
        receipt = self.token.send("transferWithAuthorization", *self.authorization(facts, amount=amount, to=to))
        return str(receipt["transactionHash"].to_0x_hex())

    def pay_at_once(self, *authorizations: tuple[Any, ...]) -> str:
        """Use several authorizations in one transaction and return it."""
        calls = [
            (self.token.address, self.token.contract.encode_abi("transferWithAuthorization", args=list(authorization)))
            for authorization in authorizations
        ]
        batch = self.chain.web3.eth.contract(address=multicall3.ADDRESS, abi=AGGREGATE).functions.aggregate(calls)
        sent = batch.transact({"from": self.chain.web3.eth.accounts[0]})
        assert self.chain.web3.eth.wait_for_transaction_receipt(sent, 20, 0.01)["status"] == 1
        return str(sent.to_0x_hex())

    def authorization(self, facts: PaymentFacts, *, amount: int = PRICE, to: str | None = None) -> tuple[Any, ...]:
        message = {
            "from": self.payer.address,
            "to": to or self.payee,
            "value": amount,
            "validAfter": 0,
            "validBefore": facts.valid_before,
            "nonce": bytes.fromhex(facts.payment_id[2:]),
        }
        return (*message.values(), *self.sign("TransferWithAuthorization", TRANSFER, message))

    def cancel(self, facts: PaymentFacts) -> None:
        message = {"authorizer": self.payer.address, "nonce": bytes.fromhex(facts.payment_id[2:])}
        self.token.send("cancelAuthorization", *message.values(), *self.sign("CancelAuthorization", CANCEL, message))

    def sign(self, name: str, fields: dict[str, str], message: dict[str, Any]) -> tuple[int, bytes, bytes]:
        domain = {
            "name": self.token.name,
            "version": self.token.version,
            "chainId": self.chain.chain_id,
            "verifyingContract": self.token.address,
        }
        types = {name: [{"name": field, "type": kind} for field, kind in fields.items()]}
        signed = Account.from_key(self.payer.key).sign_typed_data(domain, types, message)
        return signed.v, signed.r.to_bytes(32, "big"), signed.s.to_bytes(32, "big")

    async def look(self, facts: PaymentFacts) -> Evidence:
        return await AuthorizationLookup(self.chain.rpc).look(facts)


class Node(FaultyFacilitator):
    """A node that answers each call with what `said` makes of it; a facilitator answers nobody at this path."""

    def __init__(self, said: Callable[[bytes], object]) -> None:
        self._said = said
        super().__init__(lambda path, body: (500, b""))

    def answer(self, handler: Any, path: str, body: bytes) -> None:
        """Answer one question."""
        handler.send(200, json.dumps(self._said(body)).encode())


def doctored(bank: Bank, change: Callable[[str, Any], Any]) -> Node:
    """Return the bank's own node with each result changed, by the method that was asked for."""

    def said(body: bytes) -> object:
        answer = httpx.post(bank.chain.rpc, content=body, headers={"content-type": "application/json"}).json()
        return {**answer, "result": change(json.loads(body)["method"], answer["result"])}

    return Node(said)


@pytest.fixture(scope="module")
def bank() -> Iterator[Bank]:
    processes = Processes()
    try:
        chain = start_anvil(processes)
        multicall3.install_multicall3(chain, processes)
        token = deploy_token(chain)
        payer = new_wallet()
        token.mint(payer.address, 1000 * PRICE)
        yield Bank(chain, token, payer, new_wallet().address)
    finally:
        processes.stop()


async def test_a_payment_on_the_chain_has_landed_in_its_transaction(bank: Bank) -> None:
    facts = bank.facts()
    transaction = bank.pay(facts)
    # A block that is not final may be taken back.
    assert isinstance(await bank.look(facts), Unknown)
    bank.pass_time(300)
    assert await bank.look(facts) == Landed(transaction)


async def test_among_many_payments_each_finds_its_own(bank: Bank) -> None:
    paid = [bank.facts() for _ in range(5)]
    transactions = [bank.pay(facts) for facts in paid]
    bank.pass_time(1000)
    for facts, transaction in zip(paid, transactions, strict=True):
        assert await bank.look(facts) == Landed(transaction)


async def test_an_unused_authorization_may_still_land_until_a_final_block_is_past_it(bank: Bank) -> None:
    facts = bank.facts()
    assert isinstance(await bank.look(facts), Unknown)
    # The latest block is past it, the final one is not: a reorganisation could still let it land.
    bank.ask("evm_increaseTime", 130)
    bank.ask("evm_mine")
    assert facts.valid_before is not None
    assert bank.now > facts.valid_before
    assert isinstance(await bank.look(facts), Unknown)
    bank.pass_time(1)
    assert isinstance(await bank.look(facts), NeverLanded)


async def test_the_last_second_counts_as_alive(bank: Bank) -> None:
    bank.pass_time(1)
    final = int(bank.chain.web3.eth.get_block("finalized")["timestamp"])
    assert isinstance(await bank.look(replace(bank.facts(), valid_before=final)), Unknown)
    assert isinstance(await bank.look(replace(bank.facts(), valid_before=final - 1)), NeverLanded)


async def test_a_cancelled_authorization_is_not_a_payment(bank: Bank) -> None:
    facts = bank.facts()
    bank.cancel(facts)
    assert isinstance(await bank.look(facts), Unknown)
    bank.pass_time(1)
    assert await bank.look(facts) == NeverLanded("the authorization was cancelled", for_good=True)


async def test_a_payment_of_another_amount_or_to_somebody_else_is_not_ours(bank: Bank) -> None:
    less, elsewhere = bank.facts(), bank.facts()
    bank.pay(less, amount=PRICE - 1)
    bank.pay(elsewhere, to=new_wallet().address)
    for facts in (less, elsewhere):
        assert isinstance(await bank.look(facts), Unknown)


async def test_payments_that_one_transaction_makes_together_have_all_landed(bank: Bank) -> None:
    """Who settles for many puts their authorizations into one transaction."""
    first, second = bank.facts(), bank.facts()
    transaction = bank.pay_at_once(bank.authorization(first), bank.authorization(second))
    bank.pass_time(1)
    for facts in (first, second):
        assert await bank.look(facts) == Landed(transaction)


@pytest.mark.parametrize("ours_is_first", [True, False])
async def test_a_payment_beside_one_to_somebody_else_is_never_called_absent(bank: Bank, ours_is_first: bool) -> None:
    """Its logs do not say which of the two authorizations paid us, so a person decides, and nobody is paid again."""
    ours, other = bank.facts(), bank.facts()
    both = [bank.authorization(ours), bank.authorization(other, to=new_wallet().address)]
    transaction = bank.pay_at_once(*both if ours_is_first else reversed(both))
    bank.pass_time(1000)
    # Neither the keeper, which looks for the use, nor an operator, who names the transaction, hears more than that.
    for facts in (ours, other, replace(ours, transaction=transaction), replace(other, transaction=transaction)):
        assert isinstance(await bank.look(facts), Unknown)


async def test_authorizations_that_all_paid_somebody_else_never_landed(bank: Bank) -> None:
    first, second = bank.facts(), bank.facts()
    elsewhere = new_wallet().address
    bank.pay_at_once(*(bank.authorization(facts, to=elsewhere) for facts in (first, second)))
    bank.pass_time(1)
    for facts in (first, second):
        found = await bank.look(facts)
        assert isinstance(found, NeverLanded)
        assert found.for_good


async def test_a_node_of_another_chain_does_not_say_what_a_payer_holds(bank: Bank) -> None:
    elsewhere = replace(bank.facts(), network="eip155:8453")
    assert await AuthorizationLookup(bank.chain.rpc).holds(elsewhere) is None
    assert await AuthorizationLookup(bank.chain.rpc).is_used(elsewhere) is None


async def test_somebody_elses_payment_is_not_this_one(bank: Bank) -> None:
    paid = bank.facts()
    bank.pay(paid)
    stranger = replace(paid, payer=new_wallet().address.lower())
    assert isinstance(await bank.look(stranger), Unknown)


async def test_another_chain_says_nothing(bank: Bank) -> None:
    facts = replace(bank.facts(valid_for=-1000), network="eip155:8453")
    found = await bank.look(facts)
    assert isinstance(found, Unknown)
    assert bank.chain.network in found.reason


async def test_another_token_says_nothing(bank: Bank) -> None:
    """Where there is no token its state cannot be read, which is not the state "unused"."""
    facts = replace(bank.facts(), asset="0x" + "11" * 20, valid_before=1)
    assert isinstance(await bank.look(facts), Unknown)


async def test_a_record_without_an_authorization_is_unknown(bank: Bank) -> None:
    for facts in (replace(bank.facts(), payer=None), replace(bank.facts(), valid_before=None)):
        assert isinstance(await bank.look(facts), Unknown)


async def test_a_node_that_is_down_says_nothing(bank: Bank) -> None:
    assert isinstance(await AuthorizationLookup("http://127.0.0.1:1").look(bank.facts(valid_for=-1000)), Unknown)


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"code": -32000, "message": "no"}},
        {"jsonrpc": "2.0"},
        [],
        {"result": None},
        {"result": {}},
        {"result": "later"},
        {"result": 7},
    ],
)
async def test_a_node_that_answers_nonsense_says_nothing(bank: Bank, said: object) -> None:
    with Node(lambda body: said) as node:
        assert isinstance(await AuthorizationLookup(node.url).look(bank.facts(valid_for=-1000)), Unknown)


async def test_a_block_whose_time_is_no_quantity_is_not_past_an_expiry(bank: Bank) -> None:
    """Digits of a decimal number, read as hexadecimal ones, are a time centuries away."""
    bank.pass_time(1)

    def in_decimal(method: str, said: Any) -> Any:
        return {**said, "timestamp": int(said["timestamp"], 16)} if method == "eth_getBlockByNumber" else said

    alive = bank.facts(valid_for=1000)
    with doctored(bank, in_decimal) as node:
        assert isinstance(await AuthorizationLookup(node.url).look(alive), Unknown)


RECEIPTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a status of another form": lambda receipt: {**receipt, "status": "0x01"},
    "no status": lambda receipt: {**receipt, "status": None},
    "no logs": lambda receipt: {**receipt, "logs": []},
    "logs of another transaction": lambda receipt: {**receipt, "logs": receipt["logs"][1:]},
    "logs that are no list": lambda receipt: {**receipt, "logs": 7},
}


@pytest.mark.parametrize("name", RECEIPTS)
async def test_a_receipt_that_contradicts_the_log_of_the_use_says_nothing(bank: Bank, name: str) -> None:
    """The node says that this transaction used the authorization, and then shows a receipt without that."""
    paid = bank.facts()
    bank.pay(paid)
    bank.pass_time(300)

    def change(method: str, said: Any) -> Any:
        return RECEIPTS[name](said) if method == "eth_getTransactionReceipt" else said

    with doctored(bank, change) as node:
        assert isinstance(await AuthorizationLookup(node.url).look(paid), Unknown)


async def test_topics_are_the_same_in_capital_letters(bank: Bank) -> None:
    paid = bank.facts()
    transaction = bank.pay(paid)
    bank.pass_time(300)

    def in_capitals(method: str, said: Any) -> Any:
        if method != "eth_getTransactionReceipt":
            return said
        upper = [{**log, "topics": [f"0x{topic[2:].upper()}" for topic in log["topics"]]} for log in said["logs"]]
        return {**said, "logs": upper}

    with doctored(bank, in_capitals) as node:
        assert await AuthorizationLookup(node.url).look(paid) == Landed(transaction)


# A verification that a payment could explain.

REASONS = ["invalid_exact_evm_transaction_simulation_failed", "invalid_exact_evm_insufficient_balance"]


async def verified(bank: Bank, facts: PaymentFacts, reason: str, rpc_url: str | None) -> Verification:
    """Return what becomes of a credential that the facilitator finds invalid for this reason."""
    supported = {"kinds": [{"x402Version": 2, "scheme": "exact", "network": bank.chain.network}]}
    said = {"/supported": supported, "/verify": {"isValid": False, "invalidReason": reason}}
    with FaultyFacilitator(lambda path, body: (200, json.dumps(said[path]).encode())) as facilitator:
        token = payment_config.Token(bank.token.address, bank.token.name, bank.token.version)
        config = X402Config(
            pay_to=bank.payee,
            networks=(X402Network(bank.chain.network, token, rpc_url),),
            facilitator_url=facilitator.url,
        )
        protocol = X402Protocol(config)
        await protocol.start()
        payload = PaymentPayload.model_validate(
            {
                "payload": {"authorization": {"from": facts.payer, "nonce": facts.payment_id}, "signature": "0x"},
                "accepted": protocol.announce(PRICE).accepts[0],
            }
        )
        content = Content(payload, payload.payload["authorization"], "0x")
        credential = Credential(digest="", proofs=(), facts=facts, content=content)
        offer = Offer(
            operation="ranking-evaluate",
            description="Scores rankings.",
            release="0.29.0",
            url="https://rank.example/v1/x402/ranking-evaluate",
            key="purchase-of-monday-0001",
            amount=PRICE,
            body=b"{}",
        )
        try:
            return await protocol.verify(credential, offer)
        finally:
            await protocol.close()


@pytest.mark.parametrize("reason", REASONS)
async def test_a_simulation_that_fails_because_the_payment_was_made_is_uncertain(bank: Bank, reason: str) -> None:
    """A 402 would make its client sign, and pay, again."""
    paid, cancelled = bank.facts(), bank.facts()
    bank.pay(paid)
    bank.cancel(cancelled)
    for facts in (paid, cancelled):
        said = await verified(bank, facts, reason, bank.chain.rpc)
        assert said == Spent("the chain shows that the authorization was used already", reason)


@pytest.mark.parametrize("reason", REASONS)
async def test_a_simulation_that_fails_for_another_cause_is_refused(bank: Bank, reason: str) -> None:
    assert await verified(bank, bank.facts(), reason, bank.chain.rpc) == Rejected(in_words(reason), reason)


async def test_without_a_node_a_failed_simulation_is_refused(bank: Bank) -> None:
    paid = bank.facts()
    bank.pay(paid)
    assert await verified(bank, paid, REASONS[0], None) == Rejected("the transfer would fail on the chain", REASONS[0])


async def test_a_node_that_does_not_tell_refuses_nothing(bank: Bank) -> None:
    facts = bank.facts()
    for reason, rpc_url, of in (
        (REASONS[0], "http://127.0.0.1:1", facts),
        (REASONS[0], bank.chain.rpc, replace(facts, network="eip155:1")),
        (REASONS[1], bank.chain.rpc, replace(facts, asset="0x" + "12" * 20)),
    ):
        assert isinstance(await verified(bank, of, reason, rpc_url), Unreachable)


async def test_reasons_that_no_payment_explains_ask_nobody(bank: Bank) -> None:
    reason = "invalid_exact_evm_payload_signature"
    said = await verified(bank, bank.facts(), reason, "http://127.0.0.1:1")
    assert said == Rejected("the signature is not the payer's", reason)


@pytest.mark.parametrize("has_node", [True, False])
async def test_a_start_without_a_node_says_who_decides_there(bank: Bank, has_node: bool) -> None:
    token = payment_config.Token(bank.token.address, bank.token.name, bank.token.version)
    network = X402Network(bank.chain.network, token, bank.chain.rpc if has_node else None)
    protocol = X402Protocol(X402Config(pay_to=bank.payee, networks=(network,), facilitator_url="http://127.0.0.1:1"))
    with structlog.testing.capture_logs() as lines:
        await protocol.start()
    await protocol.close()
    said = [line for line in lines if "an operator decides about uncertain payments" in line["event"]]
    assert [line["networks"] for line in said] == ([] if has_node else [[bank.chain.network]])
    assert protocol.has_node(bank.chain.network) is has_node
    assert await protocol.holds(bank.facts()) == (bank.token.balance(bank.payer.address) if has_node else None)


async def test_a_payment_elsewhere_or_of_another_amount_ends_the_authorization_for_good(bank: Bank) -> None:
    less, elsewhere = bank.facts(), bank.facts()
    bank.pay(less, amount=PRICE - 1)
    bank.pay(elsewhere, to=new_wallet().address)
    bank.pass_time(1)
    for facts in (less, elsewhere):
        found = await bank.look(facts)
        assert found == NeverLanded("the authorization was used without a transfer of this amount to us", for_good=True)
