"""The OpenAPI description of every route: the schemas as enforced, prices, and every error that a route can answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ranking_evaluate.contract.discovery import DISCOVERY_KEY
from ranking_evaluate.contract.document import PROTOCOLS, WORKFLOW, example_response, path_of, price
from ranking_evaluate.contract.errors import PROBLEMS, error_classes
from ranking_evaluate.contract.requirements import NOTICE, REQUIREMENTS
from ranking_evaluate.contract.schema import DIALECT, Schema, answer_schema, input_schema
from ranking_evaluate.operations.operation import MAXIMUM_VIOLATIONS, Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import VERSION

KEY_PATTERN: Final = "^[A-Za-z0-9_-]{16,128}$"

PaymentInfo = Mapping[str, Any]

# What a route can answer besides its own; every route that counts requests can answer the last two.
_PAID: Final = (400, 402, 408, 409, 413, 415, 422, 429, 500, 503)
_READS_A_BODY: Final = (400, 408, 413, 415, 422, 429, 500, 503)

_TEXT: Final[Schema] = {"type": "string"}
_NULLABLE: Final[Schema] = {"type": ["string", "null"]}
_BOOLEAN: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def render(origin: str, payments: Mapping[str, Mapping[str, PaymentInfo]], contact: str | None) -> dict[str, Any]:
    """Return the whole description.

    Args:
        origin: The public origin.
        payments: By protocol that is taken and by operation, its x-payment-info.
        contact: A mailto: or https: address.
    """
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
            "docs": {"homepage": "/", "apiReference": "/reference/", "llms": "/llms.txt"},
        },
        "x-agentcash-guidance": {"llmsTxtUrl": f"{origin}/llms.txt"},
        "paths": {**_paid_paths(payments), **_free_paths()},
        "components": {
            "schemas": {
                "problem": problem_schema(),
                **{f"problem-{status}": problem_schema(status) for status in _statuses()},
                **{f"{operation.id}-input": _embedded(input_schema(operation)) for operation in OPERATIONS},
                **{f"{operation.id}-answer": _embedded(answer_schema(operation)) for operation in OPERATIONS},
            },
            "responses": {
                **{str(status): _refusal(status) for status in _statuses()},
                **{
                    _refusal_name(402, protocol): _refusal(402, protocol)
                    for protocol in PROTOCOLS
                    if protocol in payments
                },
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
            "retryable": _BOOLEAN,
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


def _paid_paths(payments: Mapping[str, Mapping[str, PaymentInfo]]) -> dict[str, Any]:
    return {
        path_of(operation, protocol): _paid_path(protocol, operation, payments[protocol][operation.id])
        for operation in OPERATIONS
        for protocol in PROTOCOLS
        if protocol in payments
    }


def _paid_path(protocol: str, operation: Operation[Any], payment: PaymentInfo) -> dict[str, Any]:
    flow = WORKFLOW[protocol]
    receipt = {flow["receiptHeader"]: _header("Evidence of the settlement.")}
    answer = {
        "description": "The answer, paid; the identical request gets the same bytes again for 24 hours.",
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
        "summary": f"Terms of {operation.id} over {protocol}",
        "description": "Stateless, for discovery; a credential is refused with 405. Buy with POST.",
        "security": [],
        "responses": _refusals((400, 402, 405, 429, 500, 503), protocol),
    }
    return {
        "post": {
            "operationId": f"{operation.id}-{protocol}",
            "summary": operation.name,
            "description": f"{operation.description} {price(operation)} over {protocol}.",
            "tags": [operation.id],
            "security": [],
            "externalDocs": {"url": f"/reference/tools/{operation.id}.md"},
            "x-payment-info": payment,
            "parameters": [
                _key_parameter("Names this purchase, in every resend of it; random, and never the example."),
                *_credential_parameters(flow["credentialHeader"]),
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
            "responses": {"200": answer, **_refusals(_PAID, protocol)},
        },
        "get": {"operationId": f"{operation.id}-{protocol}-terms", **terms},
    }


def _key_parameter(description: str) -> dict[str, Any]:
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


def _refusals(statuses: tuple[int, ...], protocol: str | None = None) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/{_refusal_name(status, protocol)}"} for status in statuses}


def _refusal_name(status: int, protocol: str | None) -> str:
    return f"{status}-{protocol}" if status == 402 and protocol is not None else str(status)


def _refusal(status: int, protocol: str | None = None) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if status in (429, 503):
        more["Retry-After"] = {"schema": _COUNT, "description": "Seconds to wait before the identical request."}
    if status == 402 and protocol is not None:
        more[WORKFLOW[protocol]["challengeHeader"]] = _header("The terms, for the protocol's official SDK.")
    if status == 405:
        more["Allow"] = _header("The methods that are served here.")
    return {
        "description": "; ".join(f"{code}: {PROBLEMS[code].title}" for code in _codes(status)),
        "headers": _headers(more),
        "content": {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/problem-{status}"}}},
    }


# The free routes.


def _free_paths() -> dict[str, Any]:
    return {
        "/preflight": {
            "get": _free("Declared facts of every operation", _ok("application/json", _DECLARATION), (429, 500, 503)),
            "post": {
                **_free(
                    "Compare requirements with declared facts, or check an input",
                    {
                        **_ok("application/json", {"anyOf": [_COMPARISON, {"type": "array", "items": _COMPARISON}]}),
                        "204": {"description": "The paid route would evaluate this input.", "headers": _headers()},
                    },
                    (*_READS_A_BODY, 404),
                ),
                "description": (
                    f"{NOTICE} With validate, the body is an input of that operation: 204, or the refusal that the "
                    "paid route would give; never a score."
                ),
                "parameters": [
                    {
                        "name": "validate",
                        "in": "query",
                        "required": False,
                        "description": "The operation whose input the body is.",
                        "schema": {"enum": [operation.id for operation in OPERATIONS]},
                    }
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"type": "object"}, "example": _QUESTION_EXAMPLE}},
                },
            },
        },
        "/v1/attempts": {
            "get": {
                **_free(
                    "Where the purchase under a key stands",
                    _ok("application/json", _ATTEMPT),
                    (400, 404, 429, 500, 503),
                ),
                "parameters": [_key_parameter("The key of the purchase.")],
            }
        },
        "/healthz": {"get": _free("Whether the process lives", _ok("application/json", _ALIVE), (500,))},
        "/readyz": {
            "get": _free(
                "Whether the service can sell, and why not",
                {
                    **_ok("application/json", _READINESS),
                    "503": {
                        "description": "It cannot sell at the moment; what is free stays up.",
                        "headers": _headers(),
                        "content": {"application/json": {"schema": _READINESS}},
                    },
                },
                (500,),
            )
        },
        "/": {"get": _free("The home page, for people", _ok("text/html", _TEXT), (429, 500, 503))},
        "/reference/": {"get": _free("The index of the reference", _ok("text/markdown", _TEXT), (429, 500, 503))},
        "/llms.txt": {"get": _free("How to buy, for agents", _ok("text/plain", _TEXT), (429, 500, 503))},
        "/openapi.json": {
            "get": _free("This description", _ok("application/json", {"type": "object"}), (429, 500, 503))
        },
        "/.well-known/x402": {
            "get": _free("What is sold over x402", _ok("application/json", _WELL_KNOWN), (429, 500, 503)),
        },
        "/.well-known/security.txt": {
            "get": _free("Whom to tell about a vulnerability", _ok("text/plain", _TEXT), (404, 429, 500, 503)),
        },
    }


def _free(summary: str, responses: Mapping[str, Any], refusals: tuple[int, ...]) -> dict[str, Any]:
    return {
        "summary": summary,
        "security": [],
        "responses": {**_refusals(refusals), **responses},
    }


def _ok(media_type: str, schema: Schema) -> dict[str, Any]:
    return {"200": {"description": "OK", "headers": _headers(), "content": {media_type: {"schema": schema}}}}


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


_ANY_SCALAR: Final[Schema] = {"type": ["boolean", "number", "string", "null"]}
_STATUS: Final[Schema] = {"enum": ["compatible", "incompatible", "unknown"]}
_QUESTION_EXAMPLE: Final = {
    "operation": OPERATIONS[0].id,
    "requirements": {"execution.deterministic": True, "limit.requestBytes": 50_000},
}
_DECLARATION: Final = _object(
    {
        "operations": {
            "type": "array",
            "items": _object(
                {"operation": _TEXT, "facts": {"type": "object", "additionalProperties": _ANY_SCALAR}},
            ),
        },
        "notice": _TEXT,
    }
)
_COMPARISON: Final = _object(
    {
        "operation": _TEXT,
        "requirements": {
            "type": "object",
            "maxProperties": REQUIREMENTS,
            "additionalProperties": _object({"required": {}, "declared": _ANY_SCALAR, "status": _STATUS}),
        },
        "overall": _STATUS,
        "notice": _TEXT,
    }
)
_ATTEMPT: Final = _object(
    {
        "protocol": _NULLABLE,
        "operation": _NULLABLE,
        "state": {"enum": ["reserved", "settling", "settled", "uncertain", "failed", "released"]},
        "amount": _NULLABLE,
        "asset": _NULLABLE,
        "network": _NULLABLE,
        "transaction": _NULLABLE,
        "reportedTransaction": _NULLABLE,
        "reason": _NULLABLE,
        "receipt": _NULLABLE,
        "outputSha256": _NULLABLE,
        "createdAt": _NULLABLE,
        "expiresAt": _NULLABLE,
        "nextStep": _TEXT,
    }
)
_ALIVE: Final = _object({"alive": _BOOLEAN, "release": _TEXT})
_RAIL: Final = _object(
    {
        "configured": _BOOLEAN,
        "ready": _BOOLEAN,
        "reason": _NULLABLE,
        "network": _NULLABLE,
        "testnet": {"type": ["boolean", "null"]},
    }
)
_READINESS: Final = _object(
    {
        "ready": _BOOLEAN,
        "release": _TEXT,
        "store": _object({"ready": _BOOLEAN, "reason": _NULLABLE}),
        "rails": {"type": "object", "additionalProperties": _RAIL},
    }
)
_WELL_KNOWN: Final = _object(
    {
        "x402Version": {"const": WORKFLOW["x402"]["version"]},
        "resources": {
            "type": "array",
            "items": _object(
                {
                    "resource": {"type": "string", "format": "uri"},
                    "type": {"const": "http"},
                    "method": {"const": "POST"},
                    "description": _TEXT,
                    "mimeType": _TEXT,
                    "accepts": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                    "serviceContract": {"type": "string", "format": "uri"},
                }
            ),
        },
    }
)
