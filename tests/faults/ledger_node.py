"""The chain of the trials: a node that shows the bank's ledger, final some time later, and that fails now and then."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from ranking_evaluate.payments.evm import AUTHORIZATION_STATE, AUTHORIZATION_USED, TRANSFER
from ranking_evaluate.payments.json_rpc import BALANCE_OF, word
from tests.faults.facilitator import FaultyFacilitator

FINAL_AFTER: Final = 30
"""Seconds after which a block of this chain is final."""

BLOCKS_BEFORE: Final = 10_000
"""How many blocks there are before the trials begin, of a second each."""


class LedgerNode(FaultyFacilitator):
    """A JSON-RPC node over what has moved; it is an HTTP server like the facilitator, and answers otherwise.

    Args:
        chain_id: Which chain it says to be.
        clock: The time of the newest block.
        landed: The time of each authorization's use, by its nonce.
        names: Names the transaction of an authorization.
        terms: asset, payer, recipient and amount of every payment.

    Attributes:
        is_silent: Whether it answers nobody.
        is_busy: Whether it answers one question in fifty with an error.
        asked_at: When somebody asked last, by the monotonic clock.
    """

    def __init__(
        self,
        *,
        chain_id: int,
        clock: Callable[[], float],
        landed: Mapping[str, float],
        names: Callable[[str], str],
        terms: tuple[str, str, str, int],
        seed: int,
    ) -> None:
        self._chain_id, self._clock, self._landed, self._names, self._terms = chain_id, clock, landed, names, terms
        self._random = random.Random(seed)
        self._genesis = int(clock()) - BLOCKS_BEFORE
        self.is_silent = self.is_busy = False
        self.asked_at = time.monotonic()
        super().__init__(lambda path, body: (500, b""))

    def answer(self, handler: BaseHTTPRequestHandler, path: str, body: bytes) -> None:
        """Answer one question."""
        self.asked_at = time.monotonic()
        call = json.loads(body)
        said: dict[str, Any] = {"jsonrpc": "2.0", "id": call["id"]}
        if self.is_silent or (self.is_busy and self._random.random() < 0.02):
            said["error"] = {"code": -32005, "message": "limit exceeded"}
        else:
            said["result"] = self._ask(call["method"], call["params"])
        content = json.dumps(said).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _ask(self, method: str, params: Any) -> Any:
        asset, payer, recipient, amount = self._terms
        match method:
            case "eth_chainId":
                return hex(self._chain_id)
            case "eth_getBlockByNumber":
                return self._block(params[0])
            case "eth_call" if params[0]["data"].startswith(BALANCE_OF):
                return hex(10**12)
            case "eth_call" if params[0]["data"].startswith(AUTHORIZATION_STATE):
                return hex(int("0x" + params[0]["data"][-64:] in self._landed))
            case "eth_getLogs":
                nonce = params[0]["topics"][2]
                return [self._used(nonce)] if nonce in self._landed else []
            case "eth_getTransactionReceipt":
                nonce = next((nonce for nonce in list(self._landed) if self._names(nonce) == params[0]), None)
                if nonce is None:
                    return None
                used = self._used(nonce)
                topics = [TRANSFER, "0x" + word(payer), "0x" + word(recipient)]
                paid = {"address": asset, "topics": topics, "data": hex(amount)}
                return {**used, "status": "0x1", "logs": [used, paid]}
            case _:
                pass
        raise AssertionError(f"nobody should ask for {method}")

    def _used(self, nonce: str) -> dict[str, Any]:
        asset, payer, _, _ = self._terms
        return {
            "address": asset,
            "topics": [AUTHORIZATION_USED, "0x" + word(payer), nonce],
            "transactionHash": self._names(nonce),
            "blockNumber": hex(int(self._landed[nonce]) - self._genesis),
        }

    def _block(self, which: str) -> dict[str, str]:
        latest = int(self._clock()) - self._genesis
        number = {"latest": latest, "finalized": latest - FINAL_AFTER}.get(which)
        number = int(which, 16) if number is None else number
        return {"number": hex(number), "timestamp": hex(self._genesis + number)}
