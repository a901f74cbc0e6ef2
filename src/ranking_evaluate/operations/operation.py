"""What an operation is, and how a body becomes its result: read, check, fill in defaults, evaluate, hash."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from ranking_evaluate.core import canonical, intake, json_text
from ranking_evaluate.core.errors import ErrorCode, OperationError, Violation, json_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from ranking_evaluate.core.canonical import JsonValue

Input = TypeVar("Input")

RESULT_BYTES: Final = 400_000
MAXIMUM_VIOLATIONS: Final = 20

# Beyond this many places one sentence stands for them all.
MANY_VIOLATIONS: Final = 500

# Up to this size an invalid input is told every place; of a larger one each array is left at its first broken item.
EXPLAINED_BYTES: Final = 4_096

# The limits of every operation, under their names on the wire.
GENERAL_LIMITS: Final[Mapping[str, int]] = {
    "inputBytes": intake.CANONICAL_BYTES,
    "outputBytes": RESULT_BYTES,
    "jsonNodes": json_text.VALUES,
    "depth": json_text.DEPTH,
}

# The codes that every operation can answer with.
GENERAL_ERROR_CODES: Final[tuple[str, ...]] = (
    ErrorCode.MALFORMED_JSON,
    ErrorCode.INPUT_LIMIT,
    ErrorCode.OUTPUT_LIMIT,
    ErrorCode.COMPLEXITY_LIMIT,
    ErrorCode.UNSAFE_KEY,
    ErrorCode.INVALID_NUMBER,
    ErrorCode.INVALID_UNICODE,
    ErrorCode.DUPLICATE_FIELD,
    ErrorCode.INVALID_INPUT,
)

# pydantic speaks of Python; the caller wrote JSON.
_IN_WORDS_OF_JSON: Final = {
    "missing": "This member is required",
    "extra_forbidden": "No member of this name is accepted here",
    "dict_type": "This must be an object",
    "list_type": "This must be an array",
}


class Evaluation(NamedTuple):
    """The result of one input as it goes on the wire, and the digest of that input with its defaults."""

    input_sha256: str
    result: bytes


# Compared by identity, so that what is made of an operation can be kept by it.
@dataclass(frozen=True, kw_only=True, eq=False)
class Operation(Generic[Input]):
    """One thing that the service evaluates: its schema, its rules and what the reference says about it.

    Args:
        id: Its name on the wire and in paths.
        name: Its title.
        description: What it does, in a few sentences.
        category: The catalogue's category.
        input_type: A TypedDict that is strict and forbids unknown members; the published input schema is made from it,
            and the defaults that its fields declare are filled in before the input is hashed.
        evaluate: Takes the checked input with defaults and returns the result, members in their declared order and
            floats through `canonical.number`; raises OperationError for what the schema cannot say.
        result_type: A TypedDict of what `evaluate` returns; the published result schema is made from it.
        example_input: A complete input that the reference shows together with its result.
        short_input: An input of few bytes, which a challenge announces where the example does not fit into its header;
            None for an operation whose example is short.
        intents: What a caller who needs this operation would ask for.
        when_not_to_use: What it does not do.
        capabilities: What it offers, in a few words each.
        related: Ids of operations of the same family.
        limits: Every limit under its name on the wire; start from `GENERAL_LIMITS`.
        counts: What a limit counts, where its name does not say it, in half a sentence for the tool page.
        error_codes: The codes that the contract declares; start from `GENERAL_ERROR_CODES`.
        notes: What else the tool page says, a paragraph each.
        precheck: Looks at the input object before the schema does, for codes that the schema would hide.
        contradictions: Yields where members of a valid input do not go together, which the schema cannot say.
        price_base_units: The price of one successful call, in millionths of the token.
        inline_bytes: Up to this size a body is evaluated within 2 ms whatever it holds (docs/performance.md), so the
            service does so on its event loop; 0 sends every body to a worker process.
    """

    id: str
    name: str
    description: str
    category: str
    input_type: type[Input]
    evaluate: Callable[[Input], Mapping[str, object]]
    result_type: type[object]
    example_input: Mapping[str, JsonValue]
    intents: tuple[str, ...]
    when_not_to_use: tuple[str, ...]
    capabilities: tuple[str, ...]
    related: tuple[str, ...]
    limits: Mapping[str, int]
    error_codes: tuple[str, ...]
    counts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    short_input: Mapping[str, JsonValue] | None = None
    precheck: Callable[[Mapping[str, JsonValue]], None] | None = None
    contradictions: Callable[[Input], Iterable[Violation]] | None = None
    price_base_units: int = 10_000
    inline_bytes: int = 0

    def run(self, body: bytes) -> Evaluation:
        """Return the result of a request body; what it refuses, it refuses with OperationError."""
        accepted = self.read(body)
        result = canonical.dump(self.evaluate(accepted))
        if len(result) > RESULT_BYTES:
            raise OperationError(
                ErrorCode.OUTPUT_LIMIT,
                f"The result would be larger than {RESULT_BYTES:,} bytes; send fewer queries or a smaller k.",
            )
        return Evaluation(_digest(accepted), result)

    def read(self, body: bytes) -> Input:
        """Return a request body as the operation's input, defaults filled in; else OperationError says what is wrong.

        No schema allows for depth or unsafe names. They are looked for, and told, only where the schema refuses a body:
        looking first, the free path takes 12 % longer at the typical size.
        """
        value = intake.parse(body)
        try:
            return self.accept(value)
        except OperationError:
            intake.refuse_shape(body, value)
            raise

    def accept(self, value: JsonValue) -> Input:
        """Return a JSON value that `intake.read` returned as the operation's input, defaults filled in.

        Raises:
            OperationError: INVALID_INPUT with the broken places, or a code of the precheck.
        """
        if self.precheck is not None and isinstance(value, dict):
            self.precheck(value)
        completed = {**self.defaults, **value} if isinstance(value, dict) else value
        check(self.adapter, completed)
        accepted = cast("Input", completed)
        if self.contradictions is not None and (violations := list(self.contradictions(accepted))):
            raise _invalid_input(violations, len(violations))
        return accepted

    def input_sha256(self, value: JsonValue) -> str:
        """Return the digest of a JSON value that `accept` would return as an input; that it is one is checked."""
        return _digest(self.accept(value))

    @cached_property
    def adapter(self) -> TypeAdapter[Input]:
        """The checker of inputs, and the source of the published input schema."""
        return TypeAdapter(self.input_type)

    @cached_property
    def defaults(self) -> Mapping[str, JsonValue]:
        """The values of absent members of the input, as the schema publishes them."""
        properties: dict[str, dict[str, Any]] = self.adapter.json_schema()["properties"]
        return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def _digest(accepted: object) -> str:
    """Return the digest of an input with its defaults."""
    return canonical.sha256(canonical.encode(cast("JsonValue", accepted)))


def check(adapter: TypeAdapter[Any], value: JsonValue) -> None:
    """Raise INVALID_INPUT where a JSON value breaks its schema."""
    try:
        # A check only: pydantic's copy would turn the integer grades into floats.
        _fail_fast(adapter).validate_python(value)
    except ValidationError as error:
        raise _broken(adapter, value, error) from None


def _broken(adapter: TypeAdapter[Any], value: JsonValue, first: ValidationError) -> OperationError:
    """Return the refusal of a value, with every broken place of a small one and the first ones of a large one."""
    if first.error_count() > MANY_VIOLATIONS:
        # Arrays are left at their first broken item, so an object has members by the hundred: each a place to name.
        swarm = Violation("", "An object has hundreds of members that are not accepted here.")
        return _invalid_input([swarm], first.error_count())
    if len(canonical.dump(value)) > EXPLAINED_BYTES:
        return _invalid_input(_violations(first), first.error_count(), at_least="at least ")
    try:
        adapter.validate_python(value)
    except ValidationError as every:
        return _invalid_input(_violations(every), every.error_count())
    raise AssertionError("a check that leaves arrays early found what the whole check did not")


@cache
def _fail_fast(adapter: TypeAdapter[Any]) -> SchemaValidator:
    """Return the same check, leaving each array at its first broken item.

    Where a large input is broken everywhere, finding every place takes longer than evaluating a good one.
    """
    return SchemaValidator(_with_fail_fast(adapter.core_schema))


def _with_fail_fast(schema: Any) -> Any:  # noqa: ANN401 - pydantic's schemas are nested dictionaries of many shapes.
    """Return a pydantic core schema in which arrays fail at their first broken item."""
    if isinstance(schema, dict):
        changed = {name: _with_fail_fast(member) for name, member in schema.items()}
        return {**changed, "fail_fast": True} if schema.get("type") == "list" else changed
    if isinstance(schema, list):
        return [_with_fail_fast(item) for item in schema]
    return schema


def _invalid_input(violations: Sequence[Violation], count: int, at_least: str = "") -> OperationError:
    places = f"{at_least}{'1 place' if count == 1 else f'{count:,} places'}"
    return OperationError(
        ErrorCode.INVALID_INPUT,
        f"The input breaks its schema in {places}. {violations[0].detail}",
        violations[0].pointer,
        tuple(violations[:MAXIMUM_VIOLATIONS]),
    )


def _violations(error: ValidationError) -> list[Violation]:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return [_violation(detail) for detail in details[:MAXIMUM_VIOLATIONS]]


def _violation(error: ErrorDetails) -> Violation:
    # Messages name what the schema wants and never what was sent (a tagged union's would: none is used here).
    return Violation(json_pointer(error["loc"]), f"{_IN_WORDS_OF_JSON.get(error['type'], error['msg'])}.")
