"""What an Idempotency-Key is: the one pattern that the service, its documents and the buyer's command hold a key to."""

from __future__ import annotations

import re
from typing import Final

KEY_PATTERN: Final = "^[A-Za-z0-9_-]{16,128}$"

_KEY: Final = re.compile(KEY_PATTERN)


def is_key(text: str) -> bool:
    """Return whether the whole text is an Idempotency-Key."""
    # A full match, since a dollar sign alone would allow a newline after the key.
    return _KEY.fullmatch(text) is not None
