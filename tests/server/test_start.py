"""What the server is configured with, and what it checks before it starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import httptools
import pytest
import uvicorn

from ranking_evaluate.server.limits import Limits
from ranking_evaluate.server.refusals import Scope
from ranking_evaluate.server.start import StartFailed, configuration
from tests.server.test_connection import BareRefusals


async def app(scope: Scope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    raise AssertionError("nothing is served here")


def configured(*trusted_proxies: str) -> uvicorn.Config:
    return configuration(
        app,
        limits=Limits(),
        refusals=BareRefusals(),
        client_of=str,
        trusted_proxies=trusted_proxies,
        graceful_seconds=2,
    )


def test_the_parser_is_asserted_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured()
    config.load()
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
        configured()


def test_no_trusted_proxy_means_no_proxy_headers() -> None:
    config = configured("10.0.0.1")
    assert config.proxy_headers is True
    # Python 3.13 spells the second form in another way.
    believed = [ipaddress.ip_network(network) for network in config.forwarded_allow_ips or ()]
    assert believed == [ipaddress.ip_network("10.0.0.1/32"), ipaddress.ip_network("::ffff:a00:1/128")]
