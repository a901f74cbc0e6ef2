"""`ranking-evaluate serve`: the paid service, one process."""

from __future__ import annotations

from typing import Annotated

import typer

from ranking_evaluate.settings import PREFIX, Settings, SettingsError, read_settings


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; anything but loopback needs PUBLIC_ORIGIN.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8402,
) -> None:
    """Serve the paid operations; settings are RANKING_EVALUATE_* environment variables, read once."""
    try:
        _serve(read_settings(host=host, port=port), host, port)
    except SettingsError as error:
        for fault in error.faults:
            typer.echo(fault, err=True)
        raise typer.Exit(2) from None


def _serve(settings: Settings, host: str, port: int) -> None:
    # Imported when the settings are known to be right: a wrong one is told at once.
    from ranking_evaluate import telemetry
    from ranking_evaluate.bootstrap import build
    from ranking_evaluate.http import server

    try:
        app = build(settings)
        telemetry.configure_logs(settings.log_level)
        listener = server.listen(host, port)
        if settings.metrics_port is not None:
            _serve_metrics(settings.metrics_port)
        telemetry.logger().info("serving", address=f"http://{host}:{port}", origin=settings.public_origin)
        server.run(
            app,
            listener,
            trusted_proxies=settings.trusted_proxies,
            graceful_seconds=settings.verify_timeout + settings.settle_timeout + 15,
        )
    except server.StartFailed as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None


def _serve_metrics(port: int) -> None:
    from ranking_evaluate import telemetry

    try:
        telemetry.serve_metrics(port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError([f"{PREFIX}METRICS_PORT: cannot listen on port {port}: {reason}"]) from None
