"""What every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests import published
from tests.postgres import PostgresServer


@pytest.fixture
def anyio_backend() -> str:
    """Run the async tests on asyncio, the loop that the service runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the session of a test process; each test takes a database of its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def every_answer_is_as_published() -> Iterator[None]:
    """Hold every answer of the service in the whole run, to whichever httpx client, against the published schemas."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.Client, "send", published.checking(httpx.Client.send))
        patch.setattr(httpx.AsyncClient, "send", published.checking_async(httpx.AsyncClient.send))
        yield
    assert not published.FOUND


@pytest.fixture
def stoppable_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """The same server for a test that stops it; afterwards it runs again."""
    yield postgres_server
    postgres_server.start()
