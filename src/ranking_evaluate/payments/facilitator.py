"""The three calls of an x402 facilitator, and the classifier of what its answers mean.

Nothing that a facilitator says is believed before it was checked: every member that matters is compared with what we
sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ranking_evaluate import telemetry
from ranking_evaluate.core import intake
from ranking_evaluate.core.errors import OperationError
from ranking_evaluate.payments import extension_responses
from ranking_evaluate.payments.cdp import Sign
from ranking_evaluate.payments.clock import ahead_of_date
from ranking_evaluate.payments.protocol import (
    TRANSACTION,
    NotSent,
    Readiness,
    Refused,
    Rejected,
    Settled,
    Settlement,
    Spent,
    Uncertain,
    Unreachable,
    Verification,
    Verified,
)
from ranking_evaluate.payments.provider_client import Broken, NotConnected, ProviderClient, ProviderError
from ranking_evaluate.payments.reasons import REFUSED_BEFORE_BROADCAST, code_of, in_words
from ranking_evaluate.payments.refusing import Refusing

MAX_ANSWER_BYTES: Final = 65_536

NO_HASH: Final = "the facilitator reports success without a transaction hash"
"""Why a settlement is uncertain, and will be again for every buyer: this facilitator cannot be used."""

_REPORTED: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

_OWN_STATUSES: Final = frozenset({401, 402, 429})
"""Not authorized, a bill that is not paid, too many calls: nothing that this call's payer could have caused."""

_ABOUT_THE_CALL: Final = frozenset({400, 422})
"""Statuses that speak of what a call holds, which a payer has written."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a facilitator.

    `document` is None when it is not a JSON object without duplicate members; `retry_after` is in seconds.
    """

    status: int
    document: dict[str, Any] | None
    retry_after: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class FacilitatorError(Exception):
    """The facilitator gave no usable answer to a call that moves nothing.

    Args:
        words: What went wrong, in words that may be published.
        cause: The name of what was raised below, if anything was.
    """

    def __init__(self, words: str, cause: str = "") -> None:
        super().__init__(f"{words} ({cause})" if cause else words)
        self.words = words


class Facilitator:
    """The three calls of a facilitator.

    Args:
        url: Its base URL.
        authorization: The Authorization header's value, where one is needed.
        verify_timeout: Seconds in all for /supported and /verify.
        settle_timeout: Seconds in all for /settle.
        sign: Signs each request, where the facilitator wants that.
        heard: Takes the seconds by which our clock is ahead of the facilitator's, with each answer that tells them.
    """

    def __init__(
        self,
        url: str,
        authorization: str | None,
        verify_timeout: float,
        settle_timeout: float,
        sign: Sign | None = None,
        heard: Callable[[float], None] = lambda ahead: None,
    ) -> None:
        self._url = url.rstrip("/")
        self._sign = sign
        self._heard = heard
        headers = {"authorization": authorization} if authorization else {}
        client = partial(ProviderClient, "the facilitator", max_bytes=MAX_ANSWER_BYTES, headers=headers)
        self._asking = client(seconds=verify_timeout)
        self._settling = client(seconds=settle_timeout, fresh=True)
        self._refusing = Refusing("the facilitator")

    def ready(self) -> Readiness:
        """Return whether it answers calls, as far as the last ones tell."""
        return self._refusing.ready()

    async def close(self) -> None:
        """Close the connections."""
        await self._asking.close()
        await self._settling.close()

    async def supported(self) -> dict[str, Any]:
        """Return the /supported document; raises `FacilitatorError`."""
        answer = await self._ask("GET", "/supported", None)
        if answer.status != 200 or answer.document is None:
            raise FacilitatorError(f"/supported answered with status {answer.status} and no usable document")
        return answer.document

    async def verify(self, body: bytes, *, payer: str) -> Verification:
        """Return what the facilitator says of a credential; it consumes nothing."""
        try:
            answer = await self._ask("POST", "/verify", body)
        except FacilitatorError as error:
            return Unreachable(str(error))
        self._note("/verify", answer, verdict="isValid")
        return classify_verification(answer, payer=payer)

    async def settle(self, body: bytes, *, network: str, payer: str) -> Settlement:
        """Make the one settle call and return what it came to; a `Settled` has no receipt header yet."""
        url = f"{self._url}/settle"
        try:
            signature = self._signature("POST", url)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was sent.
            return NotSent(f"the call to the facilitator could not be signed ({type(error).__name__})")
        try:
            answer = await self._exchange(self._settling, "POST", url, body, signature)
        except NotConnected as error:
            return NotSent(str(error))
        except Broken as error:
            return Uncertain(f"the connection broke while the facilitator was settling ({error.cause})")
        except ProviderError as error:
            return Uncertain(str(error))
        self._note("/settle", answer, verdict="success")
        outcome = classify_settlement(answer, network=network, payer=payer)
        if isinstance(outcome, Uncertain) and outcome.reason == NO_HASH:
            telemetry.alarm(
                "no_transaction_hash", f"{NO_HASH}: it cannot be used", reported_transaction=outcome.transaction
            )
        return outcome

    def _note(self, call: str, answer: Answer, *, verdict: str) -> None:
        """Note what an answer says beside its verdict: of the extensions, or that it has none for its own reasons."""
        extension_responses.note(answer.headers.get(extension_responses.HEADER), call)
        if isinstance((answer.document or {}).get(verdict), bool):
            self._refusing.answered(call)
        elif (code := own_reason(answer)) is not None:
            self._refusing.refused(call, code)

    async def _ask(self, method: str, path: str, body: bytes | None) -> Answer:
        url = self._url + path
        try:
            signature = self._signature(method, url)
        except Exception as error:
            raise FacilitatorError("the call to the facilitator could not be signed", type(error).__name__) from error
        try:
            return await self._exchange(self._asking, method, url, body, signature)
        except ProviderError as error:
            raise FacilitatorError(error.words, error.cause) from error

    async def _exchange(
        self, client: ProviderClient, method: str, url: str, body: bytes | None, signature: Mapping[str, str]
    ) -> Answer:
        answer = await client.call(method, url, body, signature)
        date, age = answer.headers.get("date"), answer.headers.get("age")
        ahead = ahead_of_date(date, age, answer.sent_at, answer.received_at)
        if ahead is not None:
            self._heard(ahead)
        try:
            document = intake.read(answer.body)
        except OperationError:
            document = None
        read = document if isinstance(document, dict) else None
        return Answer(answer.status, read, answer.retry_after, answer.headers)

    def _signature(self, method: str, url: str) -> Mapping[str, str]:
        return {} if self._sign is None else self._sign(method, url)


