"""What the input types of several operations are made of."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ranking_evaluate.core import instants

# Nothing is converted, and no member is ignored.
STRICT: Final = ConfigDict(strict=True, extra="forbid")


def _instant(text: str) -> str:
    try:
        instants.nanoseconds(text)
    except ValueError:
        raise PydanticCustomError(
            "instant", "This must be an RFC 3339 instant that exists, such as 2026-01-01T00:00:00Z"
        ) from None
    return text


# Lengths count code points; nothing is trimmed, folded or normalised.
Id = Annotated[str, Field(min_length=1, max_length=80)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Gain = Annotated[int, Field(ge=0, le=4)]
Instant = Annotated[
    str, Field(json_schema_extra={"format": "date-time", "pattern": instants.PATTERN}), AfterValidator(_instant)
]
