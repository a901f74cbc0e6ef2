"""The documents: the home page, llms.txt, the reference, OpenAPI and the well-known ones, each with its response."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import Response
from fastapi.openapi.utils import get_openapi
from pydantic import Field, with_config
from starlette.routing import BaseRoute
from typing_extensions import TypedDict

from ranking_evaluate.contract import home, llms, openapi, reference
from ranking_evaluate.contract.document import Wires, path_of, price_usd
from ranking_evaluate.contract.errors import NotFound
from ranking_evaluate.contract.icon import icon
from ranking_evaluate.contract.wire import X402_VERSION
from ranking_evaluate.core import canonical
from ranking_evaluate.http.health import StoreHealth, state_of
from ranking_evaluate.operations.fields import STRICT
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.payments.protocol import Announcement, PaymentProtocol
from ranking_evaluate.release import VERSION

MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".csv": "text/csv; charset=utf-8",
    ".ico": "image/x-icon",
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

_QUALITY: Final = re.compile(r"[01](?:\.[0-9]{0,3})?")

INDEX: Final = "/reference/services"
PAGES_OF_INDEX: Final = ("/reference", "/reference/")

# The documents whose endings do not tell their media types.
_WITHOUT_ENDING: Final = {**dict.fromkeys(PAGES_OF_INDEX, ".md"), INDEX: ".json", "/.well-known/x402": ".json"}

_ROBOTS: Final = "User-agent: *\nAllow: /\n"


@dataclass(frozen=True, slots=True)
class Document:
    """A document with what its response says about it."""

    content: bytes
    media_type: str
    cache_control: str
    etag: str


def paths(wires: Wires) -> list[str]:
    """Return the path of every document that stays the same while the service runs."""
    own = ["/llms.txt", "/openapi.json", "/.well-known/x402", *PAGES_OF_INDEX, INDEX, "/favicon.ico", "/robots.txt"]
    return [*own, *(f"/{path}" for path in reference.render(wires) if path != "llms.txt")]


def media_type(path: str) -> str:
    """Return the media type of the document at a path."""
    return MEDIA_TYPES[_WITHOUT_ENDING.get(path) or PurePosixPath(path).suffix]


def name_of(path: str) -> str:
    """Return a name for what reads the document at a path: the words of the path."""
    return "-".join(["read", *re.findall("[A-Za-z0-9]+", path)])


def prefers_json(accept: str) -> bool:
    """Return whether an Accept header names application/json, and no kind of page that is wanted as much."""
    wanted: dict[str, float] = {}
    for part in accept.lower().split(","):
        media_type, *parameters = (one.strip() for one in part.split(";"))
        quality = next((value for name, _, value in (one.partition("=") for one in parameters) if name == "q"), "1")
        wanted[media_type] = float(quality) if _QUALITY.fullmatch(quality) else 0.0
    page = max(wanted.get("text/html", 0.0), wanted.get("text/markdown", 0.0))
    return wanted.get("application/json", 0.0) > page


def documents(
    routes: tuple[BaseRoute, ...],
    origin: str,
    wires: Wires,
    protocols: tuple[PaymentProtocol, ...],
    contact: str | None,
) -> dict[str, Document]:
    """Return every document of `paths()`; `routes` are the free ones, which OpenAPI describes beside the paid ones."""
    described = openapi.render(origin, wires, _payments(protocols), contact, free_half(routes))
    live = {
        "/llms.txt": _llms(origin, wires, protocols).encode(),
        "/openapi.json": orjson.dumps(described),
        "/.well-known/x402": orjson.dumps(_well_known(origin, protocols)),
    }
    rendered = reference.render(wires)
    fixed = {
        **dict.fromkeys(PAGES_OF_INDEX, rendered["reference/README.md"]),
        INDEX: orjson.dumps(reference.listed(wires)),
        "/favicon.ico": icon(),
        "/robots.txt": _ROBOTS.encode(),
        **{f"/{name}": content for name, content in rendered.items()},
    }
    found = {}
    for path in paths(wires):
        content = live.get(path) or fixed[path]
        etag = f'"{canonical.sha256(content)[:32]}"'
        found[path] = Document(content, media_type(path), KEEP_LIVE if path in live else KEEP_REFERENCE, etag)
    return found


def free_half(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return FastAPI's own OpenAPI description of these routes, which the contract's is merged with."""
    return get_openapi(title="ranking-evaluate", version=VERSION, routes=routes)


def serve(document: Document, known: str) -> Response:
    """Return a document, or 304 when the ETags that the client knows name it already."""
    headers = {"cache-control": document.cache_control, "etag": document.etag}
    if document.etag in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(document.content, headers=headers, media_type=document.media_type)


async def show_home(
    origin: str, store: StoreHealth, wires: Wires, protocols: tuple[PaymentProtocol, ...], *, sales_ended: bool
) -> Response:
    """Return the home page with the readiness of this moment."""
    page = home.render(origin, await state_of(store, wires, protocols, sales_ended=sales_ended), wires)
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
    settings = {
        protocol.wire.name: [
            {"NETWORK": terms.network, "ASSET": terms.asset, "PAY_TO": terms.pay_to} for terms in protocol.terms()
        ]
        for protocol in protocols
    }
    return llms.render(wires, llms.running(origin, wires, settings))


def _payments(protocols: tuple[PaymentProtocol, ...]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the x-payment-info of each operation over each protocol that is taken."""
    return {
        protocol.wire.name: {
            operation.id: _payment_info(protocol.announce(operation.price_base_units), price_usd(operation))
            for operation in OPERATIONS
        }
        for protocol in protocols
    }


def _payment_info(announced: Announcement, price: str) -> dict[str, Any]:
    """Return x-payment-info in two dialects at once: `offers` is MPP's own, `price` and `protocols` are agentcash's."""
    return {
        "offers": list(announced.offers),
        "price": {"mode": "fixed", "currency": "USD", "amount": price},
        "protocols": list(announced.protocols),
    }


Url = Annotated[str, Field(json_schema_extra={"format": "uri"})]


@with_config(STRICT)
class Resource(TypedDict):
    """What one paid path sells over x402; `accepts` are the terms as the protocol writes them."""

    resource: Url
    type: Literal["http"]
    method: Literal["POST"]
    description: str
    mimeType: str
    accepts: Annotated[list[dict[str, Any]], Field(min_length=1)]
    serviceContract: Url


@with_config(STRICT)
class SoldOverX402(TypedDict):
    """What is sold over x402, for those who look at /.well-known/x402."""

    x402Version: Annotated[int, Field(json_schema_extra={"const": X402_VERSION})]
    resources: list[Resource]


def _well_known(origin: str, protocols: tuple[PaymentProtocol, ...]) -> SoldOverX402:
    return {
        "x402Version": X402_VERSION,
        "resources": [
            {
                "resource": origin + path_of(operation, protocol.wire.name),
                "type": "http",
                "method": "POST",
                "description": operation.description,
                "mimeType": "application/json",
                "accepts": [dict(terms) for terms in announced.accepts],
                "serviceContract": f"{origin}/reference/services/{operation.id}.json",
            }
            for protocol in protocols
            for operation in OPERATIONS
            if (announced := protocol.announce(operation.price_base_units)).accepts
        ],
    }
