"""The header names of the two protocols as browsers and caches have always been told them."""

from __future__ import annotations

from ranking_evaluate.http.headers import header_names
from ranking_evaluate.payments.mpp.protocol import MppProtocol
from ranking_evaluate.payments.x402.protocol import X402Protocol


def test_the_names_for_x402_and_mpp_are_the_published_ones() -> None:
    names = header_names((X402Protocol.wire, MppProtocol.wire))
    assert names.vary == "Idempotency-Key, PAYMENT-SIGNATURE, Authorization, Origin"
    assert names.allowed == (
        *("Content-Type", "Idempotency-Key", "PAYMENT-SIGNATURE", "Authorization"),
        *("Access-Control-Expose-Headers", "X-PAYMENT", "Accept-Payment"),
        *("X-Request-Id", "traceparent", "tracestate"),
    )
    assert ", ".join(names.exposed) == (
        "PAYMENT-REQUIRED, PAYMENT-RESPONSE, WWW-Authenticate, Payment-Receipt, Retry-After, Idempotent-Replayed, "
        "X-Request-Id"
    )
    assert names.singletons == {
        *("idempotency-key", "content-type", "content-encoding", "payment-signature", "authorization")
    }
