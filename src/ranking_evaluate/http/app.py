"""The application: its parts, its layers and its routes, and what is opened and closed around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.purge import keep_purging
from ranking_evaluate.http.cors import CorsLayer
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.http.documents import documents
from ranking_evaluate.http.errors import HANDLERS
from ranking_evaluate.http.heads import check_heads
from ranking_evaluate.http.middleware import Envelope
from ranking_evaluate.http.routes import free_routes, routes
from ranking_evaluate.keeper import Keeper
from ranking_evaluate.release import VERSION


def build_app(parts: Parts) -> FastAPI:
    """Return the ASGI application; its lifespan opens the store and protocols, and at the end drains settlements."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # What was opened is closed in the opposite order, also where a later part does not open, or fails to close.
        async with AsyncExitStack() as closing:
            await check_heads(parts)
            await parts.store.open()
            closing.push_async_callback(parts.store.close)
            closing.push_async_callback(parts.rates.close)
            await parts.rates.open()
            for coroutine in (keep_purging(parts.store), telemetry.keep_telling_repeats()):
                closing.push_async_callback(_end, asyncio.create_task(coroutine))
            for protocol in parts.protocols:
                closing.push_async_callback(protocol.close)
                await protocol.start()
            keeping = asyncio.create_task(Keeper(parts.store, parts.chains).run(), name="keep uncertain payments")
            closing.push_async_callback(_end, keeping)
            closing.callback(parts.evaluations.close)
            closing.push_async_callback(parts.purchases.drain)
            yield

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
        app.add_middleware(CorsLayer, cors=parts.cors)
    app.add_middleware(Envelope, parts=parts)
    return app


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended: what it does at its end belongs to the service's own."""
    task.cancel()
    await asyncio.wait([task])
