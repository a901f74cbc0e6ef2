"""What an EVM chain says of an EIP-3009 authorization: used or not, and in which transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from ranking_evaluate.deadline import within
from ranking_evaluate.payments.json_rpc import MISREAD, JsonRpc, NodeError, integer, word
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import Evidence, Landed, NeverLanded, PaymentFacts, Unknown

T = TypeVar("T")

AUTHORIZATION_STATE: Final = "0xe94a0102"
"""Selector of authorizationState(address,bytes32), EIP-3009."""

AUTHORIZATION_USED: Final = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
"""Topic of AuthorizationUsed(address,bytes32), EIP-3009."""

AUTHORIZATION_CANCELED: Final = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
"""Topic of AuthorizationCanceled(address,bytes32), EIP-3009."""

TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
"""Topic of Transfer(address,address,uint256), ERC-20."""

SEARCHED_SECONDS: Final = 3600
"""How long before its expiry an authorization is looked for; we take none that is valid for longer than minutes."""

RPC_TIMEOUT: Final = 30.0


class AuthorizationLookup:
    """Reads what became of an authorization, on the chain behind one RPC URL."""

    def __init__(self, rpc_url: str) -> None:
        self._rpc_url = rpc_url

    async def look(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        """Return where the payment stands, by final blocks alone; "never landed" needs one past its last second.

        With `facts.transaction` the question is whether that transaction made this payment.
        """
        if facts.payer is None or facts.valid_before is None:
            return Unknown("the record holds no authorization to look for")
        rpc = JsonRpc(self._rpc_url, RPC_TIMEOUT, pace)
        try:
            async with within(RPC_TIMEOUT):
                return await self._look(rpc, facts, facts.payer, facts.valid_before)
        except (*MISREAD, TimeoutError) as error:
            return Unknown(f"the chain could not be read: {error}")
        finally:
            await rpc.close()

    async def is_used(self, facts: PaymentFacts) -> bool | None:
        """Return whether the authorization is used or cancelled in the newest block; None where the chain is silent."""
        return await self._newest(facts, lambda rpc, payer: _is_used(rpc, facts.asset, _topics(payer, facts)))

    async def holds(self, facts: PaymentFacts) -> int | None:
        """Return how much of the token the payer holds in the newest block; None where the chain is silent."""
        return await self._newest(facts, lambda rpc, payer: rpc.balance(facts.asset, payer))

    async def _newest(self, facts: PaymentFacts, question: Callable[[JsonRpc, str], Awaitable[T]]) -> T | None:
        """Return what the newest block says of the payer; None where nobody paid, or no node of that chain answers."""
        if facts.payer is None:
            return None
        rpc = JsonRpc(self._rpc_url, RPC_TIMEOUT)
        try:
            if facts.network != f"eip155:{await rpc.chain_id()}":
                return None
            return await question(rpc, facts.payer)
        except NodeError:
            return None
        finally:
            await rpc.close()

    async def _look(self, rpc: JsonRpc, facts: PaymentFacts, payer: str, valid_before: int) -> Evidence:
        chain = await rpc.chain_id()
        if facts.network != f"eip155:{chain}":
            return Unknown(f"X402_RPC_URL is on eip155:{chain}, the payment on {facts.network}")
        topics = _topics(payer, facts)
        # The final block is read before all else: read after it, a payment could land in between unseen.
        final_number, final_time = await rpc.final_block()
        if facts.transaction is not None:
            shown = await self._shown_by(rpc, facts.transaction, facts, topics, final_number)
            # Of another transaction it says nothing.
            return Unknown(shown.reason) if isinstance(shown, NeverLanded) else shown
        if await _is_used(rpc, facts.asset, topics):
            return await self._used(rpc, facts, topics, valid_before, final_number)
        if final_time > valid_before:
            return NeverLanded("the authorization is unused, and a final block is past its expiry")
        return Unknown("the authorization is unused so far, and may still be used until a final block is past it")

    async def _used(
        self, rpc: JsonRpc, facts: PaymentFacts, topics: Sequence[str], valid_before: int, final: int
    ) -> Evidence:
        """Return what the use of the authorization came to: a payment to us, another one, or its cancellation."""
        # A cancellation may come after the expiry, a use may not.
        first = await rpc.first_block_at(valid_before - SEARCHED_SECONDS)
        wanted = {
            "address": facts.asset,
            "topics": [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], *topics],
            "fromBlock": hex(first),
            "toBlock": "latest",
        }
        for log in _of_token(facts.asset, await rpc.ask("eth_getLogs", wanted)):
            if integer(log["blockNumber"]) > final:
                return Unknown("the authorization was used in a block that is not final yet")
            if log["topics"] == [AUTHORIZATION_CANCELED, *topics]:
                return NeverLanded("the authorization was cancelled", for_good=True)
            if log["topics"] == [AUTHORIZATION_USED, *topics]:
                return await self._shown_by(rpc, log["transactionHash"], facts, topics, final)
        return Unknown("the authorization was used, and the node has no log of it")

    async def _shown_by(
        self, rpc: JsonRpc, transaction: str, facts: PaymentFacts, topics: Sequence[str], final: int
    ) -> Evidence:
        """Return what a transaction made of the authorization; one that does not show its use says nothing of it."""
        receipt = await rpc.ask("eth_getTransactionReceipt", transaction)
        if receipt is None:
            return Unknown("the node has no receipt of that transaction")
        if str(receipt["transactionHash"]).lower() != transaction.lower():
            return Unknown("the node's receipt is one of another transaction")
        if integer(receipt["blockNumber"]) > final:
            return Unknown("the transaction is in a block that is not final yet")
        logs = _of_token(facts.asset, receipt["logs"])
        spent = [log["topics"] for log in logs if log["topics"][:2] == [AUTHORIZATION_USED, topics[0]]]
        paid = [
            log
            for log in logs
            if log["topics"] == [TRANSFER, topics[0], _topic(facts.pay_to)] and integer(log["data"]) == facts.amount
        ]
        if receipt["status"] != "0x1" or [AUTHORIZATION_USED, *topics] not in spent:
            return Unknown("that transaction does not show this payment")
        if not paid:
            return NeverLanded("the authorization was used without a transfer of this amount to us", for_good=True)
        # A transaction may use several authorizations of one payer, and its logs do not say which of them made which
        # transfer. With a transfer to us for each of them, all paid; with fewer, this one may have paid or not.
        if len(paid) < len(spent):
            return Unknown("that transaction uses several authorizations, and does not say which of them paid us")
        return Landed(transaction.lower())


def _of_token(asset: str, logs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the logs of one token, their topics in lower case as ours are."""
    return [
        {**log, "topics": [topic.lower() for topic in log["topics"]]} for log in logs if log["address"].lower() == asset
    ]


async def _is_used(rpc: JsonRpc, asset: str, topics: Sequence[str]) -> bool:
    question = {"to": asset, "data": AUTHORIZATION_STATE + "".join(topic[2:] for topic in topics)}
    return integer(await rpc.ask("eth_call", question, "latest")) != 0


def _topics(payer: str, facts: PaymentFacts) -> list[str]:
    """Return what the logs of an authorization are found by, beside what happened to it."""
    return [_topic(payer), _topic(facts.payment_id)]


def _topic(value: str) -> str:
    return "0x" + word(value)
