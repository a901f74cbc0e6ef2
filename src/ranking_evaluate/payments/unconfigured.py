"""The rail that an operator did not configure: its route is there, and says that it cannot be paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from ranking_evaluate.contract.errors import Unavailable
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.payments.protocol import (
    Announcement,
    Challenge,
    Credential,
    Evidence,
    Offer,
    PaymentFacts,
    PaymentHeaders,
    Readiness,
    Settlement,
    Terms,
    Unknown,
    Verification,
)


class UnconfiguredRail:
    """Stands in for a protocol of which only the names are known.

    Args:
        wire: How the protocol appears to callers.
        headers: Its header names.
        carries_credential: Tells whether a request's headers carry a credential of it.
    """

    def __init__(
        self, wire: Wire, headers: PaymentHeaders, carries_credential: Callable[[Mapping[str, str]], bool]
    ) -> None:
        self.name = wire.name
        self.wire = wire
        self.headers = headers
        self._carries_credential = carries_credential

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    def terms(self) -> Terms | None:
        """Return None: nothing is taken."""
        return None

    def announce(self, amount: int) -> Announcement | None:
        """Return None: there is nothing to announce."""
        return None

    def ready(self) -> Readiness:
        """Return that it is not configured."""
        return Readiness(False, "not configured")

    def carries_credential(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request carries a credential of the protocol."""
        return self._carries_credential(headers)

    def read_credential(self, headers: Mapping[str, str], offer: Offer) -> Credential | None:
        """Return None when there is no credential, and refuse to look at one."""
        if self.carries_credential(headers):
            self._refuse()
        return None

    def check_terms(self, credential: Credential, offer: Offer, now: float) -> str | None:
        """Refuse."""
        self._refuse()

    async def challenge(self, offer: Offer, reason: str | None = None) -> Challenge:
        """Refuse."""
        self._refuse()

    async def verify(self, credential: Credential, offer: Offer) -> Verification:
        """Refuse."""
        self._refuse()

    async def settle(self, credential: Credential, offer: Offer) -> Settlement:
        """Refuse."""
        self._refuse()

    async def inspect(self, facts: PaymentFacts) -> Evidence:
        """Return that nobody can be asked."""
        return Unknown(f"{self.name} is not configured")

    async def reconciled_receipt(self, facts: PaymentFacts, transaction: str, key: str) -> str:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unavailable("PAYMENT_UNAVAILABLE", f"This service takes no {self.name} payments.")
