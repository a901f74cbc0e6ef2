"""Payments over x402 v2, scheme exact, by EIP-3009 authorizations; the service's only importer of the x402 SDK."""
