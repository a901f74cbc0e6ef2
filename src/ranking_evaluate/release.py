"""The release: the one place where the version and its date are written; pyproject.toml reads it from here."""

from typing import Final

VERSION: Final = "0.29.0"
RELEASED_AT: Final = "2026-11-30T00:00:00Z"
