"""What the server is configured with, and what it checks before it starts."""

from __future__ import annotations

import httptools
import pytest
from starlette.types import Receive, Scope, Send

from ranking_evaluate.http.connections import BoundedProtocol
from ranking_evaluate.http.server import StartFailed, configuration


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nothing is served here")


def test_the_parser_is_asserted_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(app, trusted_proxies=(), graceful_seconds=2)
    config.load()
    assert config.http_protocol_class is BoundedProtocol
    assert config.ws_protocol_class is None
    assert config.server_header is False
    assert config.proxy_headers is False

    class Lenient:
        def __init__(self, protocol: object) -> None:
            pass

        def feed_data(self, data: bytes) -> None:
            pass

    monkeypatch.setattr(httptools, "HttpRequestParser", Lenient)
    with pytest.raises(StartFailed, match="malformed HTTP"):
        configuration(app, trusted_proxies=(), graceful_seconds=2)


def test_no_trusted_proxy_means_no_proxy_headers() -> None:
    config = configuration(app, trusted_proxies=("10.0.0.1",), graceful_seconds=2)
    assert (config.proxy_headers, config.forwarded_allow_ips) == (True, ["10.0.0.1"])
