"""x402 as callers see it."""

from __future__ import annotations

from typing import Final

from ranking_evaluate.contract.wire import X402_VERSION, Wire, shipped, shipped_clients

SCHEME: Final = "exact"

WIRE: Final = Wire(
    name="x402",
    title="x402",
    credential_header="PAYMENT-SIGNATURE",
    challenge_header="PAYMENT-REQUIRED",
    receipt_header="PAYMENT-RESPONSE",
    # @x402/fetch and @x402/axios set the first one on paid requests, clients of version 1 the other.
    client_headers=("Access-Control-Expose-Headers", "X-PAYMENT"),
    facts=(
        ("version", X402_VERSION),
        ("scheme", SCHEME),
        ("paymentIdentifier", "payment-identifier extension MUST equal the HTTP Idempotency-Key"),
        ("sdk", "@x402/core with @x402/evm"),
    ),
    guide=shipped(__package__, "guide.md"),
    clients=shipped_clients(__package__, "pay_x402.py", "pay_x402.mjs"),
)
