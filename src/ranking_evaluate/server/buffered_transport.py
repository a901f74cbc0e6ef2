"""The transport that the application's answer is written to: head and body leave in one packet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class BufferedTransport:
    """What a cycle of uvicorn uses of a transport. It writes head and body apart, and each write would be a packet.

    Args:
        transport: The connection's transport.
        cycle: The request that is answered.
        end: Ends the connection in place of the transport's `close`.
    """

    def __init__(self, transport: asyncio.Transport, cycle: RequestResponseCycle, end: Callable[[], None]) -> None:
        self._transport = transport
        self._cycle = cycle
        self._end = end
        self._head = b""
        self._is_body_next = cycle.scope["method"] != "HEAD"
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Keep the head until the first piece of the body; write everything else at once."""
        # What is written before an answer starts is 100 Continue, for which the caller waits.
        if self._is_body_next and self._cycle.response_started:
            self._head, self._is_body_next = data, False
        else:
            self._transport.write(self._head + data)
            self._head = b""

    def close(self) -> None:
        """Write a head that is still kept, and end the connection."""
        if self._head:
            self.write(b"")
        self._end()
