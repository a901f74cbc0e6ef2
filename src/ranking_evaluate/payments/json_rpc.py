"""A small JSON-RPC caller for questions to a chain's node that change nothing."""

from __future__ import annotations

import itertools
from typing import Any, Final

import httpx

CONNECT_TIMEOUT: Final = 5.0


class NodeError(Exception):
    """The node gave no usable answer."""


class NodeRefusal(NodeError):
    """The node answered with a JSON-RPC error.

    Args:
        code: The error's code.
        message: The error's text, which may repeat what it was asked.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"JSON-RPC error {code}")
        self.code = code
        self.message = message


class JsonRpc:
    """Asks one node, over a client of ours: no redirects, no environment proxies, no retries.

    Args:
        url: The node.
        timeout: Seconds that one read may take.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        # Reading the certificate store takes tens of milliseconds, so it happens once.
        self._tls = httpx.create_ssl_context(trust_env=False)
        self._client = self.open_client(self.open_transport(), timeout)
        self._ids = itertools.count(1)

    def open_transport(self) -> httpx.AsyncHTTPTransport:
        """Return a transport with connections of its own."""
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, retries=0)

    @staticmethod
    def open_client(transport: httpx.AsyncBaseTransport, timeout: float) -> httpx.AsyncClient:
        """Return a client on a transport; `timeout` is what one read may take."""
        limits = httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))
        return httpx.AsyncClient(transport=transport, timeout=limits, trust_env=False, follow_redirects=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def ask(self, method: str, *params: object) -> Any:  # noqa: ANN401 - JSON.
        """Return a call's result.

        Raises:
            NodeRefusal: The node answered with an error.
            NodeError: It did not answer, or not in JSON-RPC.
        """
        call = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        try:
            response = await self._client.post(self._url, json=call)
            answer = response.raise_for_status().json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise NodeError(f"the node does not answer {method} ({type(error).__name__})") from error
        if not isinstance(answer, dict):
            raise NodeError(f"the node's answer to {method} is not JSON-RPC")
        refusal = answer.get("error")
        if isinstance(refusal, dict) and isinstance(refusal.get("code"), int):
            raise NodeRefusal(refusal["code"], str(refusal.get("message", "")))
        if refusal is not None or "result" not in answer:
            raise NodeError(f"the node's answer to {method} is not JSON-RPC")
        return answer["result"]

    async def chain_id(self) -> int:
        """Return the chain that the node is on."""
        return integer(await self.ask("eth_chainId"))

    async def final_time(self) -> int:
        """Return the time of the newest final block."""
        return integer((await self.block("finalized")).get("timestamp"))

    async def block(self, which: str) -> dict[str, object]:
        """Return a block, by its number in hexadecimal or by a name such as `latest`."""
        block = await self.ask("eth_getBlockByNumber", which, False)
        if not isinstance(block, dict):
            raise NodeError(f"the node knows no {which} block")
        return block


def integer(value: object) -> int:
    """Return a JSON-RPC quantity or word.

    Raises:
        NodeError: It is none.
    """
    try:
        return int(str(value), 16)
    except ValueError as error:
        raise NodeError("the node's answer is not a number") from error
