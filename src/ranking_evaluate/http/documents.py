"""Serves what the contract renders: the home page, llms.txt, the reference, OpenAPI and the well-known documents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.contract import home, llms, openapi, reference
from ranking_evaluate.contract.document import Wires, path_of, price_usd
from ranking_evaluate.contract.errors import NotFound
from ranking_evaluate.contract.wire import X402_VERSION
from ranking_evaluate.http.health import state_of
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.payments.protocol import Announcement, PaymentProtocol

MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".py": "text/x-python; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}

# A release changes the first kind, a restart with other settings the second.
KEEP_REFERENCE: Final = "public, max-age=3600"
KEEP_LIVE: Final = "public, max-age=300"

SECURITY_CONTACT_DAYS: Final = 180


@dataclass(frozen=True, slots=True)
class Document:
    """A document with what its response says about it."""

    content: bytes
    media_type: str
    cache_control: str
    etag: str

    @classmethod
    def of(cls, path: str, content: bytes, cache_control: str) -> Document:
        """Return the document of a path, whose ending tells its media type."""
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        return cls(content, MEDIA_TYPES[PurePosixPath(path).suffix], cache_control, etag)


def documents(
    origin: str, wires: Wires, protocols: tuple[PaymentProtocol, ...], contact: str | None
) -> dict[str, Document]:
    """Return every document that stays the same while the service runs, by its path."""
    found = {
        f"/{path}": Document.of(path, content, KEEP_REFERENCE) for path, content in reference.render(wires).items()
    }
    found["/reference/"] = found["/reference/README.md"]
    found["/llms.txt"] = Document.of("llms.txt", _llms(origin, wires, protocols).encode(), KEEP_LIVE)
    described = openapi.render(origin, wires, _payments(protocols), contact)
    found["/openapi.json"] = Document.of("openapi.json", _json(described), KEEP_LIVE)
    # Of the well-known documents this one alone has no ending.
    found["/.well-known/x402"] = Document.of("x402.json", _json(_well_known(origin, protocols)), KEEP_LIVE)
    return found


def serve(request: Request, document: Document) -> Response:
    """Return a document, or 304 when the client has it already."""
    headers = {"cache-control": document.cache_control, "etag": document.etag}
    known = request.headers.get("if-none-match", "")
    if document.etag in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(document.content, headers=headers, media_type=document.media_type)


async def show_home(origin: str, store: AttemptStore, wires: Wires, protocols: tuple[PaymentProtocol, ...]) -> Response:
    """Return the home page with the readiness of this moment."""
    page = home.render(origin, await state_of(store, wires, protocols), wires)
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": home.content_security_policy(),
        "referrer-policy": "no-referrer",
    }
    return Response(page, headers=headers, media_type="text/html; charset=utf-8")


def show_security_contact(contact: str | None, origin: str) -> Response:
    """Return security.txt (RFC 9116), whose expiry moves along; 404 where no contact is configured."""
    if contact is None:
        raise NotFound("NOT_FOUND", "The operator of this service has named no security contact.")
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=SECURITY_CONTACT_DAYS)
    lines = [
        f"Contact: {contact}",
        f"Expires: {expires.isoformat().replace('+00:00', 'Z')}",
        f"Canonical: {origin}/.well-known/security.txt",
    ]
    text = "".join(f"{line}\n" for line in lines)
    return Response(text, headers={"cache-control": KEEP_REFERENCE}, media_type=MEDIA_TYPES[".txt"])


def _llms(origin: str, wires: Wires, protocols: tuple[PaymentProtocol, ...]) -> str:
    taken = {protocol.wire.name: protocol.terms() for protocol in protocols}
    settings = {
        name: {"NETWORK": terms.network, "ASSET": terms.asset, "PAY_TO": terms.pay_to} for name, terms in taken.items()
    }
    return llms.render(wires, llms.running(origin, wires, settings))


def _payments(protocols: tuple[PaymentProtocol, ...]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the x-payment-info of each operation over each protocol that is taken, in both dialects at once."""
    return {
        protocol.wire.name: {
            operation.id: _payment_info(protocol.announce(operation.price_base_units), price_usd(operation))
            for operation in OPERATIONS
        }
        for protocol in protocols
    }


def _payment_info(announced: Announcement, price: str) -> dict[str, Any]:
    return {
        "offers": [announced.offer],
        "price": {"mode": "fixed", "currency": "USD", "amount": price},
        "protocols": [announced.protocol],
    }


def _well_known(origin: str, protocols: tuple[PaymentProtocol, ...]) -> dict[str, Any]:
    return {
        "x402Version": X402_VERSION,
        "resources": [
            {
                "resource": origin + path_of(operation, protocol.wire.name),
                "type": "http",
                "method": "POST",
                "description": operation.description,
                "mimeType": "application/json",
                "accepts": announced.accepts,
                "serviceContract": f"{origin}/reference/services/{operation.id}.json",
            }
            for protocol in protocols
            for operation in OPERATIONS
            if (announced := protocol.announce(operation.price_base_units)).accepts
        ],
    }


def _json(document: object) -> bytes:
    return orjson.dumps(document)