def own_reason(answer: Answer) -> str | None:
    """Return why a facilitator gave no verdict, where the reason is its own and not what the call holds; else None.

    The reason is its gateway's errorType, as CDP has it, or its status.
    """
    code = code_of((answer.document or {}).get("errorType"))
    if answer.status in _OWN_STATUSES:
        return code or f"status {answer.status}"
    return code if 400 <= answer.status < 500 and answer.status not in _ABOUT_THE_CALL else None


def classify_verification(answer: Answer, *, payer: str) -> Verification:
    """Return what a /verify answer means; anything unclear is `Unreachable`, since nothing was consumed."""
    document = answer.document or {}
    said = document.get("isValid")
    if answer.status >= 500 or not isinstance(said, bool) or 300 <= answer.status < 400:
        code = code_of(document.get("invalidReason")) or code_of(document.get("errorType"))
        words = f"the facilitator's /verify answered with status {answer.status} and no verdict"
        return Unreachable(f"{words}, saying {code}" if code else words, code, answer.retry_after)
    if not said:
        reason = document.get("invalidReason")
        if isinstance(reason, str) and "nonce" in reason and "used" in reason:
            return Spent("the facilitator says that the authorization was used already", code_of(reason))
        return Rejected(in_words(reason), code_of(reason))
    if answer.status != 200 or not _same_address(document.get("payer"), payer):
        return Unreachable("the facilitator's /verify vouches for another payer or with another status")
    return Verified()


def classify_settlement(answer: Answer, *, network: str, payer: str) -> Settlement:
    """Return what a /settle answer means (docs/lifecycle.md, section 5).

    `Settled` and `Refused` are definite; whatever is not exactly one of them is `Uncertain`. The receipt header is
    empty here: the adapter writes it.
    """
    document = answer.document
    if document is None:
        return Uncertain(f"the facilitator answered status {answer.status} without a usable document")
    success, transaction = document.get("success"), document.get("transaction")
    reason = document.get("errorReason")
    # A gateway before the facilitator, such as CDP's, says errorType instead.
    code, reported = code_of(reason) or code_of(document.get("errorType")), _reported(transaction)
    if success is True and answer.status == 200:
        if not (isinstance(transaction, str) and TRANSACTION.fullmatch(transaction)):
            return Uncertain(NO_HASH, code, reported)
        if document.get("network") != network:
            return Uncertain("the facilitator reports success on another network", code, reported)
        if not _same_address(document.get("payer"), payer):
            return Uncertain("the facilitator reports success for another payer", code, reported)
        return Settled(receipt="", transaction=transaction.lower(), payer=payer)
    # CDP leaves the transaction of a refusal out, the SDKs write an empty one.
    if success is False and transaction in (None, "") and answer.status < 500 and not 300 <= answer.status < 400:
        if isinstance(reason, str) and reason in REFUSED_BEFORE_BROADCAST:
            return Refused(in_words(reason), code=code)
        words = f"the facilitator failed for a reason that does not exclude a payment: {in_words(reason)}"
        return Uncertain(words, code, reported)
    return Uncertain(f"the facilitator answered status {answer.status} without a definite outcome", code, reported)


def _reported(transaction: object) -> str | None:
    """Return what a facilitator names as the transaction, where it looks like the name of one."""
    return transaction if isinstance(transaction, str) and _REPORTED.fullmatch(transaction) else None


def _same_address(said: object, ours: str) -> bool:
    return said is None or (isinstance(said, str) and said.lower() == ours.lower())
