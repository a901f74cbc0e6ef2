"""The only place where parts meet: settings -> store and rails -> application."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.attempts.watched import WatchedStore
from ranking_evaluate.http.app import build_app
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.payments.cdp import CdpUnusable
from ranking_evaluate.payments.mpp import MppProtocol
from ranking_evaluate.payments.protocol import PaymentProtocol
from ranking_evaluate.payments.unconfigured import UnconfiguredRail
from ranking_evaluate.payments.x402 import X402Protocol
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates, RateStorageUnavailable
from ranking_evaluate.settings import Settings, SettingsError

SQLITE: Final = "sqlite:///"


def build(settings: Settings) -> FastAPI:
    """Return the service for these settings; nothing is opened or asked before the application starts."""
    store = WatchedStore(open_store(settings.database_url))
    protocols = rails(settings)
    try:
        rates = Rates(settings.rate_storage_url, settings.request_rate, settings.payment_rate)
    except RateStorageUnavailable as error:
        raise SettingsError([f"RANKING_EVALUATE_RATE_STORAGE_URL: {error}"]) from None
    purchases = Purchases(
        store,
        rates,
        protocols,
        verify_timeout=settings.verify_timeout,
        settle_timeout=settings.settle_timeout,
    )
    return build_app(
        Parts(
            store=store,
            protocols=protocols,
            purchases=purchases,
            rates=rates,
            public_origin=settings.public_origin,
            max_in_flight=settings.max_in_flight,
            cors_origins=settings.cors_origins,
            security_contact=settings.security_contact,
        )
    )


def rails(settings: Settings) -> tuple[PaymentProtocol, ...]:
    """Return every payment protocol, one line each; the ones without settings say that they are not configured."""
    try:
        x402 = X402Protocol(settings.x402) if settings.x402 else _unconfigured(X402Protocol)
    except CdpUnusable as error:
        raise SettingsError([f"RANKING_EVALUATE_X402_FACILITATOR_URL: {error}"]) from None
    return (
        x402,
        MppProtocol(settings.mpp) if settings.mpp else _unconfigured(MppProtocol),
    )


def _unconfigured(protocol: type[X402Protocol | MppProtocol]) -> UnconfiguredRail:
    return UnconfiguredRail(protocol.wire, protocol.headers, protocol.carries_credential)


def open_store(database_url: str, *, create: bool = True) -> AttemptStore:
    """Return the store behind the URL, not opened yet; only with `create` does opening it make a missing one.

    Raises:
        SettingsError: The URL needs an extra that is not installed, or cannot be read.
    """
    if database_url.startswith(SQLITE):
        return SqliteStore(database_url.removeprefix(SQLITE), create=create)
    try:
        from psycopg import ProgrammingError, conninfo

        from ranking_evaluate.attempts.postgres import PostgresStore
    except ImportError:
        raise SettingsError(
            ["RANKING_EVALUATE_DATABASE_URL: a postgresql:// store needs `pip install 'ranking-evaluate[postgres]'`"]
        ) from None
    try:
        conninfo.conninfo_to_dict(database_url)
    except ProgrammingError:
        # Its own message may quote the password.
        raise SettingsError(["RANKING_EVALUATE_DATABASE_URL: not a PostgreSQL URL that can be read"]) from None
    return PostgresStore(database_url, create=create)
