"""The Tempo proxy with faults: what a node or the way to it may do to the one call that moves money."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, NamedTuple

from ranking_evaluate.sandbox.funded import Wallet
from ranking_evaluate.sandbox.processes import Processes
from ranking_evaluate.sandbox.tempo import BALANCE_OF, TempoChain, TempoProxy, tempo_chain

HANG_SECONDS = 8.0
SENDS = {"eth_sendRawTransaction", "eth_sendRawTransactionSync"}
FIRST_QUESTION = "eth_getTransactionByHash"
"""What the service asks first when it verifies a payment; the last thing is the wallet's balance."""


class Fault(Enum):
    """What goes wrong, for as long as it is set."""

    NONE = auto()
    REPLY_LOST = auto()  # executed, the connection breaks before the answer
    REPLY_LATE = auto()  # executed, the answer takes longer than anybody waits
    REPLY_LOST_RECEIPT_HIDDEN = auto()  # executed, and nobody can find it
    REPLY_LATE_RECEIPT_HIDDEN = auto()
    ERROR_AFTER = auto()  # executed, an internal error is answered
    ALREADY_KNOWN = auto()  # executed, answered as if it had been there before
    ERROR_AFTER_RECEIPT_HIDDEN = auto()
    REFUSED_BY_NODE = auto()  # not executed, a definite-looking error
    DROPPED = auto()  # not executed, the connection breaks
    NOT_JSON = auto()  # executed, the answer is a gateway's page
    OTHER_RECEIPT = auto()  # executed, the receipt of another transaction is answered, and found later
    REVERTED = auto()  # receipts say that the transaction was reverted
    SENT_REVERTED = auto()  # executed, and the answer too says that it was reverted
    RECEIPT_HIDDEN = auto()
    DOWN = auto()  # no call is answered
    GONE = auto()  # no connection is accepted once a payment was verified
    VERIFY_HELD = auto()  # a verification waits for `release`
    SEND_HELD = auto()  # a send waits for `release`, and is executed then
    OTHER_CHAIN = auto()
    BUSY = auto()  # every call but a send is refused for now
    STRANGE = auto()  # every call but a send is answered with what it cannot mean


HIDES_RECEIPTS = {
    Fault.REPLY_LOST_RECEIPT_HIDDEN,
    Fault.REPLY_LATE_RECEIPT_HIDDEN,
    Fault.ERROR_AFTER_RECEIPT_HIDDEN,
    Fault.RECEIPT_HIDDEN,
}

RECEIPT_CHANGES: dict[Fault, dict[str, Any]] = {
    Fault.REVERTED: {"status": "0x0", "logs": []},
    Fault.SENT_REVERTED: {"status": "0x0", "logs": []},
    Fault.OTHER_RECEIPT: {"transactionHash": "0x" + "11" * 32},
}


class FaultyTempoProxy(TempoProxy):
    """Set `fault` to choose what goes wrong; `calls` names what was asked, `sends` counts what was to be sent."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.hang_seconds = HANG_SECONDS
        self.held = threading.Event()
        self._released = threading.Event()
        self._listening = True
        self.reset()

    def reset(self) -> None:
        """Let everything work again, let go of what is held, and forget the calls."""
        self.release()
        self.fault = Fault.NONE
        self.calls: list[str] = []
        self.listen()

    def release(self) -> None:
        """Let go of the calls that are held."""
        self._released.set()
        self._released = threading.Event()
        self.held.clear()

    def listen(self) -> None:
        """Accept connections again, at the same address."""
        if not self._listening:
            self._bind(self._server.server_port)
            self._serve()
            self._listening = True

    def stop_listening(self) -> None:
        """Accept no connection; the ones that are open stay."""
        if self._listening:
            self._stop()
            self._listening = False

    def _hold(self) -> None:
        released = self._released
        self.held.set()
        released.wait(HANG_SECONDS)

    @property
    def sends(self) -> int:
        return sum(method in SENDS for method in self.calls)

    def answer(self, call: dict[str, Any]) -> bytes | None:
        method, fault = call["method"], self.fault
        if not (method == "eth_getBlockByNumber" and call["params"][0] == "latest"):
            # The newest block is looked at for the time too, at any moment, whatever a test does.
            self.calls.append(method)
        if fault is Fault.DOWN:
            return None
        if method in SENDS:
            return self._send(call, fault)
        if fault is Fault.BUSY:
            return _error(call, -32005, "limit exceeded")
        if fault is Fault.STRANGE:
            return _result(call, {"status": "maybe", "transactionHash": 5, "timestamp": "soon"})
        if method == "eth_chainId" and fault is Fault.OTHER_CHAIN:
            return _result(call, "0x1")
        if method in {"eth_getTransactionReceipt", "eth_getTransactionByHash"} and fault in HIDES_RECEIPTS:
            return _result(call, None)
        if method == FIRST_QUESTION and fault is Fault.VERIFY_HELD:
            self._hold()
        answer = self.forward(call)
        if fault is Fault.GONE and method == "eth_call" and str(call["params"][0].get("data")).startswith(BALANCE_OF):
            self.stop_listening()
        if method == "eth_getTransactionReceipt" and fault in RECEIPT_CHANGES:
            return _result(call, json.loads(answer)["result"] | RECEIPT_CHANGES[fault])
        return answer

    def _send(self, call: dict[str, Any], fault: Fault) -> bytes | None:
        if fault is Fault.DROPPED:
            return None
        if fault is Fault.REFUSED_BY_NODE:
            return _error(call, -32000, "insufficient funds for gas * price + value")
        if fault is Fault.SEND_HELD:
            self._hold()
        answer = self.forward(call)
        match fault:
            case Fault.REPLY_LOST | Fault.REPLY_LOST_RECEIPT_HIDDEN:
                return None
            case Fault.REPLY_LATE | Fault.REPLY_LATE_RECEIPT_HIDDEN:
                self._released.wait(self.hang_seconds)
                return None
            case Fault.ERROR_AFTER | Fault.ERROR_AFTER_RECEIPT_HIDDEN:
                return _error(call, -32603, "internal error")
            case Fault.ALREADY_KNOWN:
                return _error(call, -32000, "already known")
            case Fault.NOT_JSON:
                return b"<html>Bad gateway</html>"
            case Fault.OTHER_RECEIPT | Fault.SENT_REVERTED:
                return _result(call, json.loads(answer)["result"] | RECEIPT_CHANGES[fault])
            case _:
                return answer


def _result(call: dict[str, Any], result: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}).encode()


def _error(call: dict[str, Any], code: int, message: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}}).encode()


class Tempo(NamedTuple):
    """A real chain, the proxy in front of it, and a payer with money."""

    chain: TempoChain
    proxy: FaultyTempoProxy
    payer: Wallet


@contextlib.contextmanager
def running_tempo() -> Iterator[Tempo]:
    """Start a real Tempo chain behind a faulty proxy."""
    processes = Processes()
    try:
        with tempo_chain(processes, FaultyTempoProxy) as (chain, proxy):
            yield Tempo(chain, proxy, chain.new_payer())
    finally:
        processes.stop()
