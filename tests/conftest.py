"""What every test may use."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run the async tests on asyncio, the loop that the service runs on."""
    return "asyncio"
