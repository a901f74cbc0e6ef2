"""The three processes of a paid call: this service, the x402 SDK's own FastAPI middleware, and their facilitator.

The middleware stands around a handler that returns a constant and keeps no record; this service evaluates, and commits
three times, twice waiting for the disk. Both are one uvicorn process with uvloop and httptools, and ask the same
facilitator process, which does not look at signatures and answers at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from bench.jobs import TYPICAL
from ranking_evaluate import evaluate
from ranking_evaluate.contract.discovery import announcements

NETWORK = "eip155:84532"
ASSET = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
PAYEE = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
PAYER = "0x" + "42" * 20
PATH = "/v1/x402/ranking-evaluate"
OURS, STOCK = "ranking-evaluate", "stock x402 middleware"
LOOPBACK = "127.0.0.1"


class Running(NamedTuple):
    """The ports of both servers by name, and the facilitator's URL."""

    ports: dict[str, int]
    facilitator: str


class _Facilitator(asyncio.Protocol):
    """Answers every call at once: it supports what is asked, every payment is valid, every payment is settled."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._received = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, rest = self._received.partition(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if len(rest) < length:
                return
            self._received = rest[length:]
            answer = _answer(head.split(b" ", 2)[1], rest[:length])
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(answer), answer)
            )


def _answer(path: bytes, _: bytes) -> bytes:
    said: dict[str, object] = {"isValid": True, "payer": PAYER}
    if path == b"/supported":
        kind = {"x402Version": 2, "scheme": "exact", "network": NETWORK}
        said = {"kinds": [kind], "extensions": [], "signers": {"eip155:*": [PAYEE]}}
    elif path == b"/settle":
        said = {"success": True, "transaction": "0x" + secrets.token_hex(32), "network": NETWORK, "payer": PAYER}
    return json.dumps(said).encode()


async def _serve_facilitator(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Facilitator, LOOPBACK, port)
    await server.serve_forever()


def _serve_stock(port: int, facilitator: str) -> None:
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from x402 import AssetAmount, x402ResourceServer
    from x402.extensions.bazaar import declare_discovery_extension
    from x402.extensions.payment_identifier import PAYMENT_IDENTIFIER, declare_payment_identifier_extension
    from x402.http import FacilitatorConfig, HTTPFacilitatorClient, PaymentOption, RouteConfig
    from x402.http.middleware.fastapi import payment_middleware
    from x402.mechanisms.evm.exact import ExactEvmServerScheme

    server = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=facilitator)))
    scheme: Any = ExactEvmServerScheme()  # type: ignore[no-untyped-call]  # The SDK's scheme is not annotated.
    server.register(NETWORK, scheme)
    price = AssetAmount(amount="10000", asset=ASSET, extra={"name": "USDC", "version": "2"})
    option = PaymentOption(scheme="exact", pay_to=PAYEE, price=price, network=NETWORK)
    # It announces what this service announces: the payment identifier, and the input with its schema.
    announced = announcements("ranking-evaluate")[-1]
    extensions = {
        PAYMENT_IDENTIFIER: declare_payment_identifier_extension(required=True),
        **declare_discovery_extension(input=dict(announced.example), input_schema=announced.schema, body_type="json"),
    }
    route = RouteConfig(accepts=[option], mime_type="application/json", extensions=extensions)
    middleware = payment_middleware({f"POST {PATH}": route}, server)
    constant = evaluate("ranking-evaluate", TYPICAL.body)
    app = FastAPI()

    @app.middleware("http")
    async def pay(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await middleware(request, call_next)

    @app.post(PATH)
    async def handler() -> Response:
        return Response(constant, media_type="application/json")

    uvicorn.run(app, host=LOOPBACK, port=port, log_level="error", access_log=False, loop="uvloop", http="httptools")


@contextmanager
def servers(parent: str | None = None) -> Iterator[Running]:
    """Yield both servers and their facilitator, each a process of its own; the database stands in a new directory."""
    with tempfile.TemporaryDirectory(dir=parent) as directory, ExitStack() as running:
        facilitator, ours, stock = (free_port() for _ in range(3))
        url = f"http://{LOOPBACK}:{facilitator}"

        def start(*command: str, **environment: str) -> None:
            log = running.enter_context((Path(directory) / f"{len(command)}-{secrets.token_hex(4)}.log").open("w"))
            process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
            running.callback(_end, process)

        module = (sys.executable, "-m", "bench.paid_servers")
        start(*module, "facilitator", str(facilitator))
        wait_for(facilitator)
        settings = {
            "DATABASE_URL": f"sqlite:///{directory}/attempts.db",
            "X402_PAY_TO": PAYEE,
            "X402_NETWORK": NETWORK,
            "X402_FACILITATOR_URL": url,
            "REQUEST_RATE": "",
            "PAYMENT_RATE": "",
        }
        program = str(Path(sysconfig.get_path("scripts")) / "ranking-evaluate")
        start(
            program,
            "serve",
            "--port",
            str(ours),
            **{f"RANKING_EVALUATE_{name}": text for name, text in settings.items()},
        )
        start(*module, "stock", str(stock), url)
        wait_for(ours)
        wait_for(stock)
        yield Running({OURS: ours, STOCK: stock}, url)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(20)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    """Return when somebody listens on the port."""
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


if __name__ == "__main__":
    if sys.argv[1] == "facilitator":
        import uvloop

        uvloop.run(_serve_facilitator(int(sys.argv[2])))
    else:
        _serve_stock(int(sys.argv[2]), sys.argv[3])
