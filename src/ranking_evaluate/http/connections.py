"""One connection: uvicorn's protocol for httptools with deadlines and sizes, so that nobody can hold or flood it.

What a caller may take: `HEAD_SECONDS` for a request's head, from the connection or from the last answer, so that an
idle connection is closed too; `HEAD_BYTES` for it; `BODY_SECONDS` for its body; `MESSAGE_BYTES` for all of it on the
wire; `WRITE_SECONDS` for taking an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from http import HTTPStatus
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ranking_evaluate import telemetry
from ranking_evaluate.contract.errors import RequestMalformed, RequestTimeout, ServiceError
from ranking_evaluate.http.requests import MAX_HEADER_BYTES
from ranking_evaluate.http.responses import COMMON_HEADERS, new_request_id, refuse

HEAD_SECONDS: Final = 10.0
"""Seconds for a request line with all its headers."""

HEAD_BYTES: Final = MAX_HEADER_BYTES + 8_192
"""The headers that the application takes, and a request line; what is longer is cut off while it arrives."""

BODY_SECONDS: Final = 10.0
"""Seconds in all that a body may take to arrive after its head."""

MESSAGE_BYTES: Final = 1_048_576
"""One message on the wire: the longest body in one-byte chunks fits, an endless trailer or chunk extension does not."""

WRITE_SECONDS: Final = 30.0
"""Seconds for a caller to take what was written for it."""

LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 262_144
"""How long and for how many bytes a connection is heard out after an early answer.

