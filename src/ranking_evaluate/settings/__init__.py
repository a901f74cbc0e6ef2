"""What an operator configures: environment variables, read and checked once."""

from ranking_evaluate.settings.environment import (
    Settings,
    SettingsError,
    Wallet,
    read_database_url,
    read_settings,
    read_wallet,
)
from ranking_evaluate.settings.variables import PREFIX, VARIABLES

__all__ = [
    "PREFIX",
    "VARIABLES",
    "Settings",
    "SettingsError",
    "Wallet",
    "read_database_url",
    "read_settings",
    "read_wallet",
]
