"""A delivery, a document or a refusal -> a response."""

from __future__ import annotations

import random
from collections.abc import Mapping

import orjson
from fastapi.responses import JSONResponse, Response
from starlette.background import BackgroundTask

from ranking_evaluate.contract.errors import PaymentRequired, ServiceError
from ranking_evaluate.http.headers import HeaderNames
from ranking_evaluate.order import Delivery

Headers = tuple[tuple[bytes, bytes], ...]


def common_headers(names: HeaderNames) -> Headers:
    """Return the headers of every answer."""
    return ((b"vary", names.vary.encode()), (b"x-content-type-options", b"nosniff"))


def new_request_id() -> str:
    """Return the id under which one request is answered and logged."""
    # It is no secret, and the kernel's random bytes take ten times as long.
    return f"{random.getrandbits(96):024x}"


class UnstoredJson(JSONResponse):
    """A JSON document of this moment, which no cache may keep."""

    def __init__(
        self,
        content: object,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        background: BackgroundTask | None = None,
    ) -> None:
        headers = {"cache-control": "no-store", **(headers or {})}
        super().__init__(content, status_code, headers, media_type, background)

    def render(self, content: object) -> bytes:
        """Return the document as bytes."""
        return orjson.dumps(content)


def deliver(delivery: Delivery) -> Response:
    """Return the 200 of a paid answer: the same bytes and the same receipt every time."""
    headers = {delivery.receipt_header: delivery.receipt, "cache-control": "private, no-store"}
    if delivery.replayed:
        headers["idempotent-replayed"] = "true"
    return Response(delivery.body, headers=headers, media_type="application/json")


def refuse(error: ServiceError, request_id: str) -> Response:
    """Return the RFC 9457 problem of a refusal."""
    headers = dict(error.headers)
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, PaymentRequired):
        headers["cache-control"] = "no-store"
    return Response(
        orjson.dumps(error.problem(request_id)), error.status, headers=headers, media_type="application/problem+json"
    )
