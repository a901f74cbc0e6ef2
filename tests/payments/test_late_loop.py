"""An answer that arrived before its deadline counts, though the loop was held up: over real sockets, on both loops.

The provider runs in a thread, so it answers while the loop stands still; the chain's tests are in `test_mpp.py`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx
import pytest

from ranking_evaluate.payments.facilitator import Facilitator
from ranking_evaluate.payments.json_rpc import JsonRpc
from ranking_evaluate.payments.mpp.rpc import Node, NodeTransport
from ranking_evaluate.payments.protocol import NotSent, Settled, Uncertain, Verified
from ranking_evaluate.payments.provider_client import Late, NotConnected, ProviderClient

pytestmark = pytest.mark.anyio

NETWORK: Final = "eip155:84532"
PAYER: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
TRANSACTION: Final = "0x" + "ab" * 32

DEADLINE: Final = 0.3
ANSWERS_AFTER: Final = 0.15
HELD_UP: Final = 0.8
"""Seconds: the answer comes before the deadline, and the loop well after it."""


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


class Provider(BaseHTTPRequestHandler):
    """A facilitator and a node that takes a moment for each answer, or for ever."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    asked: list[str]
    after: float

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        time.sleep(self.after)
        said = {
            "/verify": {"isValid": True, "payer": PAYER},
            "/settle": {"success": True, "transaction": TRANSACTION, "network": NETWORK, "payer": PAYER},
        }.get(self.path) or {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": "x" * 500_000}
        answer = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def provider() -> Iterator[type[Provider]]:
    class Handler(Provider):
        asked: list[str] = []  # noqa: RUF012 - one list for each test.
        after = ANSWERS_AFTER
        url = ""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Handler.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield Handler
        server.shutdown()


def stand_still() -> None:
    """Block the loop at this moment, beyond the deadline."""
    time.sleep(HELD_UP)


async def hold_up(provider: Any) -> None:
    """Block the loop as soon as the provider has been asked, beyond the deadline."""
    while not provider.asked:  # noqa: ASYNC110 - The provider lives in a thread.
        await asyncio.sleep(0.005)
    stand_still()


async def test_a_facilitator_s_settlement_counts(provider: Any) -> None:
    client = Facilitator(provider.url, None, 60, DEADLINE)
    settling = asyncio.create_task(client.settle(b"{}", network=NETWORK, payer=PAYER))
    await hold_up(provider)
    assert await settling == Settled("", TRANSACTION, PAYER)
    assert provider.asked == ["/settle"]
    await client.close()


async def test_a_facilitator_s_verification_counts(provider: Any) -> None:
    client = Facilitator(provider.url, None, DEADLINE, 60)
    verifying = asyncio.create_task(client.verify(b"{}", payer=PAYER))
    await hold_up(provider)
    assert isinstance(await verifying, Verified)
    await client.close()


async def test_a_node_s_answer_counts(provider: Any) -> None:
    """It takes several reads of its socket: half a megabyte."""
    rpc = JsonRpc(provider.url, DEADLINE)
    asking = asyncio.create_task(rpc.ask("eth_call"))
    await hold_up(provider)
    assert len(await asking) == 500_000
    await rpc.close()


async def test_an_answer_to_the_sdk_counts_though_the_sdk_s_own_deadline_runs_first(provider: Any) -> None:
    """The SDK bounds its calls with `asyncio.wait_for`."""
    transport = Node(provider.url, 60).transport(60)
    async with httpx.AsyncClient(transport=transport) as client:
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransactionSync"}
        sending = asyncio.create_task(asyncio.wait_for(client.post(provider.url, json=call), DEADLINE))
        await hold_up(provider)
        assert (await sending).status_code == 200
    assert transport.send_made
    assert len(provider.asked) == 1


async def test_the_sdk_s_deadline_still_ends_a_call_without_an_answer(provider: Any) -> None:
    provider.after = 2.0
    transport = NodeTransport(ProviderClient("the node", max_bytes=100, seconds=60, fresh=True), provider.url, 60)
    async with httpx.AsyncClient(transport=transport) as client:
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransactionSync"}
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post(provider.url, json=call), DEADLINE)
        assert time.monotonic() - started < 1.5
    assert transport.send_made


async def test_an_answer_that_is_not_there_after_the_deadline_stays_late(provider: Any) -> None:
    provider.after = HELD_UP + 1.5
    client = Facilitator(provider.url, None, 60, DEADLINE)
    settling = asyncio.create_task(client.settle(b"{}", network=NETWORK, payer=PAYER))
    await hold_up(provider)
    assert isinstance(await settling, Uncertain)
    await client.close()


async def test_a_call_for_which_the_loop_comes_late_before_it_is_connected_is_not_sent(provider: Any) -> None:
    """Its deadline is over, so the payment must not be submitted any more."""
    client = Facilitator(provider.url.replace("127.0.0.1", "localhost"), None, 60, DEADLINE)
    settling = asyncio.create_task(client.settle(b"{}", network=NETWORK, payer=PAYER))
    # In one turn it comes as far as to look the name up, in a thread.
    await asyncio.sleep(0)
    stand_still()
    assert isinstance(await settling, NotSent)
    await asyncio.sleep(0.1)
    assert provider.asked == []
    await client.close()


async def test_late_and_not_connected_are_still_told_apart(provider: Any) -> None:
    provider.after = 1.0
    client = ProviderClient("the node", max_bytes=100, seconds=DEADLINE)
    with pytest.raises(Late):
        await client.call("POST", provider.url, b"{}")
    with pytest.raises(NotConnected):
        await client.call("POST", "http://127.0.0.1:1", b"{}")
    await client.close()
