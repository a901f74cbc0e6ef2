"""`ranking-evaluate serve`: the paid service, one process."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ranking_evaluate.cli.streams import say, tell
from ranking_evaluate.core.visible import visible
from ranking_evaluate.settings import PREFIX, Settings, SettingsError, read_settings


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; anything but loopback needs PUBLIC_ORIGIN.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8402,
    check: Annotated[bool, typer.Option("--check", help="Look whether it could sell, and serve nothing.")] = False,
) -> None:
    """Serve the paid operations; settings are RANKING_EVALUATE_* environment variables, read once.

    Exit codes of a start that fails: 1 the store or Redis cannot be used, which may pass; 2 a setting is wrong.

    With --check it prints a line for each thing that a sale needs: settings, store, nodes, tokens, providers, clock.
    Exit codes then: 0 it can sell, 1 it cannot, 2 a setting is wrong. The service may run meanwhile.
    """
    try:
        settings = read_settings(host=host, port=port)
        if check:
            _check(settings)
        else:
            _serve(settings, host, port)
    except SettingsError as error:
        for fault in error.faults:
            say(visible(fault))
        raise typer.Exit(2) from None


def _check(settings: Settings) -> None:
    from ranking_evaluate import telemetry
    from ranking_evaluate.cli import checks

    # The lines say what the log would.
    telemetry.configure_logs("critical")
    can_sell = True

    async def show() -> None:
        nonlocal can_sell
        async for finding in checks.check(settings):
            tell(visible(finding.line()))
            can_sell = can_sell and finding.ok is not False

    asyncio.run(show())
    tell("It can sell." if can_sell else "It cannot sell.")
    raise typer.Exit(0 if can_sell else 1)


def _serve(settings: Settings, host: str, port: int) -> None:
    # Imported when the settings are known to be right: a wrong one is told at once.
    from ranking_evaluate import telemetry
    from ranking_evaluate.attempts.store import StoreUnavailable
    from ranking_evaluate.bootstrap import build
    from ranking_evaluate.cli.checks import nothing_sold
    from ranking_evaluate.http.early_refusals import EarlyRefusals
    from ranking_evaluate.http.requests import counted_as
    from ranking_evaluate.rates import RateStorageUnavailable
    from ranking_evaluate.recording import RECORD_FOR
    from ranking_evaluate.server import start
    from ranking_evaluate.server.limits import Limits

    def started() -> None:
        telemetry.logger().info("serving", address=f"http://{host}:{port}", origin=settings.public_origin)
        reason = nothing_sold(app.state.parts)
        if reason is not None:
            telemetry.logger().warning("nothing can be sold", reason=reason)

    try:
        app = build(settings)
        telemetry.configure_logs(settings.log_level)
        listener = start.listen(host, port)
        if settings.metrics_port is not None:
            _serve_metrics(settings.metrics_host, settings.metrics_port)
        start.run(
            app,
            listener,
            limits=Limits(),
            refusals=EarlyRefusals(app.state.parts.header_names, app.state.parts.cors),
            client_of=counted_as,
            started=started,
            explain=_explain,
            trusted_proxies=settings.trusted_proxies,
            graceful_seconds=settings.verify_timeout + settings.settle_timeout + 15 + RECORD_FOR,
        )
    except start.StartFailed as error:
        say(visible(str(error)))
        raise typer.Exit(1 if isinstance(error.__cause__, StoreUnavailable | RateStorageUnavailable) else 2) from None


def _explain(failure: Exception) -> str:
    """Return which setting made the start fail, and what to do, in one line."""
    from ranking_evaluate.attempts.store import StoreUnavailable
    from ranking_evaluate.http.heads import HeadTooLong
    from ranking_evaluate.rates import RateStorageUnavailable

    match failure:
        case StoreUnavailable():
            return (
                f"{PREFIX}DATABASE_URL: {failure}. "
                "Check that the place exists, can be written, and is reached from here."
            )
        case RateStorageUnavailable():
            return (
                f"{PREFIX}RATE_STORAGE_URL: {failure}. Check that Redis runs there, or count in memory with memory://."
            )
        case HeadTooLong():
            return (
                f"The service cannot start: {failure}. "
                f"Take payments in fewer places ({PREFIX}X402_NETWORK), or choose a shorter {PREFIX}PUBLIC_ORIGIN."
            )
        case _:
            return f"The service cannot start: {type(failure).__name__}."


def _serve_metrics(host: str, port: int) -> None:
    from ranking_evaluate import telemetry

    try:
        telemetry.serve_metrics(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError([f"{PREFIX}METRICS_PORT: cannot listen on {host} port {port}: {reason}"]) from None
