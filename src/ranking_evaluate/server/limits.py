"""What one caller may take of the server: seconds, bytes and connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of one server."""

    head_seconds: float = 10.0
    """For a request line with all its headers, from the connection or the last answer: an idle connection ends too."""

    head_bytes: int = 40_960
    """32 KiB of headers, which the application takes, and 8 KiB for a request line."""

    body_seconds: float = 10.0
    """For the whole body, from the end of its head."""

    message_bytes: int = 1_048_576
    """For a head and its body on the wire: the longest body fits in one-byte chunks, an endless trailer does not."""

    write_seconds: float = 30.0
    """For a caller to take what was written for it."""

    linger_seconds: float = 2.0
    linger_bytes: int = 262_144
    """How long and how much a caller may go on sending after an answer that did not wait for all of its request.

    Closing at once would make the kernel send a reset, which can overtake the answer.
    """

    max_connections: int = 2_048
    """Open connections; one more costs the place of the one that has been idle for the longest."""

    max_connections_of_one: int = 64
    """Open connections of one client; one more costs the place of its own that has been idle for the longest."""
