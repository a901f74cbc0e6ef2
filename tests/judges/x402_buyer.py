"""A buyer over x402: signs with the official client, and can send what that client never would."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import httpx
from eth_account import Account
from x402 import x402ClientSync
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.schemas import PaymentRequired

PATH: Final = "/v1/x402/ranking-evaluate"
PRICE: Final = 10_000

Payload = dict[str, Any]


def new_key() -> str:
    return f"pay_{uuid.uuid4().hex}"


def decoded(header: str) -> Any:
    """Return the JSON of a base64 header."""
    return json.loads(base64.b64decode(header, validate=True))


def encoded(document: object) -> str:
    """Return a document as a PAYMENT-SIGNATURE header."""
    text = document if isinstance(document, str) else json.dumps(document)
    return base64.b64encode(text.encode()).decode()


def signed(challenge: httpx.Response, wallet_key: str, *, seconds: int | None = None) -> Payload:
    """Return the payload that the official client makes of a 402."""
    required = PaymentRequired.model_validate(decoded(challenge.headers["payment-required"]))
    offered = required.accepts[0].max_timeout_seconds
    client = x402ClientSync()
    client.set_spend_controls(False)
    register_exact_evm_client(client, Account.from_key(wallet_key))
    if seconds is not None:
        required.accepts[0].max_timeout_seconds = seconds
    payload = client.create_payment_payload(required).model_dump(mode="json", by_alias=True, exclude_none=True)
    payload["accepted"]["maxTimeoutSeconds"] = offered
    return payload


@dataclass(frozen=True)
class Buyer:
    """Somebody with a wallet in front of one service."""

    client: httpx.Client
    wallet_key: str
    body: bytes
    path: str = PATH

    def post(
        self,
        key: str,
        payload: object = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> httpx.Response:
        """Send a request; a payload goes into the PAYMENT-SIGNATURE header."""
        sent = {"Content-Type": "application/json", "Idempotency-Key": key, **headers}
        if payload is not None:
            sent["PAYMENT-SIGNATURE"] = encoded(payload)
        return self.client.post(self.path, content=self.body if body is None else body, headers=sent)

    def sign(self, key: str, *, wallet_key: str | None = None, seconds: int | None = None) -> Payload:
        """Ask for the price and sign it for a key, also for one that is sold already and gets no terms."""
        challenge = self.post(new_key())
        assert challenge.status_code == 402, challenge.text
        payload = signed(challenge, wallet_key or self.wallet_key, seconds=seconds)
        payload["extensions"]["payment-identifier"]["info"]["id"] = key
        return payload

    def attempt(self, key: str) -> Mapping[str, Any] | None:
        """Return what the service says of a key."""
        answer = self.client.get("/v1/attempts", headers={"Idempotency-Key": key})
        if answer.status_code == 404:
            return None
        content: Mapping[str, Any] = answer.json()
        return content


def changed(payload: Payload, change: Callable[[Payload], object]) -> Payload:
    """Return a copy of the payload with a change made to it."""
    copy: Payload = json.loads(json.dumps(payload))
    change(copy)
    return copy
