"""The server: uvicorn with our connections, a socket of its own, and one line for a start that fails."""

from __future__ import annotations

import gc
import logging
import socket

import httptools
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from ranking_evaluate.attempts.store import StoreUnavailable
from ranking_evaluate.http.connections import BoundedProtocol
from ranking_evaluate.rates import RateStorageUnavailable


class StartFailed(Exception):
    """The service could not start; the text says why, in one line."""


class _Server(uvicorn.Server):
    """A server whose failure to start is told once, by us."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; the lifespan's failure is raised by `run`."""
        talk = logging.getLogger("uvicorn.error")
        talk.disabled = True
        try:
            await super().startup(sockets)
        finally:
            talk.disabled = False


class _Watched:
    """The application, with what made its start fail."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            self.failure = error
            raise


def configuration(app: ASGIApp, *, trusted_proxies: tuple[str, ...], graceful_seconds: float) -> uvicorn.Config:
    """Return uvicorn's configuration for the service.

    Args:
        app: The application.
        trusted_proxies: Whose X-Forwarded-For is believed; without any, nobody's.
        graceful_seconds: How long requests under way are waited for at the end.
    """
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
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
    _check_parser()
    return config


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
    app: FastAPI, listener: socket.socket, *, trusted_proxies: tuple[str, ...] = (), graceful_seconds: float = 120.0
) -> None:
    """Serve until a signal ends it; raises `StartFailed` when the application's lifespan does not come up."""
    watched = _Watched(app)
    config = configuration(watched, trusted_proxies=trusted_proxies, graceful_seconds=graceful_seconds)
    server = _Server(config)
    # What was made so far stays to the end: a full collection that walked it would hold every request up for 60 ms.
    gc.collect()
    gc.freeze()
    try:
        server.run(sockets=[listener])
    except OSError as error:
        raise StartFailed(f"Cannot listen: {error.strerror or error}.") from error
    except SystemExit:
        if watched.failure is None:
            raise
        raise StartFailed(_in_one_line(watched.failure)) from watched.failure


def _in_one_line(failure: Exception) -> str:
    """Return which setting made the start fail, and what to do."""
    match failure:
        case StoreUnavailable():
            return (
                f"RANKING_EVALUATE_DATABASE_URL: {failure}. "
                "Check that the place exists, can be written, and is reached from here."
            )
        case RateStorageUnavailable():
            return (
                f"RANKING_EVALUATE_RATE_STORAGE_URL: {failure}. "
                "Check that Redis runs there, or count in memory with memory://."
            )
        case _:
            return f"The service cannot start: {type(failure).__name__}."
