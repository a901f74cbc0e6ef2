"""The Tempo node: what is asked of it before a payment, and the marker of whether a transaction was sent."""

from __future__ import annotations

from typing import Final

import httpx

from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError, integer

SEND_METHOD: Final = b"eth_sendRawTransaction"
"""Part of eth_sendRawTransaction and of eth_sendRawTransactionSync."""

NOT_CONNECTED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""How a request ends of which not one byte has left this machine."""


class SendMarker(httpx.AsyncBaseTransport):
    """A transport that knows whether a transaction was sent through it.

    `made` turns true before the first byte can leave, so that a cancellation or a crash in between counts as sent,
    and back only when no connection came about. An event hook could not tell: it fires before the connection.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.made = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        if SEND_METHOD not in await request.aread():
            return await self._inner.handle_async_request(request)
        made_before, self.made = self.made, True
        try:
            return await self._inner.handle_async_request(request)
        except NOT_CONNECTED:
            self.made = made_before
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class Node(JsonRpc):
    """The questions that a payment needs answered before it is sent."""

    async def knows(self, transaction: str) -> bool:
        """Return whether a transaction is on the chain, or on its way there."""
        found = await self.ask("eth_getTransactionByHash", transaction)
        if found is None:
            return False
        if not isinstance(found, dict) or str(found.get("hash")).lower() != transaction:
            raise NodeError("the node's answer is about another transaction")
        return True

    async def gas_terms(self) -> tuple[int, int]:
        """Return the lowest price of gas that the next block may take, and how much gas a block may hold."""
        block = await self.block("latest")
        base_fee = integer(block.get("baseFeePerGas"))
        # From one block to the next it falls by an eighth at most (EIP-1559).
        return base_fee - base_fee // 8, integer(block.get("gasLimit"))

    async def balance(self, token: str, account: str) -> int:
        """Return an account's balance in base units of a token."""
        data = "0x70a08231" + account.removeprefix("0x").lower().rjust(64, "0")
        return integer(await self.ask("eth_call", {"to": token, "data": data}, "latest"))
