"""What the input types of several operations are made of."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from ranking_evaluate.core import instants, metrics

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

# Supplied rankings and their judgments, and the conventions by which they are scored.
QUERIES: Final = 50
RETRIEVED: Final = 100
JUDGMENTS: Final = 100


@with_config(STRICT)
class Judgment(TypedDict):
    """How relevant one document is to the query."""

    id: Id
    grade: Annotated[float, Field(ge=0, le=10)]


Ranking = Annotated[list[Id], Field(max_length=RETRIEVED)]
Judgments = Annotated[list[Judgment], Field(max_length=JUDGMENTS)]
K = Annotated[int, Field(ge=1, le=metrics.MAXIMUM_K, default=10)]
RelevantAtLeast = Annotated[float, Field(gt=0, le=10, default=1)]
GainFunction = Annotated[metrics.GainFunction, Field(default="linear")]
Unjudged = Annotated[Literal["error", "nonrelevant"], Field(default="error")]
