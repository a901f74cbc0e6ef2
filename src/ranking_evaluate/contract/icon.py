"""The service's icon: the same three bars as on the home page, in 16, 32 and 64 pixels."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

PATH: Final = "/favicon.ico"


@cache
def icon() -> bytes:
    """Return the icon as a file of the form ICO."""
    return (resources.files(__package__) / "texts/favicon.ico").read_bytes()
