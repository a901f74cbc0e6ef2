"""One connection: uvicorn's protocol for httptools with deadlines and sizes, so that no caller can hold or flood it.

`phases.py` says what happens to the bytes that arrive, `limits.py` how long and how large each phase may be. The
deadline of a phase ends with it; what is written has a deadline of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ranking_evaluate import telemetry
from ranking_evaluate.deadline import Deadline
from ranking_evaluate.server.buffered_transport import BufferedTransport
from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.phases import ENDED, MOVES, READING, Event, Phase
from ranking_evaluate.server.places import Places
from ranking_evaluate.server.refusals import Refusal, Refusals, Scope, not_http

MakeRefusal: TypeAlias = Callable[[Limits, Scope | None], Refusal]
"""One method of `Refusals`."""

_SILENT: Final = logging.getLogger(f"{__name__}.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's httptools protocol with deadlines, sizes and one answer for each request.

    Args:
        config: See uvicorn, which makes one protocol for each connection with these four.
        server_state: The same.
        app_state: The same.
        _loop: The same.
        limits: What the caller may take.
        refusals: The answers to what goes over the limits.
        places: The connections of this server; all of them share it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: Limits,
        refusals: Refusals,
        places: Places[BoundedConnection],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # What goes wrong within an answer is logged by the application, and what is not HTTP is counted.
        self.logger = _SILENT
        self._limits = limits
        self._refusals = refusals
        self._places = places
        self._phase = Phase.WAITING
        self._received = 0
        self._deadline = Deadline(self.loop, self._overdue)
        self._write_deadline = Deadline(self.loop, self._abort)

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; where there are too many, one that has been idle for long makes room for it."""
        super().connection_made(transport)
        ends = self._places.take(self, self.client[0] if self.client else None)
        if ends is not None:
            telemetry.CUT_OFF.labels("crowded").inc()
            ends._abort()
            if ends is self:
                return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadlines, and tell the application of every request that nobody waits for its answer."""
        self._move(Event.LOST)
        self._write_deadline.cancel()
        self._places.leave(self)
        # uvicorn itself tells only the newest of several pipelined requests.
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish the answer under way, and take no further request."""
        if self._phase in ENDED:
            self._abort()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Give the caller some time to take what is written for it."""
        super().pause_writing()
        self._write_deadline.set(self._limits.write_seconds)

    def resume_writing(self) -> None:
        """Go on, since the caller reads."""
        super().resume_writing()
        self._write_deadline.cancel()

    # What arrives.

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, unless it is of no use or too much."""
        self._received += len(data)
        if self._phase is Phase.LINGERING and self._received > self._limits.linger_bytes:
            self._abort()
        if self._phase not in READING:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is answered like any other, but what follows it may be in another protocol.
            self._move(Event.STOP_READING)
            self._end_after_answer()
        except httptools.HttpParserError:
            self._cut_off("not http", not_http)
        self._check_size()

    def _check_size(self) -> None:
        if self._phase is Phase.READING_BODY:
            if self._received > self._limits.message_bytes:
                self._cut_off("message too long", None)
            elif not self._deadline.is_set:
                # Most bodies arrive with their heads, and need no timer.
                self._deadline.set(self._limits.body_seconds)
        elif self._phase in READING and self._received > self._limits.head_bytes:
            self._cut_off("head too long", self._refusals.head_too_long)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._move(Event.REQUEST_BEGINS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer, which comes the same way, is dropped: it could name another key."""
        if self._phase is Phase.READING_HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind the one that is being answered."""
        # A target that uvicorn cannot split raises here: the phase is still the head's, and no request has begun.
        super().on_headers_complete()
        self._move(Event.HEAD_ENDS)
        self._places.work(self)
        # It has all of a transport that a cycle calls.
        self.cycle.transport = BufferedTransport(self.transport, self.cycle, self._end)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """Finish the request's body."""
        super().on_message_complete()
        self._move(Event.REQUEST_ENDS)
        if self.cycle.response_complete:
            self._await_request()

    # Answers, and the end.

    def on_response_complete(self) -> None:
        """Start the next of several pipelined requests, or wait for one."""
        self.server_state.total_requests += 1
        if self._phase in ENDED or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._phase is Phase.IGNORING:
            self._end()
        else:
            self._await_request()

    def _end(self) -> None:
        """Close the connection after what was written; a caller that is still sending is heard out for a moment."""
        if self._phase in ENDED:
            return
        self._move(Event.LAST_WRITE)
        self._places.work(self)
        self._write_deadline.cancel()
        if self.transport.is_closing():
            return
        if self._phase is Phase.CLOSING:
            self._deadline.set(self._limits.write_seconds)
            self.transport.close()
            return
        self._deadline.set(self._limits.linger_seconds)
        self.flow.resume_reading()
        # The caller is gone already where this fails.
        with contextlib.suppress(OSError, RuntimeError):
            self.transport.write_eof()

    def _end_after_answer(self) -> None:
        if self.cycle.response_complete:
            self._end()
        else:
            self.cycle.keep_alive = False

    def _cut_off(self, reason: str, make_refusal: MakeRefusal | None) -> None:
        """Read nothing more, and end once the answers that are owed are written: this refusal, or those before it."""
        telemetry.CUT_OFF.labels(reason).inc()
        has_head = self._phase is Phase.READING_BODY
        self._move(Event.STOP_READING)
        if has_head and self.pipeline:
            # The request waits for the answer to another one, which will be the last.
            cycle, _ = self.pipeline.popleft()
            cycle.disconnected = True
        elif has_head and not self.cycle.response_started:
            # The application sees the caller as gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._refuse(make_refusal, self.cycle.scope)  # type: ignore[arg-type]  # A TypedDict is a dict to us.
        elif self.cycle is not None and (has_head or not self.cycle.response_complete):
            self._end_after_answer()
        else:
            self._refuse(make_refusal, None)

    def _refuse(self, make_refusal: MakeRefusal | None, scope: Scope | None) -> None:
        if make_refusal is not None:
            self._write(make_refusal(self._limits, scope))
        self._end()

    def _write(self, refusal: Refusal) -> None:
        lines = [*self.server_state.default_headers, *refusal.headers, (b"connection", b"close")]
        lines.append((b"content-length", str(len(refusal.body)).encode()))
        head = b"".join(b"%b: %b\r\n" % line for line in lines)
        phrase = HTTPStatus(refusal.status).phrase.encode()
        self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (refusal.status, phrase, head, refusal.body))

    # Phases and deadlines.

    def _move(self, event: Event) -> None:
        self._phase = MOVES[self._phase, event]
        if event is not Event.HEAD_ENDS:
            # Bytes are counted for a whole request, and for each phase without one.
            self._received = 0
        if event is not Event.REQUEST_BEGINS:
            # A head's deadline has been running since before its first byte.
            self._deadline.cancel()

    def _await_request(self) -> None:
        """Wait for a head, since no answer is owed; while the last body still arrives, its deadline comes first."""
        if self.transport.is_closing():
            return
        self._places.wait(self)
        if self._phase is not Phase.READING_BODY:
            self._deadline.set(self._limits.head_seconds)

    def _overdue(self) -> None:
        if self._phase is Phase.READING_BODY:
            self._cut_off("body too slow", self._refusals.body_too_slow)
            return
        if self._phase is Phase.READING_HEAD:
            telemetry.CUT_OFF.labels("head too slow").inc()
        self._abort()

    def _abort(self) -> None:
        self._places.leave(self)
        self.transport.abort()
