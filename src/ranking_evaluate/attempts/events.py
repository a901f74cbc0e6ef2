"""What may happen to an attempt, and which of it must outlive a loss of power.

Each `Record...` event is named after the outcome that it writes down, a class of
payments/protocol.py: `Spent`, `Settled`, `Refused`, `NotSent`, `Uncertain`. Outcome and event are two classes because
attempts and payments do not import each other, and because an event holds only what the row keeps of an outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class Submit:
    """The credential is about to be sent to be settled; `lease_seconds` is how long that may take."""

    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Verification refused the credential or could not be made; nothing was submitted."""


@dataclass(frozen=True, slots=True)
class RecordSpent:
    """Verification found that the payment was submitted already, by somebody: the money may be ours."""

    reason: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class RecordSettled:
    """The money moved; `receipt` is the receipt header that every 200 of this attempt carries."""

    receipt: str
    transaction: str
    payer: str | None = None


@dataclass(frozen=True, slots=True)
class RecordRefused:
    """The money definitely did not move and never will by this credential."""

    reason: str
    receipt: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class RecordNotSent:
    """The settle call was definitely not sent."""


@dataclass(frozen=True, slots=True)
class RecordUncertain:
    """Nobody can tell whether the money moved; `code` and `transaction` are what the provider said, unproved."""

    reason: str
    code: str | None = None
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Lapse:
    """Somebody saw that the lease of a settling attempt is over."""


CHAIN: Final = "chain"
"""Who decides, as the audit names it, where the service itself asked the chain."""


class Grounds(StrEnum):
    """Why a payment was released; the value is the reason that its caller is told."""

    NEVER_LANDED = "released by an operator"
    OWN_WORD = "released by an operator on their own word; if your wallet shows the payment, ask them"
    ALTHOUGH_PAID = "released by an operator although it was paid; ask them before you pay again"


@dataclass(frozen=True, slots=True)
class OperatorSettle:
    """An operator, or the service itself, found the payment on the chain."""

    receipt: str
    transaction: str
    who: str
    evidence: str


@dataclass(frozen=True, slots=True)
class OperatorRelease:
    """The key is given free again, on these grounds, by an operator or the service itself.

    `transaction` is the one in which the chain shows the payment.
    """

    who: str
    evidence: str
    grounds: Grounds = Grounds.NEVER_LANDED
    transaction: str | None = None


Event = (
    Submit
    | Withdraw
    | RecordSpent
    | RecordSettled
    | RecordRefused
    | RecordNotSent
    | RecordUncertain
    | Lapse
    | OperatorSettle
    | OperatorRelease
)

DURABLE: Final = (
    Submit,
    RecordSpent,
    RecordSettled,
    RecordRefused,
    RecordNotSent,
    OperatorSettle,
    OperatorRelease,
)
"""The events that reach the disk before anything is answered or called.

What the others write is visible to every process at once, but a loss of power may take it back: losing it loses
nothing that anybody was told (docs/lifecycle.md, section 6).
"""
