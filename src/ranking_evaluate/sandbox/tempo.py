"""MPP in the sandbox: a local Tempo chain, its JSON-RPC proxy and a payer funded with pathUSD."""

import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, TypeVar

import httpx
from eth_typing import HexStr
from web3 import Web3

from ranking_evaluate.sandbox.anvil import BLOCKS, Chain, start_anvil
from ranking_evaluate.sandbox.funded import FundedProtocol, Wallet
from ranking_evaluate.sandbox.processes import LOOPBACK, Processes, SandboxError
from ranking_evaluate.sandbox.token import RECEIPT_POLL_SECONDS, RECEIPT_SECONDS, is_confirmed
from ranking_evaluate.sandbox.wallets import new_wallet

CHAIN_ID: Final = 42431
PATH_USD: Final = "0x20c0000000000000000000000000000000000000"
DECIMALS: Final = 6
PAYER_TOKENS: Final = 1_000 * 10**DECIMALS

ANVIL_ARGUMENTS: Final = ("--network", "tempo", "--hardfork", "T4", *BLOCKS)

TRANSFER: Final = "0xa9059cbb"
BALANCE_OF: Final = "0x70a08231"
SEND_SYNC: Final = "eth_sendRawTransactionSync"
FILL: Final = "eth_fillTransaction"
AUTHORIZATION_GAS: Final = 3_000_000
"""More than any authorization takes on this chain: one with a limit 0.8 million, one with a scope too 2.6 million."""

FORWARD_SECONDS: Final = 60.0


CHALLENGE_SECONDS: Final = 25
"""How long the sandbox's challenges live.

Its chain, of hardfork T4, takes no transaction that is valid for more than 30 seconds, and clients sign until the
challenge ends; chains since T11 take 300.
"""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A crowd of buyers connects at once, and the base class lets five wait.
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's signature.
        """Report an error, but not that a client left before its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class TempoProxy:
    """A JSON-RPC proxy in front of anvil, which speaks Tempo but for two methods.

    It sends with one parameter, and Tempo with two; and it estimates the gas of a first payment without the
    authorization of its new key, so that the payment would never leave its pool.

    A subclass may answer otherwise; the tests' one injects faults.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._client = httpx.Client(trust_env=False, timeout=FORWARD_SECONDS)
        self._bind(0)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Start answering."""
        self._serve()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop answering."""
        self._stop()
        self._client.close()

    def _bind(self, port: int) -> None:
        self._server = _Server((LOOPBACK, port), self._handler())

    def _serve(self) -> None:
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, call: dict[str, Any]) -> bytes | None:
        """Return the response body for one call, or None to drop the connection without an answer."""
        return self.forward(call)

    def forward(self, call: dict[str, Any]) -> bytes:
        """Return what anvil answers."""
        if call.get("method") == SEND_SYNC:
            call = {**call, "params": call["params"][:1]}
        answer = self._client.post(self._upstream, json=call).content
        if call.get("method") == FILL and call["params"][0].get("keyAuthorization"):
            return _with_gas_of_authorization(answer)
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body leave in one packet, so that no client waits for the second.
            wbufsize = -1

            def do_POST(self) -> None:
                call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = proxy.answer(call)
                if body is None:
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()
                self.wfile.write(body)

            def do_OPTIONS(self) -> None:
                # A wallet in a page asks the node itself, which a real one allows too, and so does anvil.
                self.send_response(204)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Access-Control-Allow-Headers", "Content-Type")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing: a call holds a signed transaction."""

        return Handler


ProxyT = TypeVar("ProxyT", bound=TempoProxy)