Closing it at once would make the kernel send a reset, which can overtake the answer.
"""

MAX_CONNECTIONS: Final = 2_048
"""Open connections; one more costs the place of the one that has been silent for the longest."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with deadlines, sizes and one answer for each request."""

    silent: ClassVar[dict[BoundedProtocol, None]] = {}
    """The connections that owe a request, the longest-waiting first."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # What is not HTTP is counted and not logged line by line: anybody can send any amount of it.
        self.logger = _quiet
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._in_body = False
        self._message = 0
        self._seen = 0
        self._deaf = False
        self._leaving = False

    # Connections.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; over the cap the longest-silent one makes room for it."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            crowded = next(iter(self.silent), self)
            telemetry.CUT_OFF.labels("crowded").inc()
            crowded._head_arrived()
            crowded.transport.abort()
            if crowded is self:
                return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timers."""
        self._head_arrived()
        self._body_arrived()
        if self._end_timer is not None:
            self._end_timer.cancel()
        # uvicorn tells only the last of several pipelined requests that nobody waits for it any more.
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish what is being answered, and take nothing more."""
        if self._leaving:
            self.transport.abort()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Give the caller some time to take what is written for it."""
        super().pause_writing()
        self._end_within(WRITE_SECONDS)

    def resume_writing(self) -> None:
        """Go on, since the caller reads."""
        super().resume_writing()
        if self._end_timer is not None and not self._leaving:
            self._end_timer.cancel()
            self._end_timer = None

    # What arrives.

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, unless it is of no use or too much."""
        if self._leaving:
            self._seen += len(data)
            if self._seen > LINGER_BYTES:
                self.transport.abort()
            return
        if self._deaf:
            return
        message = self._message
        super().data_received(data)
        if self._in_body and self._body_timer is None and not self._leaving:
            # Most bodies arrive with their heads, and need no timer.
            self._body_timer = self.loop.call_later(BODY_SECONDS, self._body_overdue)
        if self._leaving or self._deaf or message != self._message or not (self._in_head or self._in_body):
            return
        self._seen += len(data)
        if self._in_head and self._seen > HEAD_BYTES:
            telemetry.CUT_OFF.labels("head too long").inc()
            self._refuse(RequestMalformed("HEADER_INVALID", f"The request's head is over {HEAD_BYTES} bytes."))
        elif self._seen > MESSAGE_BYTES:
            telemetry.CUT_OFF.labels("message too long").inc()
            self._leave()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._message += 1
        self._seen = 0
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer, which arrives by the same way, is dropped: it could name another key."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request; what is written for it goes through `_Polite`."""
        self._in_head, self._in_body = False, True
        self._head_arrived()
        super().on_headers_complete()
        self.cycle.transport = _Polite(self, self.cycle)  # type: ignore[assignment]  # It has what a cycle asks for.

    def on_message_complete(self) -> None:
        """Finish the request's body."""
        self._in_body = False
        self._body_arrived()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the next of several pipelined requests, or wait for one."""
        if self._leaving:
            self.server_state.total_requests += 1
            return
        # A request that was taken out of the pipeline is still the newest cycle, and never completes.
        is_last = not self.pipeline
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if is_last:
            if self._deaf:
                self._leave()
            else:
                self._await_head()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer a request that asks for another protocol, and read nothing after it."""
        self._read_no_more()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP and close; the answers to what came before it go first."""
        telemetry.CUT_OFF.labels("not http").inc()
        self._answer(HTTPStatus.BAD_REQUEST, [(b"content-type", b"text/plain; charset=utf-8")], msg.encode())

    # Deadlines.

    def _await_head(self) -> None:
        if self.transport.is_closing():
            return
        self._head_arrived()
        self.silent[self] = None
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_overdue)

    def _head_arrived(self) -> None:
        self.silent.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_overdue(self) -> None:
        self.silent.pop(self, None)
        if self._message and self._in_head:
            telemetry.CUT_OFF.labels("head too slow").inc()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _body_arrived(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _body_overdue(self) -> None:
        self._body_timer = None
        if self._leaving or self._deaf:
            return
        telemetry.CUT_OFF.labels("body too slow").inc()
        if self.cycle.response_complete:
            self._leave()
        else:
            late = f"The body did not arrive within {BODY_SECONDS:g} seconds."
            self._refuse(RequestTimeout("REQUEST_TIMEOUT", late))

    def _end_within(self, seconds: float) -> None:
        if self._end_timer is None:
            self._end_timer = self.loop.call_later(seconds, self.transport.abort)

    # Answers that are not the application's, and the end.

    def _refuse(self, error: ServiceError) -> None:
        """Answer in the service's form what never becomes a request of the application, or will not be finished."""
        begun = self._begun()
        told = begun or telemetry.Request(new_request_id())
        told.status, told.code = error.status, error.code
        response = refuse(error, told.request_id)
        own = [(b"x-request-id", told.request_id.encode()), *COMMON_HEADERS]
        given = [line for line in response.raw_headers if line[0] != b"content-length"]
        if begun is None:
            telemetry.log_request(told)
        self._answer(HTTPStatus(error.status), [*given, *own], bytes(response.body))

    def _begun(self) -> telemetry.Request | None:
        """Return what the application is going to tell of the request that is arriving, if it has begun to read it."""
        if self._in_head or not self._in_body or self.pipeline or self.cycle.response_started:
            return None
        told: telemetry.Request | None = self.cycle.scope["state"].get("told")
        return told

    def _answer(self, status: HTTPStatus, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer the request that is arriving, and close; when it is not its turn, close after those before it."""
        arriving = self._in_body and not self._in_head
        if arriving and self.pipeline:
            cycle, _ = self.pipeline.popleft()
            cycle.disconnected = True
            self._deaf = True
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if not arriving or self.cycle.response_started:
                self._read_no_more()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        lines = [*self.server_state.default_headers, *headers, (b"connection", b"close")]
        lines.append((b"content-length", str(len(body)).encode()))
        head = b"".join(b"%b: %b\r\n" % line for line in lines)
        self.transport.write(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, status.phrase.encode(), head, body))
        self._leave()

    def _read_no_more(self) -> None:
        self._deaf = True
        if self.cycle.response_complete:
            self._leave()
        else:
            self.cycle.keep_alive = False

    def _leave(self) -> None:
        """Close the connection after what was written; while more is arriving, hear it out for a moment first."""
        self._head_arrived()
        self._body_arrived()
        self._unset_keepalive_if_required()
        hear_out = self._in_head or self._in_body or self._deaf
        self._leaving, self._seen = True, 0
        if self.transport.is_closing():
            return
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        if not hear_out:
            self._end_within(WRITE_SECONDS)
            self.transport.close()
            return
        self._end_within(LINGER_SECONDS)
        self.flow.resume_reading()
        # The caller is gone already where this fails.
        with contextlib.suppress(OSError, RuntimeError):
            self.transport.write_eof()


class _Polite:
    """The transport as a request's cycle sees it: an answer is written at once, and closing leaves in an orderly way.

    uvicorn writes the head and the body of an answer apart, and each write is a packet of its own.
    """

    def __init__(self, protocol: BoundedProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self._head = b""
        self._has_begun = cycle.scope["method"] == "HEAD"
        self.is_closing = protocol.transport.is_closing

    def write(self, data: bytes) -> None:
        # What is written before an answer starts is 100 Continue, for which somebody waits.
        if self._has_begun or not self._cycle.response_started:
            self._protocol.transport.write(self._head + data)
            self._head = b""
        else:
            self._head, self._has_begun = data, True

    def close(self) -> None:
        if self._head:
            self.write(b"")
        self._protocol._leave()


_quiet: Final = logging.getLogger(__name__)
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False
