"""The port of the payment protocols: what the walk asks of each one, and the values that it answers with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.payments.clock import ClockWatch
from ranking_evaluate.payments.pace import Pace

AMOUNT_DECIMALS: Final = 6

TRANSACTION: Final = re.compile(r"0x[0-9a-fA-F]{64}")
"""How every chain that we are paid on names a transaction."""


class Terms(NamedTuple):
    """One token in which a protocol is paid, for documents and readiness."""

    network: str
    asset: str
    pay_to: str
    testnet: bool


class Readiness(NamedTuple):
    """Whether a protocol can be used now, and the reason when not."""

    ready: bool
    reason: str | None = None


NOT_CONFIGURED: Final = Readiness(False, "not configured")
"""The readiness of a protocol that nobody configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """How documents announce what a protocol asks for one price; the challenge alone is binding.

    Attributes:
        accepts: The terms as the protocol writes them; empty for one that has no such form.
        offers: The entries of `offers` in OpenAPI's x-payment-info.
        protocols: The entries of `protocols` there, in the other dialect.
    """

    accepts: tuple[Mapping[str, object], ...]
    offers: tuple[Mapping[str, object], ...]
    protocols: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What this request would buy, and for how much.

    `amount` counts base units of a six-decimal token; `url` is the resource under the public origin; `body` is the
    raw body, to which MPP binds its challenge. `for_discovery` says that nobody is buying: the key is the published
    one, and a challenge names no purchase where its protocol can do without.
    """

    operation: str
    description: str
    release: str
    url: str
    key: str
    amount: int
    body: bytes
    for_discovery: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentFacts:
    """What may be kept of a payment: enough to find it on the chain, and nothing that could be used again.

    `payment_id` is the authorization's nonce (x402) or the challenge id (MPP); `valid_before` is the last second, in
    epoch seconds, at which the payment can land; `transaction` is the one that it must be in, where that is known.
    """

    network: str
    asset: str
    amount: int
    pay_to: str
    payer: str | None
    payment_id: str
    valid_before: int | None
    transaction: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A credential that was parsed and not yet believed.

    Attributes:
        digest: SHA-256 (hex) of the canonical form of the decoded credential, never of its base64 text.
        proofs: 32-byte digests of what may be used once, ever.
        facts: What the credential says of the payment.
        content: The adapter's own form of it; nobody else looks inside.
        new_key_proof: The one of the proofs that is given back when the payment comes to nothing: of an authorization
            that one payment at a time may carry.
    """

    digest: str
    proofs: tuple[bytes, ...]
    facts: PaymentFacts
    content: object = field(repr=False)
    new_key_proof: bytes | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A credential of this protocol that cannot be decoded: the table treats it as none."""

    reason: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """The terms that a client must meet: response headers, and members of the 402's body."""

    headers: Mapping[str, str]
    members: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Verified:
    """The credential would pay; nothing was consumed."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The credential would not pay; `code` is the provider's own word for it."""

    reason: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """The payment was submitted already, by somebody: the money may be ours."""

    reason: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The provider gave no usable answer; nothing was submitted.

    `code` is the provider's own word for it, `retry_after` the seconds that it asks to wait.
    """

    reason: str
    code: str | None = None
    retry_after: int | None = None


Verification = Verified | Rejected | Spent | Unreachable


@dataclass(frozen=True, slots=True)
class Settled:
    """The money moved; `receipt` is the value of the receipt header."""

    receipt: str
    transaction: str
    payer: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The money did not move and never will by this credential; `receipt` tells so where the protocol has a form."""

    reason: str
    receipt: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """The settle call never left this machine."""

    reason: str


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Everything else: the money may have moved.

    `code` is the provider's own word for it, `transaction` one that it named without proof: shown as reported, never
    taken for evidence.
    """

    reason: str
    code: str | None = None
    transaction: str | None = None


Settlement = Settled | Refused | NotSent | Uncertain


@dataclass(frozen=True, slots=True)
class Landed:
    """The chain shows this very payment, in this transaction."""

    transaction: str


@dataclass(frozen=True, slots=True)
class NeverLanded:
    """The payment is not on the chain, and a final block is past the last second at which it could land.

    With `for_good` a final block shows that it never can, whatever the time: its transaction was reverted, or its
    authorization was used or cancelled without paying us.
    """

    reason: str
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """The chain does not tell, or cannot be asked."""

    reason: str


Evidence = Landed | NeverLanded | Unknown


class PaymentProtocol(Protocol):
    """One way of being paid, as an operator has configured it; one that nobody configured is its wire alone.

    `clock` compares ours with those by which its payments are judged.

    `read_credential` and `check_terms` do no I/O; `verify` consumes nothing; `settle` is called at most once for a
    credential and answers with one of four values; an exception from it counts as `Uncertain`.
    """

    wire: Wire
    clock: ClockWatch

    async def start(self) -> None:
        """Connect; a provider that is down does not fail the start: `ready` tells, and it is asked again later."""

    async def close(self) -> None:
        """Close the connections."""

    def terms(self) -> tuple[Terms, ...]:
        """Return what is taken, the preferred first: an entry for each network and token, at least one."""

    def announce(self, amount: int) -> Announcement:
        """Return how documents announce the price of `amount` base units."""

    def ready(self) -> Readiness:
        """Return whether a challenge can be made and a credential be taken now."""

    async def challenge(self, offer: Offer, reason: str | None = None) -> Challenge:
        """Return the terms for the offer, by the settings alone; `reason` says why a credential was refused."""

    def read_credential(self, headers: Mapping[str, str], offer: Offer) -> Credential | Unreadable | None:
        """Return the credential in the request, parsed only: no signature, expiry or digest is checked.

        Raises:
            RequestMalformed: PAYMENT_MALFORMED, or PAYMENT_IDENTIFIER_MISMATCH when it names another key.
        """

    def check_terms(self, credential: Credential, offer: Offer, now: float) -> str | None:
        """Return why the credential does not meet our own current terms, or None when it does."""

    def remark(self, reason: str, now: float) -> str | None:
        """Return a sentence that helps to mend what was refused for this reason, such as the time by our clock."""

    async def verify(self, credential: Credential, offer: Offer) -> Verification:
        """Ask the provider whether the credential would pay."""

    async def settle(self, credential: Credential, offer: Offer) -> Settlement:
        """Make the payment, once."""

    def has_node(self, network: str) -> bool:
        """Return whether a node of this network is configured, so that the chain can be asked."""

    async def inspect(self, facts: PaymentFacts, pace: Pace | None = None) -> Evidence:
        """Ask the chain what became of a payment; with `facts.transaction`, whether that transaction made it.

        What it says it says of final blocks alone. `Landed` says that this very payment is in its transaction, not one
        like it: a transaction may hold several. Questions to the node keep to the pace.
        """

    async def holds(self, facts: PaymentFacts) -> int | None:
        """Return how much of the token the payer holds, in base units; None where nobody can tell."""

    async def reconciled_receipt(self, facts: PaymentFacts, transaction: str, key: str) -> str:
        """Return the receipt header for a payment under `key` that an operator found in `transaction`, and says so."""
