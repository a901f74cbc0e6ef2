"""What an EVM chain says of an EIP-3009 authorization: used or not, and in which transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ranking_evaluate.deadline import within
from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError, integer, word
from ranking_evaluate.payments.protocol import Evidence, Landed, NeverLanded, PaymentFacts, Unknown

AUTHORIZATION_STATE: Final = "0xe94a0102"
"""Selector of authorizationState(address,bytes32), EIP-3009."""

AUTHORIZATION_USED: Final = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
"""Topic of AuthorizationUsed(address,bytes32), EIP-3009."""

TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
"""Topic of Transfer(address,address,uint256), ERC-20."""

SEARCHED_SECONDS: Final = 3600
"""How long before its expiry an authorization is looked for; we take none that is valid for longer than minutes."""

RPC_TIMEOUT: Final = 30.0


class AuthorizationLookup:
    """Reads what became of an authorization, on the chain behind one RPC URL."""

    def __init__(self, rpc_url: str) -> None:
        self._rpc_url = rpc_url

    async def look(self, facts: PaymentFacts) -> Evidence:
        """Return where the payment stands; "never landed" needs a final block past its last second.

        With `facts.transaction` the question is whether that transaction made this payment.
        """
        if facts.payer is None or facts.valid_before is None:
            return Unknown("the record holds no authorization to look for")
        rpc = JsonRpc(self._rpc_url, RPC_TIMEOUT)
        try:
            async with within(RPC_TIMEOUT):
                return await self._look(rpc, facts, facts.payer, facts.valid_before)
        except (NodeError, TimeoutError, KeyError, TypeError, ValueError) as error:
            return Unknown(f"the chain could not be read: {error}")
        finally:
            await rpc.close()

    async def is_used(self, facts: PaymentFacts) -> bool | None:
        """Return whether the authorization is used or cancelled in the newest block; None where the chain is silent."""
        if facts.payer is None:
            return None
        rpc = JsonRpc(self._rpc_url, RPC_TIMEOUT)
        try:
            if facts.network != f"eip155:{await rpc.chain_id()}":
                return None
            return await _is_used(rpc, facts.asset, [_topic(facts.payer), _topic(facts.payment_id)])
        except NodeError:
            return None
        finally:
            await rpc.close()

    async def _look(self, rpc: JsonRpc, facts: PaymentFacts, payer: str, valid_before: int) -> Evidence:
        chain = await rpc.chain_id()
        if facts.network != f"eip155:{chain}":
            return Unknown(f"X402_RPC_URL is on eip155:{chain}, the payment on {facts.network}")
        topics = [_topic(payer), _topic(facts.payment_id)]
        if facts.transaction is not None:
            if await self._pays(rpc, facts.transaction, facts, topics):
                return Landed(facts.transaction.lower())
            return Unknown("that transaction does not show this payment")
        # The final block's time is read before the state: read after it, a payment could land in between unseen.
        final = await rpc.final_time()
        used = await _is_used(rpc, facts.asset, topics)
        if not used and final > valid_before:
            return NeverLanded("the authorization is unused, and a final block is past its expiry")
        if not used:
            return Unknown("the authorization is unused so far, and may still be used until a final block is past it")
        for log in await self._used_logs(rpc, facts.asset, topics, valid_before):
            if await self._pays(rpc, log["transactionHash"], facts, topics):
                return Landed(log["transactionHash"])
        return Unknown("the authorization was used, but no transfer of it to us was found: it may have been cancelled")

    async def _used_logs(self, rpc: JsonRpc, asset: str, topics: Sequence[str], valid_before: int) -> list[Any]:
        first = await rpc.first_block_at(valid_before - SEARCHED_SECONDS)
        last = await rpc.first_block_at(valid_before + 1)
        wanted = {
            "address": asset,
            "topics": [AUTHORIZATION_USED, *topics],
            "fromBlock": hex(first),
            "toBlock": hex(last),
        }
        return list(await rpc.ask("eth_getLogs", wanted))

    async def _pays(self, rpc: JsonRpc, transaction: str, facts: PaymentFacts, topics: Sequence[str]) -> bool:
        receipt = await rpc.ask("eth_getTransactionReceipt", transaction)
        if receipt is None or receipt["status"] != "0x1":
            return False
        logs = [log for log in receipt["logs"] if log["address"].lower() == facts.asset]
        spent = [log["topics"] for log in logs if log["topics"][:2] == [AUTHORIZATION_USED, topics[0]]]
        paid = [
            log
            for log in logs
            if log["topics"] == [TRANSFER, topics[0], _topic(facts.pay_to)] and int(log["data"], 16) == facts.amount
        ]
        # A transaction may use several authorizations of one payer. Which of them made which transfer its logs do not
        # say, so each needs one: a single transfer must not settle two attempts.
        return [AUTHORIZATION_USED, *topics] in spent and len(paid) >= len(spent)


async def _is_used(rpc: JsonRpc, asset: str, topics: Sequence[str]) -> bool:
    question = {"to": asset, "data": AUTHORIZATION_STATE + "".join(topic[2:] for topic in topics)}
    return integer(await rpc.ask("eth_call", question, "latest")) != 0


def _topic(value: str) -> str:
    return "0x" + word(value)
