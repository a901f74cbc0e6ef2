"""The reference: every document that does not depend on where the service runs, rendered from what runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from typing_extensions import TypedDict

from ranking_evaluate.contract import llms, runnable_cases
from ranking_evaluate.contract.document import (
    Wires,
    example_response,
    is_raised,
    path_of,
    price,
    service_document,
)
from ranking_evaluate.contract.errors import PROBLEMS, error_classes
from ranking_evaluate.contract.schema import Schema, input_schema
from ranking_evaluate.operations.operation import GENERAL_ERROR_CODES, Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION

FOLDER: Final = "reference/"
NOTICE: Final = "Written by `ranking-evaluate reference`; changes here are lost."


@cache
def render(wires: Wires) -> dict[str, bytes]:
    """Return the content of llms.txt and of every file under reference/, by its path."""
    pages = dict(_pages(wires))
    return {"llms.txt": llms.render(wires).encode(), **{f"{FOLDER}{path}": content for path, content in pages.items()}}


def _pages(wires: Wires) -> Iterator[tuple[str, bytes]]:
    yield "README.md", _index(wires).encode()
    yield "errors.md", _errors().encode()
    for operation in OPERATIONS:
        yield f"services/{operation.id}.json", _json(service_document(operation, wires))
        yield f"tools/{operation.id}.md", _tool(operation, wires).encode()
        yield f"examples/{operation.id}.json", _json(_example(operation))
    for client in llms.clients(wires):
        yield f"examples/{client.name}", client.source.encode()
    yield from runnable_cases.render().items()


class Listed(TypedDict):
    """One operation in the index, with where its contract, page and example are, and what sells it."""

    id: str
    contract: str
    tool: str
    example: str
    paths: dict[str, str]


def listed(wires: Wires) -> list[Listed]:
    """Return the index of the reference for programs."""
    return [
        {
            "id": operation.id,
            "contract": f"/reference/services/{operation.id}.json",
            "tool": f"/reference/tools/{operation.id}.md",
            "example": f"/reference/examples/{operation.id}.json",
            "paths": {wire.name: path_of(operation, wire.name) for wire in wires},
        }
        for operation in OPERATIONS
    ]


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _example(operation: Operation[Any]) -> dict[str, object]:
    return {
        "operation": operation.id,
        "version": VERSION,
        "input": dict(operation.example_input),
        "response": example_response(operation),
    }


def _index(wires: Wires) -> str:
    # Every link is from the root: the page is served under two paths.
    rows = [
        f"| {operation.name} | [{entry['id']}]({entry['tool']}) | [contract]({entry['contract']}) | "
        f"[example]({entry['example']}) |"
        for operation, entry in zip(OPERATIONS, listed(wires), strict=True)
    ]
    names = [*(f"examples/{client.name}" for client in llms.clients(wires)), *runnable_cases.render()]
    return _page(
        f"# Reference of release {VERSION}",
        NOTICE,
        "How to buy, from nothing: [/llms.txt](/llms.txt). Every route: [/openapi.json](/openapi.json). Every error "
        "code: [errors.md](/reference/errors.md). This index for programs: [/reference/services](/reference/services).",
        _table("| operation | page | service contract | worked example |", rows),
        f"Contracts also name as `related` what is not sold here: {', '.join(_sold_elsewhere())}. Two members of "
        "`releaseSnapshot` are this service's own: `sourceRegistrySha256`, the digest of its contracts, and "
        "`generatedAt`, the time of its release.",
        "Clients that pay, and cases to edit and to run:",
        _list(f"[{name}](/reference/{name})" for name in names),
    )


def _sold_elsewhere() -> list[str]:
    related = {name for operation in OPERATIONS for name in operation.related}
    return sorted(related - {operation.id for operation in OPERATIONS})


def _errors() -> str:
    parts = [
        "# Errors",
        NOTICE,
        (
            "Every refusal is an RFC 9457 problem (application/problem+json); its `type` points here, its `code` is "
            "the heading. `retryable` says whether the identical request may succeed later; it never speaks of a new "
            "payment."
        ),
    ]
    seen: set[int] = set()
    for found in sorted(error_classes(), key=lambda one: one.status):
        if found.status not in seen:
            seen.add(found.status)
            parts.append(f"## {found.status}")
        for code in found.codes:
            problem = PROBLEMS[code]
            retry = "The identical request may succeed later." if problem.retryable else "Not retryable as it is."
            # An anchor of its own, since renderers lower the case of those they make.
            parts.append(f'<a id="{code}"></a>\n\n### {code}\n\n{problem.title}. {retry}\n\n{problem.next_step}')
    return _page(*parts)


def _tool(operation: Operation[Any], wires: Wires) -> str:
    schema = input_schema(operation)
    response = example_response(operation)
    conventions = response["result"].get("conventions", [])
    paths = "\n".join(f"- {wire.name}: `POST {path_of(operation, wire.name)}`" for wire in wires)
    parts = [
        f"# {operation.name} (`{operation.id}`)",
        NOTICE,
        operation.description,
        f"Price: {price(operation)} for a successful answer; a refused input costs nothing.",
        paths,
        (
            "How to pay: [/llms.txt](/llms.txt). The whole contract with both schemas: "
            f"[/reference/services/{operation.id}.json](/reference/services/{operation.id}.json)."
        ),
        "## Use it to",
        _list(operation.intents),
        "## Do not use it to",
        _list(operation.when_not_to_use),
        "## Input",
        _table("| member | type | required | bounds |", list(_members("", schema))),
        "A member that is not listed is refused. Defaults are filled in before the input is hashed.",
        "## Limits",
        _table("| limit | value |", [f"| {name} | {value:,} |" for name, value in operation.limits.items()]),
    ]
    if conventions:
        parts += ["## Conventions", _list(conventions)]
    if operation.notes:
        parts += ["## Notes", *operation.notes]
    if runnable := [path for path in runnable_cases.render() if operation.id in path]:
        parts += ["## Cases to edit and to run", _list(f"[/reference/{path}](/reference/{path})" for path in runnable)]
    parts += [
        "## Errors",
        _declared(operation),
        "## Example",
        "Input:",
        _code(operation.example_input),
        "Answer:",
        _code(response),
    ]
    return _page(*parts)


def _declared(operation: Operation[Any]) -> str:
    raised = [code for code in operation.error_codes if is_raised(code)]
    silent = [code for code in operation.error_codes if not is_raised(code)]
    general = [code for code in GENERAL_ERROR_CODES if code not in operation.error_codes]
    lines = [f"[{code}](/reference/errors.md#{code}): {PROBLEMS[code].title}." for code in (*general, *raised)]
    if silent:
        lines.append(f"Declared, and not raised by this operation: {', '.join(silent)}.")
    return _list(lines)


def _members(path: str, schema: Schema) -> Iterator[str]:
    """Yield a table row for each member, those of objects and of arrays' items below it."""
    for name, member in schema.get("properties", {}).items():
        here = f"{path}{name}"
        required = "yes" if name in schema.get("required", ()) else "no"
        yield f"| `{here}` | {_type(member)} | {required} | {_bounds(member)} |"
        yield from _members(f"{here}.", member)
        if "items" in member:
            yield from _members(f"{here}[].", member["items"])


def _type(schema: Schema) -> str:
    kind = schema.get("type", "any")
    kinds = [kind] if isinstance(kind, str) else kind
    written = [f"array of {_type(schema['items'])}" if one == "array" and "items" in schema else one for one in kinds]
    return " or ".join(written)


_BOUNDS: Final = {
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "distinct items",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "format": "{}",
}


def _bounds(schema: Schema) -> str:
    words = [text.format(schema[keyword]) for keyword, text in _BOUNDS.items() if keyword in schema]
    if "pattern" in schema and "format" not in schema:
        words.append(f"matches `{schema['pattern']}`")
    if "enum" in schema:
        words.append("one of " + ", ".join(f"`{value}`" for value in schema["enum"]))
    if "const" in schema:
        words.append(f"`{schema['const']}`")
    if "default" in schema:
        words.append(f"default `{json.dumps(schema['default'])}`")
    if "items" in schema and (inner := _bounds(schema["items"])):
        words.append(f"each {inner}")
    return ", ".join(words)


def _page(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(header: str, rows: list[str]) -> str:
    return "\n".join([header, "|" + " - |" * (header.count("|") - 1), *rows])


def _code(value: object) -> str:
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"
