"""An operation's service contract: what it does, takes, answers, costs and declares, as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, cast

from ranking_evaluate.contract.answer import answer
from ranking_evaluate.contract.discovery import example_body
from ranking_evaluate.contract.replay import REPLAY_HOURS
from ranking_evaluate.contract.schema import Schema, answer_schema, input_schema
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.core import canonical, intake
from ranking_evaluate.core.errors import ErrorCode
from ranking_evaluate.operations.operation import RESULT_BYTES, Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.release import RELEASED_AT, VERSION

Document = dict[str, Any]

Wires = tuple[Wire, ...]
"""The protocols that every operation is sold over, in the order in which documents list them."""

TOKEN_DECIMALS: Final = 6

RESPONSE_BYTES: Final = 524_288
"""No answer is larger: a result within its limit, and its envelope."""

ERRORS: Final = (
    (
        400,
        "Malformed JSON, missing/invalid idempotency key, or payment identifier mismatch",
        "Correct the request before payment",
    ),
    (
        402,
        "Payment challenge or rejected payment",
        "Use official protocol SDK; inspect payment outcome before another payment",
    ),
    (
        409,
        "Idempotency conflict, duplicate proof, or PAYMENT_UNCERTAIN",
        "Keep original key, body, and proof; reconcile uncertainty with operator; never blindly repay",
    ),
    (413, "Input or generated output too large", "Reduce input; no payment attempted for validation failure"),
    (415, "Unsupported media type or compression", "Send uncompressed application/json"),
    (
        422,
        "Schema or service-specific semantic validation failure",
        "Correct input using returned error code; no payment attempted",
    ),
    (
        429,
        "Request/payment-attempt rate exceeded",
        "Wait for rate limit window; preserve existing payment identity",
    ),
    (
        503,
        "Payment configuration/provider/state unavailable, or live DNS preparation failed before settlement",
        (
            "Check readiness; DNS preparation failures may retry the identical key/body/credential only; uncertainty "
            "requires reconciliation"
        ),
    ),
)
"""The contract's own words about each status; `contract.errors.PROBLEMS` speaks of each code."""


def workflow(wires: Wires) -> Document:
    """Return how a purchase goes, with what each protocol has of its own."""
    return {
        "discoveryOnly": False,
        "supportedProtocols": [wire.name for wire in wires],
        **{wire.name: wire.workflow for wire in wires},
        **_PURCHASE,
    }


_PURCHASE: Final[Document] = {
    "steps": [
        "Check configured readiness and the exact service schema",
        (
            "Generate a fresh random Idempotency-Key for this operation; never use a discovery probe fixture for "
            "purchases"
        ),
        "Send valid input without a credential to obtain the official protocol challenge",
        "Use the official SDK and authorized wallet to fulfill the challenge",
        "Retry only with identical key, body, protocol and credential",
        "On PAYMENT_UNCERTAIN stop and request operator reconciliation; never blindly pay again",
    ],
    "versionedRetries": (
        "Request fingerprint includes service release version. Retries across a version upgrade can conflict; "
        f"coordinate upgrades outside the {REPLAY_HOURS}-hour replay window and reconcile pending attempts."
    ),
    "docs": "/llms.txt",
}


def facts(
    operation: Operation[Any], wires: Wires, taken: Collection[str] | None = None
) -> dict[str, bool | int | float | str]:
    """Return what is declared about the operation; preflight compares requirements with these and nothing else.

    Args:
        operation: What is asked about.
        wires: Every protocol of this release.
        taken: The names of those that a running service takes; None for the release itself, which speaks them all.
    """
    return {
        "execution.suppliedCode": False,
        "execution.remoteMutation": False,
        "execution.llmInference": False,
        "execution.paidMcp": False,
        "verification.semanticTruth": False,
        "verification.sourceAuthenticity": False,
        "verification.liveVulnerabilities": False,
        "numbers.arbitraryPrecisionJson": False,
        "numbers.model": "ieee754-binary64",
        "privacy.requestBodyPersisted": False,
        "execution.deterministic": True,
        "execution.networkAccess": False,
        "privacy.resultBodyPersisted": False,
        **{f"payment.{wire.name}": taken is None or wire.name in taken for wire in wires},
        "operation.id": operation.id,
        "operation.category": operation.category,
        "limit.httpRequestBytes": intake.RAW_BYTES,
        "limit.requestBytes": operation.limits["inputBytes"],
        "limit.responseBytes": RESPONSE_BYTES,
        "limit.resultBytes": RESULT_BYTES,
        "limit.jsonDepth": operation.limits["depth"],
        "limit.jsonNodes": operation.limits["jsonNodes"],
        **dict(_bounds("input", input_schema(operation))),
    }


def _bounds(path: str, schema: Schema) -> Iterator[tuple[str, int | float]]:
    """Yield the bounds of the members of an object and of the objects in it; what is within arrays is left out."""
    for name, member in schema["properties"].items():
        for keyword in ("maxItems", "minItems", "maximum", "minimum"):
            if keyword in member:
                yield f"{path}.{name}.{keyword}", member[keyword]
        if "properties" in member:
            yield from _bounds(f"{path}.{name}", member)


def price_usd(operation: Operation[Any]) -> str:
    """Return the nominal price in dollars, with at least two decimals."""
    return _dollars(operation.price_base_units)


