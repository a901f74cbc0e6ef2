"""The whole service in a thread of this process: bootstrap's application on a real socket, with a clock to shift."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import uvicorn

from ranking_evaluate import bootstrap
from ranking_evaluate.attempts.sqlite import SqliteStore
from ranking_evaluate.payments.config import MppConfig
from ranking_evaluate.purchase import Purchases
from ranking_evaluate.release import VERSION
from ranking_evaluate.sandbox.processes import LOOPBACK
from ranking_evaluate.settings import read_settings

START_SECONDS = 20.0


@dataclass
class Clock:
    """The wall clock, moved on by `shift` seconds: the service's idea of leases, windows and expiries."""

    shift: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift


@dataclass
class Served:
    """A running service; `clock` is the one that it and its store decide by."""

    origin: str
    database: Path
    mpp: MppConfig
    clock: Clock
    client: httpx.Client = field(repr=False)

    def open_store(self) -> SqliteStore:
        """Return a second door to the database, as an operator's command has one."""
        return SqliteStore(self.database, self.clock)


@contextlib.contextmanager
def served(database: Path, environment: Mapping[str, str], release: str = VERSION) -> Iterator[Served]:
    """Serve with these settings (without their prefix), as this release, until the end of the block."""
    given = {"REQUEST_RATE": "", "PAYMENT_RATE": "", **environment, "DATABASE_URL": f"sqlite:///{database}"}
    clock = Clock()
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port = listener.getsockname()[1]
        settings = read_settings({f"RANKING_EVALUATE_{name}": value for name, value in given.items()}, port=port)
        assert settings.mpp is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bootstrap, "SqliteStore", functools.partial(SqliteStore, clock=clock))
            patch.setattr(bootstrap, "Purchases", functools.partial(Purchases, clock=clock, release=release))
            app = bootstrap.build(settings)
        config = uvicorn.Config(app, http="httptools", ws="none", lifespan="on", access_log=False, log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + START_SECONDS
            while not server.started:
                assert thread.is_alive()
                assert time.monotonic() < deadline
                time.sleep(0.005)
            # Callers may know it by a public name, which nobody here could look up.
            origin = f"http://{LOOPBACK}:{port}"
            with httpx.Client(base_url=origin, trust_env=False, timeout=30) as client:
                yield Served(origin, database, settings.mpp, clock, client)
        finally:
            server.should_exit = True
            thread.join()
