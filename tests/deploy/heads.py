"""Every 402 that there is: of each operation and protocol, unpaid and refused; and how long its head is."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx

from ranking_evaluate.contract.document import path_of
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from tests.faults.facilitator import Fault, FaultyFacilitator
from tests.hostile.service import CHAIN_ID, CURRENCY, PAYEE
from tests.hostile.wallet import WALLET
from tests.judges.x402_buyer import encoded, signed
from tests.payments import mpp_buyer

USUAL_ORIGIN: Final = "https://rank.example.org"
LONGEST_ORIGIN: Final = f"https://{'.'.join(['n' * 63] * 3)}.{'n' * 57}.org:65535"
"""A host name has at most 253 characters."""

LONGEST_KEY_BYTES: Final = 128
PAGE: Final = {"Origin": "https://a-page-of-another-origin.example"}
"""A page's request: its answer has the headers of CORS as well."""


def head_bytes(answer: httpx.Response) -> int:
    """Return how long the head of an answer is on the wire."""
    status_line = f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}\r\n"
    return len(status_line) + sum(len(name) + len(value) + 4 for name, value in answer.headers.raw) + 2


class Asked(NamedTuple):
    """One way to a 402, and the answer that came."""

    name: str
    operation: str
    answer: httpx.Response


@dataclass(frozen=True)
class Caller:
    """Somebody who comes to a 402 in every way, at an address of the service: its own or that of a proxy."""

    client: httpx.Client
    facilitator: FaultyFacilitator
    key_bytes: int = 36

    def ways(self) -> Iterator[Asked]:
        for operation in OPERATIONS:
            for name, ask in (
                ("x402 unpaid", self.x402_unpaid),
                ("x402 refused", self.x402_refused),
                ("x402 refused by our terms", self.x402_refused_by_our_terms),
                ("MPP unpaid", self.mpp_unpaid),
                ("MPP refused", self.mpp_refused),
                ("MPP malformed", self.mpp_malformed),
            ):
                yield Asked(name, operation.id, ask(operation))
            for method in ("GET", "HEAD"):
                for protocol in ("x402", "mpp"):
                    answer = self.client.request(method, path_of(operation, protocol), headers=PAGE)
                    yield Asked(f"{protocol} {method}", operation.id, answer)

    def _post(self, operation: Operation[Any], protocol: str, key: str, **credential: str) -> httpx.Response:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json", **PAGE, **credential}
        body = json.dumps(operation.example_input).encode()
        return self.client.post(path_of(operation, protocol), content=body, headers=headers)

    def _new_key(self) -> str:
        return str(uuid.uuid4()).ljust(self.key_bytes, "k")

    def x402_unpaid(self, operation: Operation[Any]) -> httpx.Response:
        return self._post(operation, "x402", self._new_key())

    def x402_refused(self, operation: Operation[Any]) -> httpx.Response:
        """The facilitator's refusal to settle comes with a receipt."""
        key = self._new_key()
        self.facilitator.reset(Fault.REFUSED)
        payload = signed(self._post(operation, "x402", key), WALLET.key)
        answer = self._post(operation, "x402", key, **{"PAYMENT-SIGNATURE": encoded(payload)})
        assert "payment-response" in answer.headers
        return answer

    def x402_refused_by_our_terms(self, operation: Operation[Any]) -> httpx.Response:
        key = self._new_key()
        payload = signed(self._post(operation, "x402", key), WALLET.key)
        payload["accepted"]["amount"] = "1"
        return self._post(operation, "x402", key, **{"PAYMENT-SIGNATURE": encoded(payload)})

    def mpp_unpaid(self, operation: Operation[Any]) -> httpx.Response:
        return self._post(operation, "mpp", self._new_key())

    def mpp_refused(self, operation: Operation[Any]) -> httpx.Response:
        """The wallet holds nothing."""
        key = self._new_key()
        challenge = self._post(operation, "mpp", key).headers["www-authenticate"]
        credential = mpp_buyer.craft(challenge, WALLET, chain_id=CHAIN_ID, token=CURRENCY, recipient=PAYEE)
        return self._post(operation, "mpp", key, Authorization=credential)

    def mpp_malformed(self, operation: Operation[Any]) -> httpx.Response:
        return self._post(operation, "mpp", self._new_key(), Authorization="Payment e30")
