"""What paying takes, whatever the protocol: a mandate in, a signed payment out, and what its receipt says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeVar

import httpx

from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.core.visible import visible

Account = TypeVar("Account")

LOCAL_CHAINS: Final = frozenset({1337, 31337})
"""The ids that chains on one's own machine have; on them alone any token may be paid with, for it is worth nothing."""

OFFERS_TOLD: Final = 5
"""A server may offer thousands; of so many it is said why they are not paid."""

NOT_CHARGED: Final = 1
UNCLEAR: Final = 3


class PayError(Exception):
    """The purchase did not come to an answer; the text says why and what to do next.

    Attributes:
        exit_code: NOT_CHARGED when nothing was paid by this run, UNCLEAR when money may have moved.
    """

    def __init__(self, text: str, exit_code: int = NOT_CHARGED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """What may be signed, and what is needed to sign it.

    Attributes:
        wallet_key: The private key.
        key: The idempotency key of the purchase.
        max_amount: The most that may be paid, in whole units of the asset.
        asset: The one asset to pay with; None takes only the dollars that the protocol's SDK knows.
        decimals: How many decimals that asset has, where the SDK does not know it: of cents on one token another one
            makes a hundred dollars, so nothing is assumed.
        network: The one network to pay on, such as `eip155:8453`; None takes any.
        rpc_url: The node of the chain, where signing needs one; None takes the one that the SDK knows.
    """

    wallet_key: str = field(repr=False)
    key: str
    max_amount: Decimal
    asset: str | None = None
    decimals: int | None = None
    network: str | None = None
    rpc_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A signed payment: its request header, the epoch second it expires at, and what it pays, for people."""

    header: str
    value: str = field(repr=False)
    expires_at: int
    terms: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFacts:
    """What a receipt says; None where the protocol leaves it out."""

    success: bool
    transaction: str
    network: str | None
    payer: str | None
    amount: str | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """Pays over one protocol.

    Attributes:
        wire: The protocol as callers see it.
        sign: Answers a 402 within the mandate, or raises `PayError` with nothing signed.
        facts: Reads the members of a receipt.
    """

    wire: Wire
    sign: Callable[[httpx.Response, Mandate], Signed]
    facts: Callable[[Mapping[str, Any]], ReceiptFacts]


def check_price(cost: Decimal, mandate: Mandate) -> None:
    """Raise `PayError` when the cost is more than the mandate allows."""
    if cost > mandate.max_amount:
        raise PayError(
            f"The price is {cost.normalize():f}, more than the {mandate.max_amount:f} allowed. Nothing was paid."
        )


def nothing_payable(reasons: Sequence[str]) -> PayError:
    """Return the refusal of a 402 with nothing that may be paid, with the reason for each of its offers."""
    shown = "; ".join(visible(reason) for reason in reasons[:OFFERS_TOLD])
    more = f"; and {len(reasons) - OFFERS_TOLD} more" if len(reasons) > OFFERS_TOLD else ""
    return PayError(f"No offer can be paid: {shown}{more}. Nothing was paid.")


def account_of(from_key: Callable[[str], Account], mandate: Mandate) -> Account:
    """Return the account of the mandate's wallet key, as an SDK reads it."""
    try:
        return from_key(mandate.wallet_key)
    except Exception as error:
        # The library's own message may quote the key.
        raise PayError("The wallet key is not a private key of 32 bytes in hex. Nothing was paid.") from error
