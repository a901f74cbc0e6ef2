"""What the service answers to requests that the server ends before the application has read them."""

from __future__ import annotations

from ranking_evaluate import telemetry
from ranking_evaluate.contract.errors import RequestMalformed, RequestTimeout, ServiceError
from ranking_evaluate.http.cors import Cors, origin_of
from ranking_evaluate.http.headers import HeaderNames
from ranking_evaluate.http.responses import common_headers, new_request_id, refuse
from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.refusals import Refusal, Scope


class EarlyRefusals:
    """The server's refusals in the form of the application's own: a problem, a request id and a log line.

    Args:
        names: The header names of the application, for Vary.
        cors: Who may read them in a browser.
    """

    def __init__(self, names: HeaderNames, cors: Cors) -> None:
        self._common = common_headers(names)
        self._cors = cors

    def head_too_long(self, limits: Limits, scope: Scope | None) -> Refusal:
        """Return HEADER_INVALID."""
        detail = f"The request's head is over {limits.head_bytes} bytes."
        return self._refusal(RequestMalformed("HEADER_INVALID", detail), scope)

    def body_too_slow(self, limits: Limits, scope: Scope | None) -> Refusal:
        """Return REQUEST_TIMEOUT."""
        detail = f"The body did not arrive within {limits.body_seconds:g} seconds."
        return self._refusal(RequestTimeout("REQUEST_TIMEOUT", detail), scope)

    def _refusal(self, error: ServiceError, scope: Scope | None) -> Refusal:
        # The application writes the log line of a request that it has begun with.
        begun: telemetry.Request | None = scope["state"].get("told") if scope else None
        record = begun or telemetry.Request(new_request_id())
        record.status, record.code = error.status, error.code
        if begun is None:
            telemetry.log_request(record)
        response = refuse(error, record.request_id)
        headers = [line for line in response.raw_headers if line[0] != b"content-length"]
        headers += [(b"x-request-id", record.request_id.encode()), *self._common]
        # The Origin of a head that was not read to its end is not known.
        headers += self._cors.of_answer(origin_of(scope) if scope else None)
        return Refusal(error.status, tuple(headers), bytes(response.body))
