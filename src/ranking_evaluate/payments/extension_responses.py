"""What a facilitator says of the extensions that it was sent: its header EXTENSION-RESPONSES, logged and counted.

The bazaar's entry tells whether this service was catalogued. Nothing else depends on it.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from ranking_evaluate import telemetry
from ranking_evaluate.core import intake
from ranking_evaluate.core.errors import OperationError

HEADER: Final = "EXTENSION-RESPONSES"

SENT: Final = ("bazaar", "payment-identifier")
"""The extensions that a facilitator is sent; it has nothing to say of others."""

STATUSES: Final = frozenset({"success", "processing", "rejected"})
"""The statuses of specs/extensions/bazaar.md of x402; any other word is counted as `other`."""

_LONGEST_TEXT: Final = 200

_ENCODED: Final = re.compile(r"[0-9A-Za-z+/_-]{40}")
"""What could be an address, a nonce or a signature."""


def note(header: str | None, call: str) -> None:
    """Log and count what the header of an answer to `call` says; one that cannot be read says nothing."""
    try:
        said = intake.read(base64.b64decode(header or "", validate=True))
    except (binascii.Error, ValueError, OperationError):
        return
    if not isinstance(said, dict):
        return
    for extension in SENT:
        entry = said.get(extension)
        if not isinstance(entry, dict):
            continue
        status = _text(entry.get("status"))
        counted = status if status in STATUSES else "other"
        telemetry.count_extension_response(extension, counted)
        log = telemetry.logger().warning if counted == "rejected" else telemetry.logger().info
        # These three members tell why something was rejected; what the SDKs log of the header are the same.
        reason = _text(entry.get("rejectedReason")) or _text(entry.get("reason"))
        log(
            "extension response",
            extension=extension,
            call=call,
            status=status,
            reason=reason,
            code=_text(entry.get("code")),
        )


def _text(value: object) -> str | None:
    """Return a text that may be logged, cut short; None for one that could hold a part of a payment."""
    if not isinstance(value, str) or _ENCODED.search(value):
        return None
    return value[:_LONGEST_TEXT]
