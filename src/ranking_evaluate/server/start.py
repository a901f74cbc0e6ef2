"""How the server starts: uvicorn with bounded connections, a socket of its own, and one line for a start that fails."""

from __future__ import annotations

import functools
import gc
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import FrameType
from typing import Any, Final, TypeAlias

import httptools
import uvicorn

from ranking_evaluate import telemetry
from ranking_evaluate.server import open_files
from ranking_evaluate.server.connection import BoundedConnection
from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.places import Places, networks_of
from ranking_evaluate.server.refusals import Refusals, Scope

AsgiApp: TypeAlias = Callable[[Scope, Callable[..., Any], Callable[..., Any]], Awaitable[None]]

ACCEPTED_AT_ONCE: Final = 32
"""How many connections are accepted in one turn of the loop.

uvloop takes one for each listening socket that it watches, so it watches this many copies of the one. Otherwise those
who connect would wait behind a crowd for as many turns as it has connections.
"""


class StartFailed(Exception):
    """The server could not start; the text says why, in one line."""


def configuration(
    app: AsgiApp,
    *,
    limits: Limits,
    refusals: Refusals,
    client_of: Callable[[str], str],
    trusted_proxies: tuple[str, ...],
    graceful_seconds: float,
) -> uvicorn.Config:
    """Return uvicorn's configuration of one server; raises `StartFailed` when the installed parser is not strict.

    Args:
        app: The application.
        limits: What one caller may take.
        refusals: The answers to what goes over the limits.
        client_of: Returns whom an address counts as.
        trusted_proxies: Whose X-Forwarded-For is believed, and who may have as many connections as there are; without
            any, nobody.
        graceful_seconds: How long requests under way are waited for at the end.
    """
    _check_parser()
    proxies = tuple(networks_of(trusted_proxies))
    places = Places[BoundedConnection](limits.max_connections, limits.max_connections_of_one, client_of, proxies)
    connection = functools.partial(BoundedConnection, limits=limits, refusals=refusals, places=places)
    return uvicorn.Config(
        app,
        http=connection,  # type: ignore[arg-type]  # uvicorn calls it, and does not need a class.
        ws="none",
        lifespan="on",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=[str(proxy) for proxy in proxies],
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


def within_open_files(limits: Limits, files: int) -> Limits:
    """Return the limits with no more connections than so many open files allow; raises `StartFailed` for too few.

    A process without a file left can neither take a connection nor write to its store.
    """
    connections = files - open_files.RESERVED
    if connections < open_files.RESERVED:
        raise StartFailed(
            f"This process may have {files} open files, and needs {2 * open_files.RESERVED} or more: "
            "raise the hard limit (`ulimit -Hn`, LimitNOFILE, nofile)."
        )
    return replace(limits, max_connections=min(limits.max_connections, connections))


def run(
    app: AsgiApp,
    listener: socket.socket,
    *,
    limits: Limits,
    refusals: Refusals,
    client_of: Callable[[str], str],
    started: Callable[[], None],
    explain: Callable[[Exception], str],
    trusted_proxies: tuple[str, ...],
    graceful_seconds: float,
) -> None:
    """Serve until a signal ends it.

    Raises:
        StartFailed: The application's lifespan does not come up, or too few files may be open.

    Args:
        app: See `configuration`, like the others that are not named here.
        listener: Where callers connect.
        limits: See `configuration`; connections never take the last open files.
        refusals: See `configuration`.
        client_of: See `configuration`.
        started: Called once the application is up and callers can connect.
        explain: Words what made the lifespan fail, in one line.
        trusted_proxies: See `configuration`.
        graceful_seconds: See `configuration`.
    """
    watcher = _LifespanWatcher(app)
    config = configuration(
        watcher,
        limits=within_open_files(limits, open_files.raise_limit()),
        refusals=refusals,
        client_of=client_of,
        trusted_proxies=trusted_proxies,
        graceful_seconds=graceful_seconds,
    )
    server = _Server(config, started)
    # What was made so far stays to the end: a full collection that walked it would hold every request up for 60 ms.
    gc.collect()
    gc.freeze()
    try:
        server.run(sockets=[listener, *(listener.dup() for _ in range(ACCEPTED_AT_ONCE - 1))])
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


class _Server(uvicorn.Server):
    """A server that ends in one way only, and whose failure to start is told by `run`."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell_started = started

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end at the first signal; at a second interrupt uvicorn would drop the requests under way."""
        if not self.should_exit:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, and say when that begins and when all is answered."""
        began = time.monotonic()
        telemetry.logger().info("ending", connections=len(self.server_state.connections))
        await super().shutdown(sockets)
        telemetry.logger().info("ended", seconds=round(time.monotonic() - began, 1))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, without a line in the log where that fails."""
        log = logging.getLogger("uvicorn.error")
        log.disabled = True
        try:
            await super().startup(sockets)
        finally:
            log.disabled = False
        if self.started:
            self._tell_started()
