"""Purchases over MPP through the whole service, every answer of which is held against what may never be otherwise."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from mpp import Challenge, Credential, Receipt
from mpp.client.transport import _payment_challenges as challenges_in

from ranking_evaluate import evaluate
from ranking_evaluate.sandbox.funded import Wallet
from tests.payments import mpp_buyer as buyer

OPERATION: Final = "ranking-evaluate"
PATH: Final = f"/v1/mpp/{OPERATION}"
PRICE: Final = 10_000
BODY: Final = b'{"queries":[{"id":"q","retrieved":["b","a"],"judgments":[{"id":"a","grade":3},{"id":"b","grade":1}]}]}'
OTHER_BODY: Final = b'{"queries":[{"id":"r","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'
PROBLEM_TYPES: Final = "https://paymentauth.org/problems/"


def new_key() -> str:
    return f"mpp_{secrets.token_hex(12)}"


def check(answer: httpx.Response, key: str, body: bytes) -> httpx.Response:
    """Return the answer of an MPP route when it is one that may be given at all."""
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    assert answer.headers["x-request-id"]
    assert ("payment-receipt" in answer.headers) is (answer.status_code == 200)
    assert ("www-authenticate" in answer.headers) is (answer.status_code == 402)
    if answer.status_code == 200:
        assert answer.content == evaluate(OPERATION, body)
        assert answer.headers["cache-control"] == "private, no-store"
        receipt = Receipt.from_payment_receipt(answer.headers["payment-receipt"])
        assert (receipt.status, receipt.external_id) == ("success", key)
        return answer
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert {"type", "title", "detail", "code", "retryable", "retryAfter", "nextStep", "requestId"} <= problem.keys()
    if answer.status_code == 402:
        challenge = Challenge.from_www_authenticate(challenges_in(answer.headers["www-authenticate"])[0])
        assert problem["challengeId"] == challenge.id
        assert problem["code"] in {"PAYMENT_REQUIRED", "PAYMENT_REJECTED"}
        assert (problem["type"] == f"{PROBLEM_TYPES}payment-required") is (problem["code"] == "PAYMENT_REQUIRED")
        assert problem["type"].startswith(PROBLEM_TYPES)
        assert answer.headers["cache-control"] == "no-store"
    return answer


def told(answer: httpx.Response) -> tuple[int, str | None]:
    """Return status and code."""
    return answer.status_code, None if answer.is_success else answer.json()["code"]


def slug(answer: httpx.Response) -> str:
    """Return the paymentauth.org problem type of a 402."""
    return str(answer.json()["type"].removeprefix(PROBLEM_TYPES))


@dataclass
class Shopper:
    """One key in front of a service, and a wallet."""

    client: httpx.Client = field(repr=False)
    wallet: Wallet
    key: str = field(default_factory=new_key)
    body: bytes = BODY

    def post(
        self,
        credential: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        path: str = PATH,
    ) -> httpx.Response:
        """Send the request; a credential goes into the Authorization header."""
        sent = {"Content-Type": "application/json", "Idempotency-Key": self.key, **(headers or {})}
        if credential is not None:
            sent["Authorization"] = credential
        content = self.body if body is None else body
        answer = self.client.post(path, content=content, headers=sent)
        return check(answer, sent["Idempotency-Key"], content) if path == PATH else answer

    def challenge(self, *, body: bytes | None = None) -> str:
        """Ask for the price and return the challenge, of several the first."""
        answer = self.post(body=body)
        assert told(answer) == (402, "PAYMENT_REQUIRED")
        return challenges_in(answer.headers["www-authenticate"])[0]

    def sign(self, challenge: str | None = None, **changes: Any) -> str:
        """Return a credential for a challenge, or for a fresh one."""
        return buyer.craft(challenge or self.challenge(), self.wallet, **changes)

    def state(self) -> str | None:
        """Return what the service says of the key."""
        answer = self.client.get("/v1/attempts", headers={"Idempotency-Key": self.key})
        if answer.status_code == 404:
            return None
        return str(json.loads(answer.content)["state"])


def carry_over(credential: str, challenge: str, **payload: Any) -> str:
    """Return the signed transaction of a credential inside another challenge."""
    signed = Credential.from_authorization(credential)
    return buyer.present(Challenge.from_www_authenticate(challenge), {**signed.payload, **payload})
