"""Whether an operation's declared facts meet a caller's requirements: what is not declared is unknown, never met."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, cast

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from ranking_evaluate.contract.document import Wires, facts
from ranking_evaluate.core import intake
from ranking_evaluate.core.canonical import JsonValue
from ranking_evaluate.core.errors import ErrorCode, OperationError
from ranking_evaluate.operations.fields import STRICT, Id
from ranking_evaluate.operations.operation import Operation, check
from ranking_evaluate.operations.registry import OPERATIONS, find

Status: TypeAlias = Literal["compatible", "incompatible", "unknown"]
Fact: TypeAlias = bool | int | float | str

NOTICE: Final = (
    "Declared facts were compared with the requirements, and nothing else: no semantic fit and no input validity is "
    "established. A requirement without a declared fact is unknown, never compatible."
)

REQUIREMENTS: Final = 100

# The declared value must be at least, or at most, the required one; every other fact must be equal to it.
_AT_LEAST: Final = (".maximum", ".maxItems")
_AT_MOST: Final = (".minimum", ".minItems")


@with_config(STRICT)
class Question(TypedDict):
    """What a caller requires, of one operation or of each."""

    operation: NotRequired[Id]
    requirements: Annotated[
        # Whatever is required: what is no scalar equals no fact.
        dict[Annotated[str, Field(min_length=1, max_length=200)], Any],
        Field(max_length=REQUIREMENTS),
    ]


QUESTION: Final = TypeAdapter(Question)


@with_config(STRICT)
class Compared(TypedDict):
    """One requirement, with what is declared and how they compare."""

    required: Any
    declared: Fact | None
    status: Status


@with_config(STRICT)
class Comparison(TypedDict):
    """How an operation's declared facts meet the requirements."""

    operation: str
    requirements: Annotated[dict[str, Compared], Field(max_length=REQUIREMENTS)]
    overall: Status
    notice: str


@with_config(STRICT)
class Facts(TypedDict):
    """The declared facts of one operation."""

    operation: str
    facts: dict[str, Fact]


@with_config(STRICT)
class Declaration(TypedDict):
    """The declared facts of every operation."""

    operations: list[Facts]
    notice: str


def answer(body: bytes, wires: Wires, taken: Collection[str] | None = None) -> Comparison | list[Comparison]:
    """Return how the requirements in a body compare with the facts of one operation, or of each if it names none.

    Args:
        body: The question, as JSON.
        wires: The protocols that are declared.
        taken: Those of them that a running service takes.

    Raises:
        OperationError: It is no question, or no operation has the id that it names.
    """
    value = intake.read(body)
    check(QUESTION, value)
    question = cast("Question", value)
    if "operation" not in question:
        return [compare(operation, question["requirements"], wires, taken) for operation in OPERATIONS]
    try:
        operation = find(question["operation"])
    except ValueError as error:
        raise OperationError(ErrorCode.INVALID_INPUT, "No operation has this id.", "/operation") from error
    return compare(operation, question["requirements"], wires, taken)


def compare(
    operation: Operation[Any],
    requirements: Mapping[str, JsonValue],
    wires: Wires,
    taken: Collection[str] | None = None,
) -> Comparison:
    """Return each requirement with what is declared and how they compare, and whether all of them are met."""
    declared = facts(operation, wires, taken)
    compared = {
        fact: Compared(
            required=required, declared=declared.get(fact), status=_status(fact, required, declared.get(fact))
        )
        for fact, required in requirements.items()
    }
    return {
        "operation": operation.id,
        "requirements": compared,
        "overall": _overall([one["status"] for one in compared.values()]),
        "notice": NOTICE,
    }


def declaration(wires: Wires, taken: Collection[str] | None = None) -> Declaration:
    """Return the declared facts of every operation; `taken` are the protocols that a running service takes."""
    return {
        "operations": [
            {"operation": operation.id, "facts": facts(operation, wires, taken)} for operation in OPERATIONS
        ],
        "notice": NOTICE,
    }


def _status(fact: str, required: JsonValue, declared: Fact | None) -> Status:
    if declared is None:
        return "unknown"
    if fact.startswith("limit.") or fact.endswith(_AT_LEAST):
        met = _are_numbers(required, declared) and declared >= required  # type: ignore[operator]
    elif fact.endswith(_AT_MOST):
        met = _are_numbers(required, declared) and declared <= required  # type: ignore[operator]
    else:
        # True equals 1 in Python and not in JSON.
        met = isinstance(required, bool) == isinstance(declared, bool) and required == declared
    return "compatible" if met else "incompatible"


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _overall(statuses: list[Status]) -> Status:
    if "incompatible" in statuses:
        return "incompatible"
    return "unknown" if "unknown" in statuses else "compatible"
