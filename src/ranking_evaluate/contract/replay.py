"""For how long a paid purchase is sent again: the one number, from which code and texts take it."""

from typing import Final

REPLAY_HOURS: Final = 24
"""Hours for which a paid answer is delivered again to the identical request, and a failed attempt is remembered."""

REPLAY_WINDOW: Final = REPLAY_HOURS * 3600.0
"""The same in seconds."""
