"""A small JSON-RPC caller for questions to a chain's node that change nothing."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final

from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.provider_client import ProviderClient, ProviderError, TooLarge

MAX_ANSWER_BYTES: Final = 1_048_576
"""A large block with the hashes of its transactions fits several times."""

_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]+")

BALANCE_OF: Final = "0x70a08231"
"""Selector of balanceOf(address), ERC-20 and TIP-20."""


class NodeError(Exception):
    """The node gave no usable answer.

    Args:
        text: A sentence without its full stop.
        retry_after: The seconds that the node asks to wait.
    """

    def __init__(self, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


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


MISREAD: Final = (NodeError, KeyError, TypeError, ValueError, AttributeError)
"""What reading a node's answers raises when one is missing or of another form than the question has."""


class JsonRpc:
    """Asks one node.

    Args:
        url: The node.
        timeout: Seconds that one call may take in all.
        pace: What every call waits for; None where somebody waits for the answer.
    """

    def __init__(self, url: str, timeout: float, pace: Pace | None = None) -> None:
        self._url = url
        self._client = open_client(timeout)
        self._ids = itertools.count(1)
        self._pace = pace

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def ask(self, method: str, *params: object) -> Any:  # noqa: ANN401 - JSON.
        """Return a call's result.

        Raises:
            NodeRefusal: The node answered with an error.
            NodeError: It did not answer, or not in JSON-RPC.
        """
        call = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        if self._pace is not None:
            await self._pace.turn()
        try:
            answered = await self._client.call("POST", self._url, json.dumps(call).encode())
            answer = read(answered.body) if 200 <= answered.status < 300 else None
        except TooLarge as error:
            raise NodeError(f"{error}, asked for {method}") from error
        except ProviderError as error:
            raise NodeError(f"the node does not answer {method} ({error.cause})") from error
        except ValueError as error:
            raise NodeError(f"the node's answer to {method} is not JSON: {error}") from error
        if not isinstance(answer, dict):
            text = f"the node's answer to {method} is not JSON-RPC (status {answered.status})"
            raise NodeError(text, answered.retry_after)
        refusal = answer.get("error")
        if isinstance(refusal, dict) and isinstance(refusal.get("code"), int):
            raise NodeRefusal(refusal["code"], str(refusal.get("message", "")))
        if refusal is not None or "result" not in answer:
            raise NodeError(f"the node's answer to {method} is not JSON-RPC")
        return answer["result"]

    async def chain_id(self) -> int:
        """Return the chain that the node is on."""
        return integer(await self.ask("eth_chainId"))

    async def final_block(self) -> tuple[int, int]:
        """Return number and time of the newest final block; what a node has that knows none is nothing final."""
        final = await self.block("finalized")
        return integer(final.get("number")), integer(final.get("timestamp"))

    async def balance(self, token: str, account: str) -> int:
        """Return how much of a token an account holds in the newest block."""
        return integer(await self.ask("eth_call", {"to": token, "data": BALANCE_OF + word(account)}, "latest"))

    async def block(self, which: str) -> dict[str, object]:
        """Return a block, by its number in hexadecimal or by a name such as `latest`."""
        block = await self.ask("eth_getBlockByNumber", which, False)
        if not isinstance(block, dict):
            raise NodeError(f"the node knows no {which} block")
        return block

    async def first_block_at(self, instant: int, after: int = 0) -> int:
        """Return the number of the first block that is not older than `instant`, or of the latest one.

        It is looked for from block `after` on, which is known to be no later.
        """
        latest = await self.block("latest")
        low, high = after, integer(latest.get("number"))
        if integer(latest.get("timestamp")) < instant:
            return high
        while low < high:
            middle = (low + high) // 2
            block = await self.block(hex(middle))
            if integer(block.get("timestamp")) < instant:
                low = middle + 1
            else:
                high = middle
        return low


def open_client(timeout: float, *, fresh: bool = False) -> ProviderClient:
    """Return a client for a node, with connections of its own; `timeout` is what one call may take in all."""
    return ProviderClient("the node", max_bytes=MAX_ANSWER_BYTES, seconds=timeout, fresh=fresh)


def read(body: bytes) -> Any:  # noqa: ANN401 - JSON.
    """Return a node's JSON.

    Unlike the reader of requests it counts no values: a block may list thousands of transactions.

    Raises:
        DuplicateMember: An object has two members of one name.
        ValueError: It is not JSON.
    """
    try:
        return json.loads(body, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class DuplicateMember(ValueError):
    """An object has two members of one name, of which readers choose one or the other."""


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise DuplicateMember("an object has two members of one name")
    return found


def integer(value: object) -> int:
    """Return a JSON-RPC quantity or word, which is hexadecimal text: the digits of another number would be read wrong.

    Raises:
        NodeError: It is none.
    """
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise NodeError("the node's answer is not a number")
    return int(value, 16)


def word(value: str) -> str:
    """Return a hexadecimal value, such as an address, as the 64 digits of an argument or of a topic."""
    return value.removeprefix("0x").lower().rjust(64, "0")
