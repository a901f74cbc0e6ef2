"""Signed requests to Coinbase's mainnet facilitator; the only importer of cdp-sdk, which the extra [cdp] installs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from ranking_evaluate.payments.config import CdpKey

Sign = Callable[[str, str], Mapping[str, str]]
"""The headers that sign one request, given its method and its URL; raises when it cannot be signed."""


class CdpUnusable(Exception):
    """Requests cannot be signed with these settings; the text says what to do."""


def signer(key: CdpKey) -> Sign:
    """Return what signs requests with a CDP API key; the key is tried once, so that a wrong one stops the start.

    Raises:
        CdpUnusable: The SDK is not installed, or the key is not one.
    """
    try:
        # Not `cdp.x402`: importing that writes to the standard output and to a temporary file.
        from cdp.auth.utils.http import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            GetAuthHeadersOptions,
            get_auth_headers,
        )
    except ImportError:
        raise CdpUnusable("the facilitator `cdp` needs `pip install 'ranking-evaluate[cdp]'`") from None

    def sign(method: str, url: str) -> Mapping[str, str]:
        parts = urlsplit(url)
        headers = get_auth_headers(
            GetAuthHeadersOptions(
                api_key_id=key.id,
                api_key_secret=key.secret,
                request_method=method,
                request_host=parts.netloc,
                request_path=parts.path,
                source="x402",
                source_version="2.0.0",
            )
        )
        return {name.lower(): value for name, value in headers.items()}

    try:
        sign("GET", "https://try.invalid/")
    except Exception:  # noqa: BLE001 - the SDK wraps what it raises, and its text could quote the secret.
        raise CdpUnusable(
            "CDP_API_KEY_SECRET is not a key: it is the base64 text of an Ed25519 key or the PEM text of an EC key"
        ) from None
    return sign
