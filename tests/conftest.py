"""What every test may use, and the tiers of tests.

`scripts/test unit` runs the tests that need Python alone: no chain, Node, browser, database or cache server, and no
network beyond this machine. A test belongs to it unless its folder or module is in BEYOND_UNIT, or it carries the mark
`beyond_unit`. `scripts/test` runs those and all others, but for two folders that have scripts of their own:
`scripts/faults` and `scripts/judges`. `.ci/run` calls all three; tests/test_tiers.py holds them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests import published
from tests.postgres import PostgresServer

BEYOND_UNIT: Final = (
    "bench",  # Times whole services.
    "deploy",  # Served processes behind nginx.
    "faults",  # Chains, PostgreSQL, services that are killed.
    "hostile",  # Served processes.
    "judges",  # Chains, Node, a browser.
    "sandbox",  # Chains.
    "attempts/test_durability.py",  # PostgreSQL.
    "attempts/test_migrations.py",  # PostgreSQL, processes that are killed.
    "attempts/test_neighbours.py",  # Processes that share a store.
    "attempts/test_postgres.py",
    "attempts/test_power.py",  # Hundreds of power cuts.
    "cli/test_attempts.py",  # Chains, PostgreSQL.
    "cli/test_demo.py",  # Chains.
    "cli/test_pay_tls.py",  # A process for each certificate.
    "cli/test_mcp.py",  # Served processes.
    "cli/test_progress.py",  # Processes that read a large file.
    "cli/test_serve.py",  # Served processes.
    "cli/test_serve_check.py",  # A chain.
    "cli/test_terminal.py",  # A process on a terminal for each thing that a command may print.
    "cli/test_sales.py",  # PostgreSQL.
    "contract/test_runnable_cases.py",  # Node.
    "contract/test_document.py",  # Thousands of generated inputs against every schema.
    "core/test_paired.py",  # Thousands of generated comparisons against SciPy.
    "evaluations/test_processes.py",  # Worker processes.
    "http/test_preflight.py",  # Thousands of generated inputs, each sent twice.
    "interchange/test_convert.py",  # Hundreds of generated collections.
    "interchange/test_report.py",  # Pages of hundreds of queries.
    "interchange/test_merge.py",  # Hundreds of generated collections.
    "oracles/test_peers.py",  # Other tools, of which one runs in a process of its own.
    "payments/test_cdp.py",  # An SDK that takes seconds to import.
    "payments/test_evm.py",  # A chain.
    "payments/test_late_loop.py",  # Holds its loop up, second by second.
    "payments/test_mpp.py",  # A chain.
    "server/test_connection.py",  # Waits for deadlines.
    "test_deadline.py",  # Holds its loop up.
    "test_next_steps.py",  # Hundreds of purchases, each with a store of its own.
    "test_packaging.py",  # Parses all of the source, again and again.
    "test_rates_redis.py",
    "test_readme.py",  # Chains.
    "test_sbom.py",  # A library that only a checkout needs.
    "test_where_to_change.py",  # Copies of the package, each in processes of its own.
)
"""The folders and modules whose tests start other programs, or take long."""

LOOPBACK: Final = ["127.0.0.1", "::1"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="run the unit tier alone; see tests/conftest.py")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "beyond_unit: the test starts another program, so it is not in the unit tier")


def pytest_report_header() -> str:
    return "every answer of the service to an httpx client is held against its published schema: tests/published.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    place = collection_path.relative_to(Path(__file__).parent) if config.getoption("--unit") else None
    return True if place is not None and place.as_posix() in BEYOND_UNIT else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--unit"):
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("beyond_unit")])
    items[:] = [item for item in items if not item.get_closest_marker("beyond_unit")]
    for item in items:
        item.add_marker(pytest.mark.allow_hosts(LOOPBACK))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the async tests on asyncio, the loop that the service runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """One PostgreSQL for the session of a test process; each test takes a database of its own."""
    assert not request.config.getoption("--unit"), "a test with PostgreSQL is not in the unit tier: mark it beyond_unit"
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def every_answer_is_as_published() -> Iterator[None]:
    """Patch httpx's clients for the whole run, so that they hold each answer of the service against its schema.

    `tests/published.py` tells the service's answers from others, and says what is wrong with one. An answer that is not
    as published fails the test that asked for it; where the code under test swallows that, the run fails at its end.
    """
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
