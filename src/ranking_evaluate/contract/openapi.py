"""What the contract says in OpenAPI: the service, the paid routes with schemas and prices, and every error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.document import Wires, example_response, path_of, price
from ranking_evaluate.contract.errors import PROBLEMS, error_classes
from ranking_evaluate.contract.idempotency import KEY_PATTERN
from ranking_evaluate.contract.replay import REPLAY_HOURS
from ranking_evaluate.contract.schema import DIALECT, Schema, answer_schema, input_schema
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.operations.operation import MAXIMUM_VIOLATIONS, Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION

PaymentInfo = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}


def render(
    origin: str,
    wires: Wires,
    payments: Mapping[str, Mapping[str, PaymentInfo]],
    contact: str | None,
    free: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the description of every route.

    Args:
        origin: The public origin.
        wires: Every protocol that has routes; those without payments are left out.
        payments: By protocol that is taken and by operation, its x-payment-info.
        contact: A mailto: or https: address.
        free: The description of the free routes, as the framework generates it.
    """
    generated = free["components"]["schemas"]
    taken = tuple(wire for wire in wires if wire.name in payments)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": "ranking-evaluate",
            "version": VERSION,
            "summary": "Scores ranked document ids against supplied relevance judgments, paid per call.",
            "description": (
                "Deterministic evaluation of rankings. A refused input costs nothing; a paid answer is replayed for 24 "
                "hours to the identical request. /llms.txt says how to pay."
            ),
            "x-guidance": (
                "POST an input with a fresh Idempotency-Key and answer the 402 with the protocol's official SDK. After "
                "anything but a 402 resend the identical request, and never pay anew. See /llms.txt."
            ),
            **({"contact": _contact(contact)} if contact else {}),
        },
        "servers": [{"url": origin}],
        "x-service-info": {
            "categories": sorted({operation.category for operation in OPERATIONS}),
            "docs": {
                "homepage": f"{origin}/",
                "apiReference": f"{origin}/reference",
                "llms": f"{origin}/llms.txt",
            },
        },
        "x-agentcash-guidance": {"llmsTxtUrl": f"{origin}/llms.txt"},
        "paths": {**_paid_paths(origin, taken, payments), **_free_paths(free["paths"])},
        "components": {
            "schemas": {
                "problem": problem_schema(),
                **{f"problem-{status}": problem_schema(status) for status in _statuses()},
                **{f"{operation.id}-input": _embedded(input_schema(operation)) for operation in OPERATIONS},
                **{f"{operation.id}-answer": _embedded(answer_schema(operation)) for operation in OPERATIONS},
                **{name: generated[name] for name in generated if name not in _UNUSED},
            },
            "responses": {
                **{str(status): _refusal(status) for status in _statuses()},
                **{_refusal_name(402, wire): _refusal(402, wire) for wire in taken},
            },
            "headers": {"X-Request-Id": {"schema": _TEXT, "description": "Names this answer in the operator's logs."}},
        },
    }


def problem_schema(status: int | None = None) -> Schema:
    """Return the schema of every refusal, or of those of one status; a 402 adds the members of its protocol."""
    codes = _codes(status)
    schema: Schema = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": _TEXT,
            "status": {"type": "integer"} if status is None else {"const": status},
            "detail": _TEXT,
            "code": {"enum": codes},
            "pointer": _TEXT,
            "violations": {
                "type": "array",
                "maxItems": MAXIMUM_VIOLATIONS,
                "items": {
                    "type": "object",
                    "properties": {"pointer": _TEXT, "detail": _TEXT},
                    "required": ["pointer", "detail"],
                    "additionalProperties": False,
                },
            },
            "cause": _TEXT,
            "retryable": {"type": "boolean"},
            "retryAfter": {"type": ["integer", "null"], "minimum": 0},
            "nextStep": {"enum": sorted({PROBLEMS[code].next_step for code in codes})},
            "requestId": _TEXT,
        },
        "required": [
            *("type", "title", "status", "detail", "code"),
            *("retryable", "retryAfter", "nextStep", "requestId"),
        ],
    }
    return schema if status in (None, 402) else {**schema, "additionalProperties": False}


def _codes(status: int | None) -> list[str]:
    return [code for found in error_classes() if status in (None, found.status) for code in found.codes]


def _statuses() -> list[int]:
    return sorted({found.status for found in error_classes()})


def _embedded(schema: Schema) -> Schema:
    """Return a schema for use within this document, whose dialect is stated once."""
    members = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    if "result" in members.get("properties", {}):
        members["properties"] = {**members["properties"], "result": _embedded(members["properties"]["result"])}
    return members


def _contact(contact: str) -> dict[str, str]:
    return {"email": contact.removeprefix("mailto:")} if contact.startswith("mailto:") else {"url": contact}