def highest_price_usd() -> str:
    """Return the price of the dearest operation in dollars, with at least two decimals."""
    return _dollars(_highest_price())


def _highest_price() -> int:
    return max(operation.price_base_units for operation in OPERATIONS)


def _dollars(base_units: int) -> str:
    dollars = Decimal(base_units).scaleb(-TOKEN_DECIMALS)
    cents = dollars.quantize(Decimal("0.01"))
    return f"{cents if dollars == cents else dollars.normalize():f}"


def price(operation: Operation[Any]) -> str:
    """Return the price as every text writes it."""
    return f"{price_usd(operation)} USD ({operation.price_base_units} base units of a {TOKEN_DECIMALS}-decimal token)"


def with_price(source: str) -> str:
    """Return the source of an example client with the highest price as the most that it pays.

    The files are written for 10000 base units, so that they run as they stand.
    """
    for grouping in ("", "_"):
        source = source.replace(format(10_000, grouping), format(_highest_price(), grouping))
    return source


def path_of(operation: Operation[Any], protocol: str) -> str:
    """Return the path at which the operation is sold over a protocol."""
    return f"/v1/{protocol}/{operation.id}"


def is_raised(code: str) -> bool:
    """Return whether any operation can answer with a declared code; the contract declares some that none has."""
    return code in set(ErrorCode)


def example_response(operation: Operation[Any]) -> Mapping[str, Any]:
    """Return the answer to the operation's example."""
    return cast("Mapping[str, Any]", json.loads(answer(operation, example_body(operation)).body))


@cache
def service_document(operation: Operation[Any], wires: Wires) -> Document:
    """Return the whole service contract of an operation."""
    return {**_contract(operation, wires), "releaseSnapshot": _release_snapshot(wires)}


@cache
def registry_digest(wires: Wires) -> str:
    """Return the SHA-256 of the canonical JSON of the list of all service documents, each without its releaseSnapshot.

    It changes exactly when something that is published about any operation changes.
    """
    return canonical.sha256(canonical.encode([_contract(operation, wires) for operation in OPERATIONS]))


@cache
def _contract(operation: Operation[Any], wires: Wires) -> Document:
    nominal = price_usd(operation)
    return {
        "id": operation.id,
        "name": operation.name,
        "description": operation.description,
        "category": operation.category,
        "priceUsd": nominal,
        "pricingStatus": "proposed-unverified",
        "pricing": {
            "unit": "one successful operation call",
            "proposedNominalUsd": nominal,
            "sixDecimalTokenBaseUnits": str(operation.price_base_units),
            "subscription": False,
            "includesPayerWalletOrNetworkFees": False,
            "liveQuoteVerified": False,
            "condition": (
                "Actual SDK challenge is authoritative only within the caller's explicit authorization; configured "
                "six-decimal token peg is an operator assertion, not a conversion guarantee."
            ),
        },
        "intents": list(operation.intents),
        "whenToUse": list(operation.intents),
        "whenNotToUse": list(operation.when_not_to_use),
        "capabilities": list(operation.capabilities),
        "related": list(operation.related),
        "limits": dict(operation.limits),
        "errorCodes": [str(code) for code in operation.error_codes],
        "requirementsProfile": {
            "format": "declared-requirements-v1",
            "facts": facts(operation, wires),
            "unknownPolicy": (
                "Undeclared requirements are unknown, never compatible. Matching declared facts does not establish "
                "semantic fit or input validity."
            ),
            "preflight": "/preflight",
        },
        "documentation": f"/reference/tools/{operation.id}.md",
        "serviceContract": f"/reference/services/{operation.id}.json",
        "errors": [{"status": status, "meaning": meaning, "retry": retry} for status, meaning, retry in ERRORS],
        "numericPrecision": (
            "JavaScript IEEE-754 numbers; use strings for large integer IDs/exact decimals where the schema accepts "
            "strings. No lossless numeric parsing."
        ),
        "paymentWorkflow": workflow(wires),
        "method": "POST",
        "paths": {wire.name: path_of(operation, wire.name) for wire in wires},
        "inputSchema": input_schema(operation),
        "outputSchema": answer_schema(operation),
        "exampleInput": dict(operation.example_input),
        "exampleResponse": example_response(operation),
        "requiredHeaders": {
            "Content-Type": "application/json",
            "Idempotency-Key": "random 16\u2013128 character operation identifier",
        },
        "fixedExample": f"/reference/examples/{operation.id}.json",
        "execution": {
            "deterministic": True,
            "externalRequests": 0,
            "maxExternalRequests": 0,
            "resultSnapshotPersisted": False,
            "fixedExampleIsIllustrativeSnapshot": False,
            "requiresPayment": True,
            "supportsMcpExecution": False,
        },
    }


def _release_snapshot(wires: Wires) -> Document:
    return {
        "format": "static-release-reference-v1",
        "sourceVersion": VERSION,
        "sourceRegistrySha256": registry_digest(wires),
        "generatedAt": RELEASED_AT,
        "releaseAcceptance": "not-verified-by-generator",
        "runtimeReadiness": "not-evaluated",
        "livePaymentsVerified": False,
        "indexingVerified": False,
        "apiOrigin": None,
        "notice": (
            "Build-time release reference. Runtime readiness, deployment, payment settlement and external indexing are "
            "not evaluated here. Prices are proposed; this file cannot authorize execution or payment."
        ),
    }
