"""Every route: the paid ones, one for each protocol and operation, and the free ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Annotated, Any, Final

from fastapi import Header, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic.json_schema import SkipJsonSchema
from starlette.routing import BaseRoute, Route

from ranking_evaluate import telemetry
from ranking_evaluate.contract.document import Wires
from ranking_evaluate.contract.openapi import key_parameter, refusals
from ranking_evaluate.contract.reference import Listed
from ranking_evaluate.contract.requirements import NOTICE, Comparison, Declaration
from ranking_evaluate.evaluations.evaluations import Caller
from ranking_evaluate.http import attempts, documents, health, preflight
from ranking_evaluate.http.attempts import Standing
from ranking_evaluate.http.dependencies import ADMITTED, CheckedHeaders, Key, Parts, PartsOf, Sold, admission
from ranking_evaluate.http.errors import Handler, guarded
from ranking_evaluate.http.free_router import FreeRouter
from ranking_evaluate.http.health import Alive, ServiceState
from ranking_evaluate.http.quote import quote
from ranking_evaluate.http.requests import (
    check_media,
    client_of,
    hung_up,
    is_probe,
    read_body,
    read_headers,
    read_key,
)
from ranking_evaluate.http.responses import UnstoredJson, deliver
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.order import Order


def routes(parts: Parts) -> list[BaseRoute]:
    """Return all routes of the application: the paid ones first, since a router tries its routes one after another."""
    return [*paid_routes(parts), *free_routes(parts.wires)]


# The paid routes, whose half of OpenAPI is the contract's.


def paid_routes(parts: Parts) -> list[BaseRoute]:
    """Return the routes of every paid path: POST sells, GET and HEAD tell the terms.

    They are Starlette's, since FastAPI has nothing to do for them: docs/decisions/paid-routes.md.
    """
    return [
        *(Route(path, _sale(parts, path, sold), methods=["POST"]) for path, sold in parts.paid.items()),
        *(Route(path, _terms(parts, path, sold), methods=["GET", "HEAD"]) for path, sold in parts.paid.items()),
    ]


def _sale(parts: Parts, path: str, sold: Sold) -> Handler:
    url, singletons = parts.public_origin + path, parts.header_names.singletons

    # The body stays raw. An answer belongs to exact bytes, and refusals come in a promised order: a framework's model
    # would be parsed before the headers are judged, and would lose duplicate members and how numbers were written.
    @guarded
    async def sale(request: Request) -> Response:
        with await admission(request, parts):
            headers = read_headers(request, singletons)
            if await is_probe(request, headers, parts.wires):
                await quote(headers, parts.wires, sold, url, sales_ended=parts.rates.sales_ended)
            check_media(headers)
            key = read_key(headers)
            request.state.told.key_digest = telemetry.key_digest(key)
            order = Order(
                operation=sold.operation,
                wire=sold.wire,
                protocol=sold.protocol,
                key=key,
                url=url,
                body=await read_body(request, headers),
                headers=headers,
                client=client_of(request),
                request_id=request.state.told.request_id,
                hung_up=partial(hung_up, request),
            )
            return deliver(await parts.purchases.buy(order))

    return sale


def _terms(parts: Parts, path: str, sold: Sold) -> Handler:
    url, singletons = parts.public_origin + path, parts.header_names.singletons

    @guarded
    async def terms(request: Request) -> Response:
        with await admission(request, parts):
            headers = read_headers(request, singletons)
            await quote(headers, parts.wires, sold, url, sales_ended=parts.rates.sales_ended)

    return terms


# The free routes. FastAPI makes OpenAPI's half about them from what is declared here.

_ASKED: Final = (429, 500, 503)
_READS_A_BODY: Final = (400, 408, 413, 415, 422, *_ASKED)

router: Final = FreeRouter(default_response_class=UnstoredJson)


@router.get("/healthz", summary="Whether the process lives", responses=refusals(500))
async def healthz() -> Alive:
    """Answers 200 as long as the process serves."""
    return health.alive()


@router.get(
    "/readyz",
    summary="Whether the service can sell, and why not",
    responses={
        **refusals(500),
        503: {"model": ServiceState, "description": "It cannot sell at the moment; what is free stays up."},
    },
)
async def readyz(parts: PartsOf, response: Response) -> ServiceState:
    """Ready when the store answers and every configured protocol is ready, at least one."""
    state = await health.state_of(parts.store_health, parts.wires, parts.protocols, sales_ended=parts.rates.sales_ended)
    response.status_code = 200 if state["ready"] else 503
    return state


@router.get(
    "/v1/attempts",
    summary="Where the purchase under a key stands",
    dependencies=[ADMITTED],
    responses=refusals(400, 404, *_ASKED),
    openapi_extra={"parameters": [key_parameter("The key of the purchase.")]},
)
async def attempt(key: Key, parts: PartsOf) -> Standing:
    """Where the current attempt under a key stands, and what to do next; never a result."""
    return await attempts.standing(key, parts.store, parts.chains)


@router.get(
    "/preflight",
    summary="Declared facts of every operation",
    dependencies=[ADMITTED],
    responses=refusals(*_ASKED),
)
async def declared_facts(parts: PartsOf) -> Declaration:
    """What is declared of each operation, by the names that requirements use."""
    return preflight.declare(parts.wires, parts.taken)


@router.post(
    "/preflight",
    summary="Compare requirements with declared facts, or check an input",
    description=(
        f"{NOTICE} With validate, the body is an input of that operation: 204, or the refusal that the paid route "
        "would give; never a score."
    ),
    dependencies=[ADMITTED],
    response_model=Comparison | list[Comparison],
    responses={
        **refusals(404, *_READS_A_BODY),
        204: {"description": "The paid route would evaluate this input."},
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"type": "object"},
                    "example": {
                        "operation": OPERATIONS[0].id,
                        "requirements": {"execution.deterministic": True, "limit.requestBytes": 50_000},
                    },
                }
            },
        }
    },
)
async def ask(
    request: Request,
    parts: PartsOf,
    headers: CheckedHeaders,
    validate: Annotated[
        str | SkipJsonSchema[None],
        Query(
            description="The operation whose input the body is.",
            json_schema_extra={"enum": [operation.id for operation in OPERATIONS]},
        ),
    ] = None,
) -> Comparison | list[Comparison] | Response:
    """Compare the requirements in the body, or check the input in it."""
    check_media(headers)
    if validate is None:
        return preflight.compare_requirements(await read_body(request, headers), parts.wires, parts.taken)
    operation = preflight.find_operation(validate)
    body = await read_body(request, headers)
    caller = Caller(client_of(request), hung_up=partial(hung_up, request))
    return await preflight.validate(operation, body, parts.evaluations, caller)


@router.get(
    "/",
    summary="The home page, for people",
    dependencies=[ADMITTED],
    response_class=HTMLResponse,
    responses=refusals(*_ASKED),
)
async def home(parts: PartsOf) -> Response:
    """What is sold here, whether it can be bought now, and a first call to copy."""
    return await documents.show_home(
        parts.public_origin, parts.store_health, parts.wires, parts.protocols, sales_ended=parts.rates.sales_ended
    )


@router.get(
    "/.well-known/security.txt",
    summary="Whom to tell about a vulnerability",
    dependencies=[ADMITTED],
    response_class=PlainTextResponse,
    responses=refusals(404, *_ASKED),
)
async def security_contact(parts: PartsOf) -> Response:
    """RFC 9116; 404 where the operator has named no contact."""
    return documents.show_security_contact(parts.security_contact, parts.public_origin)


IfNoneMatch = Annotated[str | SkipJsonSchema[None], Header(alias="If-None-Match")]


async def document(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    """The same bytes as long as the service runs; a client that has them already is told so."""
    found: documents.Document = request.app.state.documents[request.scope["path"]]
    return documents.serve(found, if_none_match or "")


async def index(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    """A page, or with `Accept: application/json` the list that /reference/services holds."""
    path = documents.INDEX if documents.prefers_json(request.headers.get("accept", "")) else request.scope["path"]
    found: documents.Document = request.app.state.documents[path]
    answer = documents.serve(found, if_none_match or "")
    answer.headers["vary"] = "Accept"
    return answer


_SUMMARIES: Final = {
    "/llms.txt": "How to buy, for agents",
    "/openapi.json": "This description",
    "/.well-known/x402": "What is sold over x402",
    "/reference": "The index of the reference",
    documents.INDEX: "Every operation with its documents and paths",
    "/favicon.ico": "An icon",
    "/robots.txt": "What crawlers may read",
}


@cache
def free_routes(wires: Wires) -> tuple[BaseRoute, ...]:
    """Return the free routes, those of the documents last; they are the same in every application of a process."""
    return (*router.routes, *_document_routes(wires))


def _document_routes(wires: Wires) -> Iterator[BaseRoute]:
    router = FreeRouter(dependencies=[ADMITTED], default_response_class=Response)
    for path in documents.paths(wires):
        router.add_api_route(
            path,
            index if path in documents.PAGES_OF_INDEX else document,
            methods=["GET"],
            name=documents.name_of(path),
            # OpenAPI's tools take a path and the same one with a slash for one: it describes the first.
            include_in_schema=not path.endswith("/"),
            summary=_SUMMARIES.get(path, f"A part of the reference: {path.removeprefix('/reference/')}"),
            responses={**refusals(*_ASKED), **_described(path)},
        )
    yield from router.routes


def _described(path: str) -> dict[int | str, dict[str, Any]]:
    """Return the answers of a document's route, as OpenAPI describes them."""
    media_type = documents.media_type(path).partition(";")[0]
    content = {media_type: {"schema": {"type": "object" if media_type == "application/json" else "string"}}}
    found: dict[str, Any] = {"content": content}
    if path == "/.well-known/x402":
        found = {"model": documents.SoldOverX402}
    elif path == documents.INDEX:
        found = {"model": list[Listed]}
    elif path in documents.PAGES_OF_INDEX:
        found["model"] = list[Listed]
    return {200: {"description": "OK", **found}, 304: {"description": "The client has this document already."}}
