"""The Tempo node: what is asked of it before a payment, and the SDK's way to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import httpx

from ranking_evaluate.deadline import within
from ranking_evaluate.payments.json_rpc import DuplicateMember, JsonRpc, NodeError, integer, open_client, read, word
from ranking_evaluate.payments.provider_client import Answer, Late, NotConnected, ProviderClient, ProviderError

SEND_METHOD: Final = b"eth_sendRawTransaction"
"""Part of eth_sendRawTransaction and of eth_sendRawTransactionSync."""

FEE_MANAGER: Final = "0xfeec000000000000000000000000000000000000"

USER_TOKENS: Final = "0xed498fa8"
"""Selector of userTokens(address), of the fee manager."""


class NodeTransport(httpx.AsyncBaseTransport):
    """Carries the SDK's calls over the strict client, and knows whether a transaction was sent.

    A send counts before its first byte can leave, so a cancellation or a crash in between counts as sent. It counts
    no longer only when no connection came about for it.

    Args:
        client: What makes the calls.
        url: The node.
        send_seconds: Seconds from now after which no transaction is sent any more.
    """

    def __init__(self, client: ProviderClient, url: str, send_seconds: float) -> None:
        self._client = client
        self._url = url
        self._send_until = time.monotonic() + send_seconds
        self._sends = 0

    @property
    def send_made(self) -> bool:
        """Whether a transaction was sent, or may have been."""
        return self._sends > 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make one call; what goes wrong is raised as the httpx error by which the SDK tells it."""
        body = await request.aread()
        is_send = SEND_METHOD in body
        if is_send and time.monotonic() > self._send_until:
            raise httpx.ConnectError("it is too late to send a transaction")
        self._sends += is_send
        try:
            answer = await self._call(body)
        except NotConnected as error:
            self._sends -= is_send
            raise httpx.ConnectError(str(error)) from error
        except Late as error:
            raise httpx.ReadTimeout(str(error)) from error
        except ProviderError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        try:
            read(answer.body)
        except DuplicateMember as error:
            raise httpx.RemoteProtocolError(f"in the node's answer {error}") from error
        except ValueError:
            # What is no JSON the SDK finds out by itself, after the status.
            pass
        return httpx.Response(answer.status, content=answer.body)

    async def _call(self, body: bytes) -> Answer:
        """Make one call; where a deadline of the SDK's passes, what has arrived is read all the same."""
        call = asyncio.create_task(self._client.call("POST", self._url, body))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with within(0):
                    return await asyncio.shield(call)
            raise
        finally:
            call.cancel()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class Node(JsonRpc):
    """The questions that a payment needs answered before it is sent."""

    def transport(self, timeout: float) -> NodeTransport:
        """Return a way to the node for the SDK, on which each call opens a connection and may take `timeout` in all."""
        return NodeTransport(open_client(timeout, fresh=True), self._url, timeout)

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

    async def fee_token(self, account: str) -> str | None:
        """Return the token in which an account has chosen to pay for gas, or None when it has not chosen any."""
        question = {"to": FEE_MANAGER, "data": USER_TOKENS + word(account)}
        chosen = integer(await self.ask("eth_call", question, "latest"))
        return f"0x{chosen:040x}" if chosen else None
