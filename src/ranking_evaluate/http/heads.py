"""How long the head of a 402 can be with these settings: proxies with default buffers answer 502 for one of 4 KiB."""

from __future__ import annotations

from typing import Final

from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.order import offer_of

MAX_HEAD_BYTES: Final = 3_800
"""What the head of a 402 may have, wherever the service stands and whatever a key and a reason are."""

OTHER_BYTES: Final = 880
"""What the challenge leaves of it: the status line, the headers of every answer, those of CORS, and a receipt."""

_LONGEST_KEY: Final = "k" * 128
_LONGEST_REASON: Final = "r" * 120


class HeadTooLong(Exception):
    """With these settings a 402 could have a longer head than proxies take; the text says which, in one line."""


async def check_heads(parts: Parts) -> None:
    """Return when the head of every 402 fits; raises `HeadTooLong`."""
    for path, sold in parts.paid.items():
        if sold.protocol is None:
            continue
        offer = offer_of(sold.operation, url=parts.public_origin + path, key=_LONGEST_KEY, body=b"{}")
        for reason in (None, _LONGEST_REASON):
            challenge = await sold.protocol.challenge(offer, reason)
            length = sum(len(name) + len(value) + 4 for name, value in challenge.headers.items()) + OTHER_BYTES
            if length > MAX_HEAD_BYTES:
                raise HeadTooLong(
                    f"the head of a 402 over {sold.wire.title} could have {length:,} bytes, and no more than "
                    f"{MAX_HEAD_BYTES:,} get through every proxy"
                )
