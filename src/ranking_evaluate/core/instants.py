"""RFC 3339 instants: as integers, so that they compare exactly from year 0001 to 9999 in every offset; and written."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

_YEAR: Final = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_MONTH_AND_DAY: Final = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
# Divisible by 4 and not by 100, or by 400.
_LEAP_YEAR: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_HOUR_AND_MINUTE: Final = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"

# Only dates that exist match, so the published schema refuses what the service refuses. There is no leap second.
PATTERN: Final = (
    f"^(?:{_YEAR}-{_MONTH_AND_DAY}|{_LEAP_YEAR}-02-29)"
    rf"T{_HOUR_AND_MINUTE}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR_AND_MINUTE})$"
)
_INSTANT: Final = re.compile(PATTERN)
_SECONDS_A_DAY: Final = 86_400


def nanoseconds(text: str) -> int:
    """Return the nanoseconds from the first day of the year 0 to an instant; equal instants give equal numbers.

    Raises:
        ValueError: The text is no instant of the form `YYYY-MM-DDThh:mm:ss(.d{1,9})?(Z|+-hh:mm)`.
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError("not an RFC 3339 instant")
    day = date(int(text[0:4]), int(text[5:7]), int(text[8:10])).toordinal()
    seconds = day * _SECONDS_A_DAY + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
    rest = text[19:]
    if rest.endswith("Z"):
        fraction = rest[1:-1]
    else:
        fraction = rest[1:-6]
        offset = int(rest[-5:-3]) * 3600 + int(rest[-2:]) * 60
        # What is written is local time: east of Greenwich the instant is earlier.
        seconds += -offset if rest[-6] == "+" else offset
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0"))


def written(seconds: float) -> str:
    """Return epoch seconds as an instant in UTC, cut to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
