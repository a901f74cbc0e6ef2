"""`pay` and certificates: one that is not trusted is named, and SSL_CERT_FILE says whose are."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from threading import Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PROGRAM = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"
INPUT = b'{"queries":[{"id":"q","retrieved":["a"],"judgments":[{"id":"a","grade":1}]}]}'


class Shop(BaseHTTPRequestHandler):
    """Sells nothing, and counts who got as far as asking."""

    asked = 0

    def do_POST(self) -> None:
        type(self).asked += 1
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority of our own, ca.pem, and a certificate of it for 127.0.0.1."""
    made = tmp_path_factory.mktemp("tls")
    now = datetime.now(UTC)

    def certificate(
        name: str, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
    ) -> x509.Certificate:
        is_authority = signer is key
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .sign(signer, hashes.SHA256())
        )

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "our own authority")])
    authority = certificate("our own authority", authority_name, authority_key, authority_key)
    server = certificate("127.0.0.1", authority_name, authority_key, key)
    (made / "ca.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (made / "server.pem").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    (made / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (made / "broken.pem").write_text("no certificate")
    return made


@pytest.fixture(scope="module")
def shop(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/v1/x402/ranking-evaluate"
    finally:
        server.shutdown()
        server.server_close()


def pay(shop: str, tmp_path: Path, **environment: str) -> tuple[int, str, int]:
    """Return the exit code, the words, and how many requests the shop has seen."""
    (tmp_path / "input.json").write_bytes(INPUT)
    before = Shop.asked
    ended = subprocess.run(
        [PROGRAM, "pay", shop, "--protocol", "x402", "--input", "input.json", "--key", "tls-purchase-0000001"],
        env={"HOME": str(tmp_path), "RANKING_EVALUATE_WALLET_KEY": "0x" + "11" * 32, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, " ".join(ended.stderr.split()), Shop.asked - before


def test_a_certificate_that_is_not_trusted_is_named_and_nothing_is_sent(shop: str, tmp_path: Path) -> None:
    code, words, asked = pay(shop, tmp_path)
    assert (code, asked) == (1, 0), words
    assert "certificate is not trusted" in words
    assert "SSL_CERT_FILE" in words


def test_an_authority_of_ones_own_is_believed(shop: str, folder: Path, tmp_path: Path) -> None:
    _, words, asked = pay(shop, tmp_path, SSL_CERT_FILE=str(folder / "ca.pem"))
    assert asked > 0
    assert "certificate" not in words


@pytest.mark.parametrize("name", ["nowhere.pem", "broken.pem"])
def test_a_file_that_names_no_authority_is_told(shop: str, folder: Path, tmp_path: Path, name: str) -> None:
    code, words, asked = pay(shop, tmp_path, SSL_CERT_FILE=str(folder / name))
    assert (code, asked) == (1, 0), words
    assert words.startswith("SSL_CERT_FILE names no file of certificates")
