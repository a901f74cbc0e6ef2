"""The application: its parts, its layers and its routes, and what is opened and closed around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from ranking_evaluate.attempts.purge import keep_purging
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.http.documents import documents
from ranking_evaluate.http.errors import HANDLERS
from ranking_evaluate.http.middleware import Envelope
from ranking_evaluate.http.routes import free_routes, routes
from ranking_evaluate.release import VERSION


def build_app(parts: Parts) -> FastAPI:
    """Return the ASGI application; its lifespan opens the store and protocols, and at the end drains settlements."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await parts.store.open()
        await parts.rates.open()
        purging = asyncio.create_task(keep_purging(parts.store), name="purge")
        for protocol in parts.protocols:
            await protocol.start()
        try:
            yield
        finally:
            await parts.purchases.drain()
            parts.evaluations.close()
            purging.cancel()
            for protocol in parts.protocols:
                await protocol.close()
            await parts.store.close()
            await parts.rates.close()

    app = FastAPI(
        title="ranking-evaluate",
        version=VERSION,
        routes=routes(parts),
        lifespan=lifespan,
        exception_handlers=HANDLERS,
        # Our own routes serve the description, with an ETag and counted as any request.
        openapi_url=None,
        redirect_slashes=False,
        # An exporter named by the environment would send out the texts of errors, which may quote a caller.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.parts = parts
    app.state.documents = documents(
        free_routes(parts.wires), parts.public_origin, parts.wires, parts.protocols, parts.security_contact
    )
    # What is added last stands outermost.
    if parts.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=parts.cors_origins,
            allow_methods=("GET", "POST", "HEAD"),
            allow_headers=parts.header_names.allowed,
            expose_headers=parts.header_names.exposed,
        )
    app.add_middleware(Envelope, parts=parts)
    return app
