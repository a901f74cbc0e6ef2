"""An x402 facilitator for local chains: the SDK's own, behind /supported, /verify and /settle."""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from x402 import x402FacilitatorSync
from x402.mechanisms.evm.constants import ERR_UNSUPPORTED_SCHEME
from x402.mechanisms.evm.exact import ExactEvmFacilitatorScheme
from x402.mechanisms.evm.signers import FacilitatorWeb3Signer
from x402.schemas import (
    SchemeNotFoundError,
    SettleRequest,
    SettleResponse,
    VerifyRequest,
    VerifyResponse,
)

from ranking_evaluate.sandbox.processes import LOOPBACK, SandboxError

START_SECONDS: Final = 20.0
CONFIRMATION_SECONDS: Final = 15.0


class OrderedSigner(FacilitatorWeb3Signer):
    """The SDK's signer, sending one transaction at a time.

    The SDK reserves account nonces one by one, but two settlements may then reach the chain in either order, and a
    nonce whose transaction was never sent would hold up all later ones. Waiting for receipts stays concurrent.
    """

    def __init__(self, key: str, rpc: str, confirmation_seconds: float) -> None:
        super().__init__(key, rpc, confirmation_timeout_seconds=confirmation_seconds)
        self._sending = threading.Lock()

    def write_contract(
        self, address: str, abi: list[dict[str, Any]], function_name: str, *args: object, data_suffix: str | None = None
    ) -> str:
        """Send a call of a contract in a transaction and return the transaction's hash."""
        with self._sending:
            try:
                return super().write_contract(address, abi, function_name, *args, data_suffix=data_suffix)
            except Exception:
                # The next transaction asks the chain again which nonce is due.
                self._next_nonce = None
                raise


def facilitator_app(
    *, key: str, nodes: Mapping[str, str], confirmation_seconds: float = CONFIRMATION_SECONDS
) -> FastAPI:
    """Return the facilitator as an application.

    Its routes block on the chain, so they are plain functions, which FastAPI runs in threads.

    Args:
        key: The private key that pays for the transactions.
        nodes: By the CAIP-2 name of each chain, its JSON-RPC address.
        confirmation_seconds: How long a settlement waits until its transaction is in a block.
    """
    # One for each chain: one for both would ask the first chain about payments on the second, since the SDK takes a
    # scheme that is registered for an EVM network for a scheme of all of them.
    facilitators = {
        network: _facilitator(network, OrderedSigner(key, rpc, confirmation_seconds)) for network, rpc in nodes.items()
    }
    no_chain = x402FacilitatorSync()
    app = FastAPI(openapi_url=None)

    @app.get("/supported")
    def supported() -> JSONResponse:
        answers = [facilitator.get_supported() for facilitator in facilitators.values()]
        kinds = [kind for answer in answers for kind in answer.kinds]
        return _json(answers[0].model_copy(update={"kinds": kinds}))

    @app.post("/verify")
    def verify(asked: VerifyRequest) -> JSONResponse:
        facilitator = facilitators.get(asked.payment_requirements.network, no_chain)
        try:
            return _json(facilitator.verify(asked.payment_payload, asked.payment_requirements))
        except SchemeNotFoundError:
            return _json(VerifyResponse(is_valid=False, invalid_reason=ERR_UNSUPPORTED_SCHEME))

    @app.post("/settle")
    def settle(asked: SettleRequest) -> JSONResponse:
        network = asked.payment_requirements.network
        facilitator = facilitators.get(network, no_chain)
        try:
            return _json(facilitator.settle(asked.payment_payload, asked.payment_requirements))
        except SchemeNotFoundError:
            return _json(
                SettleResponse(success=False, error_reason=ERR_UNSUPPORTED_SCHEME, transaction="", network=network)
            )

    return app


def _facilitator(network: str, signer: OrderedSigner) -> x402FacilitatorSync:
    facilitator = x402FacilitatorSync()
    facilitator.register([network], ExactEvmFacilitatorScheme(signer))
    return facilitator


@contextmanager
def run_in_thread(app: FastAPI) -> Iterator[str]:
    """Serve `app` on a free loopback port in a thread of this process, and yield its address.

    A thread cannot outlive the sandbox, and the SDK and web3 are loaded here already.
    """
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + START_SECONDS
            while not server.started:
                if not thread.is_alive() or time.monotonic() > deadline:
                    raise SandboxError("The local facilitator did not start.")
                time.sleep(0.005)
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _json(answer: BaseModel) -> JSONResponse:
    return JSONResponse(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
