"""How the server starts: uvicorn with bounded connections, a socket of its own, and one line for a start that fails."""

from __future__ import annotations

import functools
import gc
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import httptools
import uvicorn

from ranking_evaluate.server.connection import BoundedConnection
from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.refusals import Refusals, Scope

AsgiApp: TypeAlias = Callable[[Scope, Callable[..., Any], Callable[..., Any]], Awaitable[None]]


class StartFailed(Exception):
    """The server could not start; the text says why, in one line."""


def configuration(
    app: AsgiApp, *, limits: Limits, refusals: Refusals, trusted_proxies: tuple[str, ...], graceful_seconds: float
) -> uvicorn.Config:
    """Return uvicorn's configuration of one server; raises `StartFailed` when the installed parser is not strict.

    Args:
        app: The application.
        limits: What one caller may take.
        refusals: The answers to what goes over the limits.
        trusted_proxies: Whose X-Forwarded-For is believed; without any, nobody's.
        graceful_seconds: How long requests under way are waited for at the end.
    """
    _check_parser()
    connection = functools.partial(BoundedConnection, limits=limits, refusals=refusals, idle_connections={})
    return uvicorn.Config(
        app,
        http=connection,  # type: ignore[arg-type]  # uvicorn calls it, and does not need a class.
        ws="none",
        lifespan="on",
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        server_header=False,
        access_log=False,
        log_config=None,
        backlog=1_024,
        timeout_graceful_shutdown=int(graceful_seconds),
    )


def _check_parser() -> None:
    """Raise `StartFailed` unless the parser is the strict one: others accept request smuggling."""
    for shape in (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    ):
        try:
            httptools.HttpRequestParser(object()).feed_data(shape)
        except httptools.HttpParserError:
            continue
        raise StartFailed("The installed httptools accepts malformed HTTP: install the version of requirements.lock.")


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket; raises `StartFailed` with the reason when there is none to be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartFailed(
            f"Cannot listen on {host} port {port}: {reason}. Choose another address with --host or --port."
        ) from error
    return listener


def run(
    app: AsgiApp,
    listener: socket.socket,
    *,
    limits: Limits,
    refusals: Refusals,
    explain: Callable[[Exception], str],
    trusted_proxies: tuple[str, ...],
    graceful_seconds: float,
) -> None:
    """Serve until a signal ends it; raises `StartFailed` when the application's lifespan does not come up.

    Args:
        app: See `configuration`, like the others that are not named here.
        listener: Where callers connect.
        limits: See `configuration`.
        refusals: See `configuration`.
        explain: Words what made the lifespan fail, in one line.
        trusted_proxies: See `configuration`.
        graceful_seconds: See `configuration`.
    """
    watcher = _LifespanWatcher(app)
    config = configuration(
        watcher, limits=limits, refusals=refusals, trusted_proxies=trusted_proxies, graceful_seconds=graceful_seconds
    )
    server = _QuietlyStartingServer(config)
    # What was made so far stays to the end: a full collection that walked it would hold every request up for 60 ms.
    gc.collect()
    gc.freeze()
    try:
        server.run(sockets=[listener])
    except OSError as error:
        raise StartFailed(f"Cannot listen: {error.strerror or error}.") from error
    except SystemExit:
        if watcher.failure is None:
            raise
        raise StartFailed(explain(watcher.failure)) from watcher.failure


class _LifespanWatcher:
    """The application, and what made its lifespan fail: uvicorn logs the exception and does not pass it on."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self.failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            self.failure = error
            raise


class _QuietlyStartingServer(uvicorn.Server):
    """A server that does not log why it cannot start, because `run` says so."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        log = logging.getLogger("uvicorn.error")
        log.disabled = True
        try:
            await super().startup(sockets)
        finally:
            log.disabled = False
