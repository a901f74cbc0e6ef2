"""What an operator configures: RANKING_EVALUATE_* variables, read and checked once."""

from ranking_evaluate.settings.environment import (
    CDP_VARIABLES,
    PREFIX,
    VARIABLES,
    Settings,
    SettingsError,
    Wallet,
    read_database_url,
    read_settings,
    read_wallet,
)

__all__ = [
    "CDP_VARIABLES",
    "PREFIX",
    "VARIABLES",
    "Settings",
    "SettingsError",
    "Wallet",
    "read_database_url",
    "read_settings",
    "read_wallet",
]