def _paid_paths(origin: str, wires: Wires, payments: Mapping[str, Mapping[str, PaymentInfo]]) -> dict[str, Any]:
    return {
        path_of(operation, wire.name): _paid_path(origin, wire, operation, payments[wire.name][operation.id])
        for operation in OPERATIONS
        for wire in wires
    }


def _paid_path(origin: str, wire: Wire, operation: Operation[Any], payment: PaymentInfo) -> dict[str, Any]:
    receipt = {wire.receipt_header: _header("Evidence of the settlement.")}
    answer = {
        "description": (f"The answer, paid; the identical request gets the same bytes again for {REPLAY_HOURS} hours."),
        "headers": _headers(
            receipt, {"Idempotent-Replayed": {"schema": {"const": "true"}, "description": "Only on a replay."}}
        ),
        "content": {
            "application/json": {
                "schema": {"$ref": f"#/components/schemas/{operation.id}-answer"},
                "example": example_response(operation),
            }
        },
    }
    terms = {
        "summary": f"Terms of {operation.id} over {wire.name}",
        "description": "For discovery, always 402: buy with POST. A credential is refused with 405.",
        "security": [],
        # With its price, or indexers would list it as free.
        "x-payment-info": payment,
        "responses": _refusals(wire, 400, 402, 405, 429, 500, 503),
    }
    return {
        "post": {
            "operationId": f"{operation.id}-{wire.name}",
            "summary": operation.name,
            "description": f"{operation.description} {price(operation)} over {wire.name}.",
            "tags": [operation.id],
            "security": [],
            "externalDocs": {"url": f"{origin}/reference/tools/{operation.id}.md"},
            "x-payment-info": payment,
            "parameters": [
                key_parameter("Names this purchase, in every resend of it; random, and never the example."),
                *_credential_parameters(wire.credential_header),
            ],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"$ref": f"#/components/schemas/{operation.id}-input"},
                        "example": operation.example_input,
                    }
                },
            },
            "responses": {"200": answer, **_refusals(wire, 400, 402, 408, 409, 413, 415, 422, 429, 500, 503)},
        },
        "get": {"operationId": f"{operation.id}-{wire.name}-terms", **terms},
    }


def key_parameter(description: str) -> dict[str, Any]:
    """Return the Idempotency-Key as a parameter."""
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "description": description,
        "schema": {"type": "string", "pattern": KEY_PATTERN},
        "example": DISCOVERY_KEY,
    }


def _credential_parameters(header: str) -> Iterator[dict[str, Any]]:
    """Yield the credential's header; OpenAPI does not allow Authorization among the parameters."""
    if header != "Authorization":
        yield {
            "name": header,
            "in": "header",
            "required": False,
            "description": "The credential, as the protocol's official SDK writes it; absent to get the terms.",
            "schema": _TEXT,
        }


def _header(description: str) -> dict[str, Any]:
    return {"schema": _TEXT, "description": description}


def _headers(*more: Mapping[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    for given in more:
        headers |= given
    return headers


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problem responses of a free route."""
    return {status: {"$ref": f"#/components/responses/{status}"} for status in statuses}


def _refusals(wire: Wire, *statuses: int) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/{_refusal_name(status, wire)}"} for status in statuses}


def _refusal_name(status: int, wire: Wire) -> str:
    return f"{status}-{wire.name}" if status == 402 else str(status)


def _refusal(status: int, wire: Wire | None = None) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if status in (429, 503):
        more["Retry-After"] = {
            "schema": {"type": "integer", "minimum": 0},
            "description": "Seconds to wait before the identical request.",
        }
    if status == 402 and wire is not None:
        more[wire.challenge_header] = _header("The terms, for the protocol's official SDK.")
    if status == 405:
        more["Allow"] = _header("The methods that are served here.")
    return {
        "description": "; ".join(f"{code}: {PROBLEMS[code].title}" for code in _codes(status)),
        "headers": _headers(more),
        "content": {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/problem-{status}"}}},
    }


# No typed parameter of a free route can be refused, so the framework's answer for that never comes.
_UNUSED: Final = frozenset({"HTTPValidationError", "ValidationError"})


def _free_paths(paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generated paths with what holds for every route: no sign-in, and a request id on each answer."""
    return {
        path: {
            method: {**operation, "security": [], "responses": _responses(operation["responses"])}
            for method, operation in methods.items()
        }
        for path, methods in paths.items()
    }


def _responses(generated: Mapping[str, Any]) -> dict[str, Any]:
    return {
        status: {"$ref": response["$ref"]} if "$ref" in response else {**response, "headers": _headers()}
        for status, response in generated.items()
        if "HTTPValidationError" not in str(response)
    }
