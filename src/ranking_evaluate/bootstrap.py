"""The only place where parts meet: settings -> store and protocols -> application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from fastapi import FastAPI

from ranking_evaluate import telemetry
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.attempts.store import AttemptStore
from ranking_evaluate.attempts.watched import WatchedStore
from ranking_evaluate.chains import Chains
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.evaluations.evaluations import Evaluations
from ranking_evaluate.evaluations.processes import cores
from ranking_evaluate.http.app import build_app
from ranking_evaluate.http.dependencies import Parts
from ranking_evaluate.http.health import readiness
from ranking_evaluate.keeper import CALLS_A_SECOND
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.payments.cdp import CdpUnusable
from ranking_evaluate.payments.mpp.protocol import MppProtocol
from ranking_evaluate.payments.pace import Pace
from ranking_evaluate.payments.protocol import PaymentProtocol
from ranking_evaluate.payments.x402.protocol import X402Protocol
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.rates import Rates, RateStorageUnavailable
from ranking_evaluate.settings import Settings, SettingsError

SQLITE: Final = "sqlite:///"


class Known(NamedTuple):
    """A payment protocol that this release speaks: how callers see it, and how it is made where it is configured."""

    wire: Wire
    configured: Callable[[Settings], PaymentProtocol | None]


PROTOCOLS: Final = (
    Known(X402Protocol.wire, lambda settings: X402Protocol(settings.x402) if settings.x402 else None),
    Known(MppProtocol.wire, lambda settings: MppProtocol(settings.mpp) if settings.mpp else None),
)
"""Every payment protocol, a line each: routes, headers, documents and readiness are made from this list."""

WIRES: Final = tuple(protocol.wire for protocol in PROTOCOLS)


def build(settings: Settings, known: tuple[Known, ...] = PROTOCOLS) -> FastAPI:
    """Return the service for these settings; nothing is opened or asked before the application starts."""
    store = WatchedStore(open_store(settings.database_url))
    protocols = configured(settings, known)
    wires = tuple(protocol.wire for protocol in known)
    try:
        rates = Rates(settings.rate_storage_url, settings.request_rate, settings.payment_rate)
    except RateStorageUnavailable as error:
        raise SettingsError([f"RANKING_EVALUATE_RATE_STORAGE_URL: {error}"]) from None
    evaluations = Evaluations(settings.evaluation_workers or max(1, cores() - 1), settings.evaluation_rate)
    # What the service itself does not decide, nobody is told that it will.
    chains = Chains(protocols if settings.reconcile else (), Pace(CALLS_A_SECOND))
    purchases = Purchases(
        store,
        rates,
        evaluations,
        wires,
        chains=chains,
        verify_timeout=settings.verify_timeout,
        settle_timeout=settings.settle_timeout,
        previous_origin=settings.previous_origin,
    )
    telemetry.begin_series([protocol.wire.name for protocol in protocols], [each.id for each in OPERATIONS])
    telemetry.READY.labels("store").set_function(lambda: not store.has_failed)
    for protocol in protocols:
        telemetry.READY.labels(protocol.wire.name).set_function(partial(_is_ready, protocol))
    return build_app(
        Parts(
            store=store,
            chains=chains,
            wires=wires,
            protocols=protocols,
            purchases=purchases,
            evaluations=evaluations,
            rates=rates,
            public_origin=settings.public_origin,
            max_in_flight=settings.max_in_flight,
            cors_origins=settings.cors_origins,
            security_contact=settings.security_contact,
        )
    )


def _is_ready(protocol: PaymentProtocol) -> bool:
    return readiness(protocol).ready


def configured(settings: Settings, known: tuple[Known, ...] = PROTOCOLS) -> tuple[PaymentProtocol, ...]:
    """Return the payment protocols that the operator has configured.

    Raises:
        SettingsError: Requests to Coinbase's facilitator cannot be signed.
    """
    try:
        found = [protocol.configured(settings) for protocol in known]
    except CdpUnusable as error:
        raise SettingsError([f"RANKING_EVALUATE_X402_FACILITATOR_URL: {error}"]) from None
    return tuple(protocol for protocol in found if protocol is not None)


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