class TempoChain:
    """A running local Tempo chain; `rpc` is the proxy's address, `chain` speaks to anvil itself."""

    def __init__(self, chain: Chain, rpc: str) -> None:
        self.chain = chain
        self.rpc = rpc

    def balance(self, holder: str) -> int:
        """Return the base units of pathUSD that `holder` has."""
        data = BALANCE_OF + _word(holder)
        answer = self.chain.web3.eth.call({"to": Web3.to_checksum_address(PATH_USD), "data": HexStr(data)})
        return int.from_bytes(answer, "big")

    def fund(self, holder: str, amount: int) -> None:
        """Give `holder` pathUSD out of the chain's own account."""
        web3 = self.chain.web3
        transaction = web3.eth.send_transaction(
            {
                "from": web3.eth.accounts[0],
                "to": Web3.to_checksum_address(PATH_USD),
                "data": HexStr(f"{TRANSFER}{_word(holder)}{amount:064x}"),
            }
        )
        receipt = web3.eth.wait_for_transaction_receipt(transaction, RECEIPT_SECONDS, RECEIPT_POLL_SECONDS)
        if receipt["status"] != 1:
            raise SandboxError("The local Tempo chain refused to give the payer its pathUSD.")

    def new_payer(self, amount: int = PAYER_TOKENS) -> Wallet:
        """Return a fresh wallet that holds this much pathUSD, which pays the gas too."""
        wallet = new_wallet()
        self.fund(wallet.address, amount)
        return wallet


@contextmanager
def tempo_chain(processes: Processes, proxy: Callable[[str], ProxyT]) -> Iterator[tuple[TempoChain, ProxyT]]:
    """Start a local Tempo chain behind the proxy that is made for anvil's address, and yield both."""
    chain = start_anvil(processes, name="tempo", chain_id=CHAIN_ID, arguments=ANVIL_ARGUMENTS)
    with proxy(chain.rpc) as running:
        yield TempoChain(chain, running.url), running


@contextmanager
def mpp_protocol(processes: Processes, payer: Wallet) -> Iterator[FundedProtocol]:
    """Start everything that MPP payments need, give the payer its money, and yield it."""
    with tempo_chain(processes, TempoProxy) as (tempo, _):
        tempo.fund(payer.address, PAYER_TOKENS)
        payee = new_wallet()
        info: dict[str, str | int] = {
            "chainId": CHAIN_ID,
            "rpc": tempo.rpc,
            "currency": PATH_USD,
            "recipient": payee.address,
            "payerKey": payer.key,
            "payerAddress": payer.address,
        }
        yield FundedProtocol(
            protocol="mpp",
            network=tempo.chain.network,
            asset=PATH_USD,
            asset_name="pathUSD",
            decimals=DECIMALS,
            payer=payer,
            payee=payee.address,
            environment={
                "RANKING_EVALUATE_MPP_RECIPIENT": payee.address,
                "RANKING_EVALUATE_MPP_CHAIN_ID": str(CHAIN_ID),
                "RANKING_EVALUATE_MPP_RPC_URL": tempo.rpc,
                "RANKING_EVALUATE_MPP_CURRENCY": PATH_USD,
                "RANKING_EVALUATE_MPP_CHALLENGE_SECONDS": str(CHALLENGE_SECONDS),
                "RANKING_EVALUATE_MPP_SECRET_KEY": secrets.token_urlsafe(48),
            },
            info=info,
            exports={"NETWORK": tempo.chain.network, "ASSET": PATH_USD, "RPC_URL": tempo.rpc},
            rpc=tempo.rpc,
            takes_gas_in_asset=True,
            balance=tempo.balance,
            is_confirmed=lambda transaction: is_confirmed(tempo.chain, transaction),
        )


def _with_gas_of_authorization(answer: bytes) -> bytes:
    """Return a filled transaction with as much more gas as an authorization may take."""
    said = json.loads(answer)
    if "result" in said:
        filled = said["result"]["tx"]
        filled["gas"] = hex(int(filled["gas"], 16) + AUTHORIZATION_GAS)
    return json.dumps(said).encode()


def _word(address: str) -> str:
    return address.removeprefix("0x").lower().rjust(64, "0")
