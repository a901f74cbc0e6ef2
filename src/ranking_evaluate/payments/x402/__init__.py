"""Payments over x402 v2, scheme exact, by EIP-3009 authorizations; the service's only importer of the x402 SDK."""

from ranking_evaluate.payments.config import X402Config
from ranking_evaluate.payments.x402.protocol import X402Protocol

__all__ = ["X402Config", "X402Protocol"]
