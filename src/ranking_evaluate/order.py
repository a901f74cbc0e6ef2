"""One request as a purchase: what it would buy, for how much, and with which credential.

Steps 1 to 3 of the walk, and the check of our terms on which step 5 acts. Nothing here asks anybody or writes anything.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ranking_evaluate.attempts.attempt import Draft
from ranking_evaluate.attempts.decide import Request
from ranking_evaluate.attempts.fingerprint import fingerprint
from ranking_evaluate.contract.answer import Answer
from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.errors import RETRY_AFTER, RequestMalformed, ServiceError, Unavailable
from ranking_evaluate.contract.rules import published_sha256
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.evaluations.evaluations import never
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.payments.protocol import Credential, Offer, PaymentProtocol, Unreadable
from ranking_evaluate.release import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One request that passed the checks of its headers; `headers` are lower case, one value each.

    `wire` is the protocol of its route; `protocol` is None where nobody configured that one. `request_id` is the id of
    its answer and of its log lines. `hung_up` returns when nobody waits for the answer any more.
    """

    operation: Operation[Any]
    wire: Wire
    protocol: PaymentProtocol | None
    key: str
    url: str
    body: bytes
    headers: Mapping[str, str]
    client: str
    request_id: str | None = None
    hung_up: Callable[[], Awaitable[None]] = never

    @property
    def payee(self) -> PaymentProtocol:
        """The protocol that is to be paid by; raises PAYMENT_UNAVAILABLE where nobody configured it."""
        if self.protocol is None:
            raise unconfigured(self.wire)
        return self.protocol


@dataclass(frozen=True, slots=True)
class Delivery:
    """A paid answer with its receipt header."""

    body: bytes
    receipt_header: str
    receipt: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Purchase:
    """What steps 1 to 3 found out about one request: all that steps 4 to 9 work with.

    Attributes:
        order: The request: its protocol takes the payment, its client is counted.
        answer: What is delivered once it is paid.
        offer: What is asked for it: challenges, verification and settlement are made for this offer.
        request: What the decision table and the store know of the request.
        credential: What came as payment, None when nothing did; the table takes an unreadable one for none.
        objection: Why the credential does not meet our own terms, by its text alone; None when it does.
    """

    order: Order
    answer: Answer
    offer: Offer
    request: Request
    credential: Credential | Unreadable | None
    objection: str | None

    @property
    def payment(self) -> Credential:
        """The credential, where the table said RESERVE: it says so of readable ones alone."""
        if not isinstance(self.credential, Credential):
            raise TypeError("the table reserved a purchase without a readable credential")
        return self.credential


def consider(order: Order, answered: Answer, wires: tuple[Wire, ...], now: float, release: str) -> Purchase:
    """Return the order as a purchase of its answer, with the credential that came as its payment.

    Args:
        order: The request.
        answered: What its body was evaluated to: what cannot be delivered never comes here.
        wires: Every protocol, to tell whose credential the request carries.
        now: Epoch seconds, against which the credential's own times are held.
        release: What the purchase is of: the fingerprint, the offer and the row name it.

    Raises:
        ServiceError: The credential belongs elsewhere or cannot be read.
    """
    offer = offer_of(order.operation, url=order.url, key=order.key, body=order.body, release=release)
    schema_sha256 = published_sha256(order.operation)
    credential = _read_credential(order, offer, wires)
    readable = credential if isinstance(credential, Credential) else None
    bought = partial(
        fingerprint,
        operation=offer.operation,
        protocol=order.wire.name,
        release=release,
        input_sha256=answered.input_sha256,
    )
    request = Request(
        key=order.key,
        fingerprint=bought(schema_sha256=schema_sha256),
        former_fingerprint=bought(),
        release=release,
        schema_sha256=schema_sha256,
        credential_digest=readable.digest if readable else None,
        proofs=readable.proofs if readable else (),
        new_key_proof=readable.new_key_proof if readable else None,
    )
    objection = order.payee.check_terms(readable, offer, now) if readable else None
    return Purchase(order, answered, offer, request, credential, objection)


def readable_credential(order: Order, wires: tuple[Wire, ...], release: str) -> Credential | None:
    """Return the credential of an order that is not evaluated yet; what is wrong with one is told afterwards."""
    offer = offer_of(order.operation, url=order.url, key=order.key, body=order.body, release=release)
    try:
        credential = _read_credential(order, offer, wires)
    except ServiceError:
        return None
    return credential if isinstance(credential, Credential) else None


def offer_of(
    operation: Operation[Any],
    *,
    url: str,
    key: str,
    body: bytes,
    release: str = VERSION,
    for_discovery: bool = False,
) -> Offer:
    """Return what one call of the operation is offered for."""
    return Offer(
        operation=operation.id,
        description=operation.description,
        release=release,
        url=url,
        key=key,
        amount=operation.price_base_units,
        body=body,
        for_discovery=for_discovery,
    )


def unconfigured(wire: Wire) -> Unavailable:
    """Return the refusal of a protocol that nobody configured; waiting does not help."""
    return Unavailable("PAYMENT_UNAVAILABLE", f"Payments over {wire.title} are not taken here.", cause="unconfigured")


def not_ready(reason: str | None, retry_after: int | None = None) -> Unavailable:
    """Return the refusal while a provider cannot be used; its own Retry-After counts where it is longer than ours."""
    detail = f"No payment can be taken at the moment: {reason or 'the provider is not ready'}."
    return Unavailable("PAYMENT_UNAVAILABLE", detail, retry_after=max(RETRY_AFTER, retry_after or 0))


def ended() -> Unavailable:
    """Return the refusal of a service whose operator has ended its sales."""
    return Unavailable("PAYMENT_UNAVAILABLE", "Sales have ended here.", cause="ended")


def _read_credential(order: Order, offer: Offer, wires: tuple[Wire, ...]) -> Credential | Unreadable | None:
    for wire in wires:
        if wire.name != order.wire.name and wire.carries_credential(order.headers):
            raise RequestMalformed("PAYMENT_PROTOCOL_MISMATCH", f"This route takes {order.wire.name} credentials only.")
    if not order.wire.carries_credential(order.headers):
        return None
    if order.key == DISCOVERY_KEY:
        raise RequestMalformed("DISCOVERY_KEY", "This key is published for discovery; it buys nothing.")
    if order.protocol is None:
        # The table still tells what its key stands for: whoever has paid must not be sent to another protocol.
        return Unreadable("this service does not take it")
    return order.protocol.read_credential(order.headers, offer)


def draft(purchase: Purchase, lease_seconds: float) -> Draft:
    """Return what RESERVE inserts, under a new random claim."""
    credential = purchase.payment
    facts = credential.facts
    return Draft(
        key=purchase.request.key,
        claim=secrets.token_hex(16),
        lease_seconds=lease_seconds,
        protocol=purchase.order.wire.name,
        operation=purchase.offer.operation,
        release=purchase.offer.release,
        fingerprint=purchase.request.fingerprint,
        credential_digest=credential.digest,
        proofs=credential.proofs,
        new_key_proof=credential.new_key_proof,
        output_sha256=purchase.answer.output_sha256,
        amount=purchase.offer.amount,
        asset=facts.asset,
        network=facts.network,
        payer=facts.payer,
        payment_id=facts.payment_id,
        valid_before=facts.valid_before,
        transaction=facts.transaction,
        recipient=facts.pay_to,
        answer_sha256=purchase.answer.sha256,
        schema_sha256=purchase.request.schema_sha256,
        request_id=purchase.order.request_id,
    )
