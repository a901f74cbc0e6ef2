"""How a payment protocol appears to callers: its part of the route, and the names of its headers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One payment protocol as callers see it; whatever lists protocols is made from these records.

    Attributes:
        name: Its part of the route, `/v1/<name>/<operation>`.
        credential_header: The request header that pays, in the letters of its own documents.
        challenge_header: The header of a 402 that names the terms.
        receipt_header: The header of an answer that tells what the payment came to.
    """

    name: str
    credential_header: str
    challenge_header: str
    receipt_header: str
