"""Every request to Coinbase's facilitator is signed for its own method, host and path: a stand-in checks each."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from ranking_evaluate.bootstrap import build
from ranking_evaluate.payments import cdp
from ranking_evaluate.payments.cdp import CdpUnusable, signer
from ranking_evaluate.payments.config import CDP_FACILITATOR, CdpKey
from ranking_evaluate.payments.facilitator import Facilitator
from ranking_evaluate.payments.protocol import NotSent, Settled, Unreachable, Verified
from ranking_evaluate.settings import SettingsError, read_settings

pytest.importorskip("cdp", reason="the extra [cdp] is not installed")

LOOPBACK: Final = "127.0.0.1"
NETWORK: Final = "eip155:8453"
PAYER: Final = "0x" + "11" * 20
KEY_ID: Final = "organizations/8e03978e/apiKeys/93246894"
LIFETIME: Final = 120


def elliptic() -> tuple[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    # As it stands in an environment file.
    return pem.decode().replace("\n", "\\n"), key.public_key()


def edwards() -> tuple[str, Any]:
    key = ed25519.Ed25519PrivateKey.generate()
    raw = key.private_bytes_raw() + key.public_key().public_bytes_raw()
    return base64.b64encode(raw).decode(), key.public_key()


@dataclass
class StandIn:
    """A facilitator that serves signed requests only; `faults` is what it found wrong with any."""

    public_key: Any
    url: str = ""
    served: list[str] = field(default_factory=list)
    nonces: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def check(self, method: str, path: str, headers: Any) -> str | None:
        """Return what is wrong with a request."""
        scheme, _, token = (headers.get("Authorization") or "").partition(" ")
        if scheme != "Bearer":
            return "no bearer token"
        try:
            head = jwt.get_unverified_header(token)
            kind = "EdDSA" if isinstance(self.public_key, ed25519.Ed25519PublicKey) else "ES256"
            claims = jwt.decode(token, self.public_key, algorithms=[kind], issuer="cdp")
        except jwt.InvalidTokenError as error:
            return str(error)
        now = time.time()
        host = self.url.split("/")[2]
        if head.get("kid") != KEY_ID or head.get("typ") != "JWT":
            return f"header {head}"
        if head["nonce"] in self.nonces:
            return "nonce used before"
        self.nonces.add(head["nonce"])
        if claims["sub"] != KEY_ID or claims["uris"] != [f"{method} {host}{path}"]:
            return f"claims {claims}"
        if not (now - 5 <= claims["nbf"] <= now + 1 and claims["exp"] - claims["nbf"] == LIFETIME):
            return f"times {claims}"
        if method == "POST" and headers.get_all("Content-Type") != ["application/json"]:
            return f"content type {headers.get_all('Content-Type')}"
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: StandIn

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.stand_in.check(self.command, self.path, self.headers)
        name = self.path.removeprefix("/platform/v2/x402/")
        self.stand_in.served.append(name)
        documents = {
            "supported": {"kinds": [{"x402Version": 2, "scheme": "exact", "network": NETWORK}]},
            "verify": {"isValid": True, "payer": PAYER},
            "settle": {"success": True, "transaction": "0x" + "ab" * 32, "network": NETWORK, "payer": PAYER},
        }
        status, document = (200, documents[name]) if fault is None else (401, {"error": "unauthorized"})
        if fault is not None:
            self.stand_in.faults.append(fault)
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(params=[elliptic, edwards])
def keys(request: pytest.FixtureRequest) -> tuple[str, Any]:
    made: tuple[str, Any] = request.param()
    return made


@pytest.fixture
def stand_in(keys: tuple[str, Any]) -> Iterator[StandIn]:
    found = StandIn(keys[1])
    handler = type("Bound", (Handler,), {"stand_in": found})
    server = ThreadingHTTPServer((LOOPBACK, 0), handler)
    found.url = f"http://{LOOPBACK}:{server.server_address[1]}/platform/v2/x402"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def facilitator(stand_in: StandIn, secret: str) -> Facilitator:
    return Facilitator(stand_in.url, None, 5, 5, signer(CdpKey(KEY_ID, secret)))


@pytest.mark.anyio
async def test_each_request_is_signed_for_itself(stand_in: StandIn, keys: tuple[str, Any]) -> None:
    client = facilitator(stand_in, keys[0])
    try:
        assert (await client.supported())["kinds"]
        for _ in range(2):
            assert isinstance(await client.verify(b"{}", payer=PAYER), Verified)
        assert isinstance(await client.settle(b"{}", network=NETWORK, payer=PAYER), Settled)
    finally:
        await client.close()
    assert stand_in.served == ["supported", "verify", "verify", "settle"]
    assert stand_in.faults == []
    assert len(stand_in.nonces) == 4


@pytest.mark.anyio
async def test_the_stand_in_would_find_an_unsigned_or_a_wrongly_signed_request(stand_in: StandIn) -> None:
    other, _ = elliptic()
    for client in (Facilitator(stand_in.url, "Bearer x", 5, 5), facilitator(stand_in, other)):
        try:
            assert isinstance(await client.verify(b"{}", payer=PAYER), Unreachable)
        finally:
            await client.close()
    assert len(stand_in.faults) == 2


@pytest.mark.anyio
async def test_a_call_that_cannot_be_signed_is_not_sent(stand_in: StandIn) -> None:
    def broken(method: str, url: str) -> dict[str, str]:
        raise ValueError("no entropy")

    client = Facilitator(stand_in.url, None, 5, 5, broken)
    try:
        assert isinstance(await client.settle(b"{}", network=NETWORK, payer=PAYER), NotSent)
        assert isinstance(await client.verify(b"{}", payer=PAYER), Unreachable)
    finally:
        await client.close()
    assert stand_in.served == []


ENVIRONMENT: Final = {
    "RANKING_EVALUATE_X402_PAY_TO": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "RANKING_EVALUATE_X402_NETWORK": NETWORK,
    "RANKING_EVALUATE_X402_FACILITATOR_URL": "cdp",
}


def test_cdp_names_coinbases_facilitator_and_its_key() -> None:
    secret, _ = edwards()
    settings = read_settings({**ENVIRONMENT, "CDP_API_KEY_ID": KEY_ID, "CDP_API_KEY_SECRET": secret})
    assert settings.x402 is not None
    assert settings.x402.facilitator_url == CDP_FACILITATOR
    assert settings.x402.cdp_key == CdpKey(KEY_ID, secret)
    assert secret not in repr(settings)
    assert KEY_ID not in repr(settings)
    build(settings)


@pytest.mark.parametrize("missing", ["CDP_API_KEY_ID", "CDP_API_KEY_SECRET"])
def test_both_halves_of_the_key_are_needed(missing: str) -> None:
    given = {"CDP_API_KEY_ID": KEY_ID, "CDP_API_KEY_SECRET": "x"}
    with pytest.raises(SettingsError) as refused:
        read_settings({**ENVIRONMENT, **given, missing: ""})
    assert refused.value.faults == [f"{missing}: needed, since RANKING_EVALUATE_X402_FACILITATOR_URL is cdp"]


def test_a_key_without_cdp_is_nobodys_business() -> None:
    given = {**ENVIRONMENT, "RANKING_EVALUATE_X402_FACILITATOR_URL": "https://f.example", "CDP_API_KEY_ID": KEY_ID}
    settings = read_settings(given)
    assert settings.x402 is not None
    assert settings.x402.cdp_key is None


def test_a_header_value_and_a_signature_are_not_mixed() -> None:
    given = {
        "CDP_API_KEY_ID": KEY_ID,
        "CDP_API_KEY_SECRET": "x",
        "RANKING_EVALUATE_X402_FACILITATOR_AUTHORIZATION": "x",
    }
    with pytest.raises(SettingsError, match="whose requests are signed"):
        read_settings({**ENVIRONMENT, **given})


@pytest.mark.parametrize("secret", ["canary-is-no-key", base64.b64encode(b"short").decode()])
def test_a_secret_that_is_no_key_stops_the_start_unquoted(secret: str) -> None:
    settings = read_settings({**ENVIRONMENT, "CDP_API_KEY_ID": KEY_ID, "CDP_API_KEY_SECRET": secret})
    with pytest.raises(SettingsError) as refused:
        build(settings)
    (fault,) = refused.value.faults
    assert fault.startswith("RANKING_EVALUATE_X402_FACILITATOR_URL: CDP_API_KEY_SECRET is not a key")
    assert secret not in fault


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cdp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cdp", None)
    secret, _ = edwards()
    with pytest.raises(CdpUnusable, match=r"ranking-evaluate\[cdp\]"):
        cdp.signer(CdpKey(KEY_ID, secret))
