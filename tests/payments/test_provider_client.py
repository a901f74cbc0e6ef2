"""What a provider may make us read, wait for or follow is bounded, for facilitators, nodes and the SDK's own calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from ranking_evaluate.payments.facilitator import MAX_ANSWER_BYTES as FACILITATOR_BYTES
from ranking_evaluate.payments.facilitator import Facilitator, FacilitatorError
from ranking_evaluate.payments.json_rpc import MAX_ANSWER_BYTES as NODE_BYTES
from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError
from ranking_evaluate.payments.mpp.rpc import Node
from ranking_evaluate.payments.protocol import Uncertain, Unreachable
from ranking_evaluate.payments.provider_client import (
    LONGEST_RETRY_AFTER,
    Broken,
    Late,
    NotConnected,
    ProviderClient,
    TooLarge,
    retry_after,
)

pytestmark = pytest.mark.anyio

MIB = 1_048_576
HUGE = 700 * MIB
PAYER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]


def whole(body: bytes, status: str = "200 OK", *lines: str) -> Say:
    """Return a provider that answers every call with this body."""

    async def say(writer: asyncio.StreamWriter) -> None:
        head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *lines, "", ""])
        writer.write(head.encode() + body)
        await writer.drain()

    return say


async def endless(writer: asyncio.StreamWriter) -> None:
    """Answer with a result of 700 MB."""
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n{"result": "' % HUGE)
    for _ in range(HUGE // MIB):
        writer.write(b"x" * MIB)
        await writer.drain()


async def dripping(writer: asyncio.StreamWriter) -> None:
    """Answer byte by byte, so that no single read is late."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    for _ in range(1000):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


class Provider:
    """A provider on a socket; `heads` holds the head of every call, `connections` counts them."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.heads: list[str] = []
        self.connections = 0
        self.url = ""
        self.serving: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                self.heads.append(head)
                if "content-length: " in head:
                    await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))
                await self._say(writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def provider(say: Say) -> AsyncIterator[Provider]:
    running = Provider(say)
    server = await asyncio.start_server(running.answer, "127.0.0.1", 0)
    running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        # A client that closes leaves the provider its end of the connection to close.
        await asyncio.wait_for(asyncio.gather(*running.serving), 5)


async def facilitator_says(url: str) -> str:
    """Return why no verdict of a facilitator can be used, as each of its three calls tells it."""
    client = Facilitator(url, None, 5, 5)
    try:
        with pytest.raises(FacilitatorError) as caught:
            await client.supported()
        verified = await client.verify(b"{}", payer=PAYER)
        settled = await client.settle(b"{}", network="eip155:84532", payer=PAYER)
    finally:
        await client.close()
    assert isinstance(verified, Unreachable)
    assert isinstance(settled, Uncertain)
    return f"{caught.value}; {verified.reason}; {settled.reason}"


async def node_says(url: str) -> str:
    """Return why no answer of a node can be used, as our own question tells it."""
    rpc = JsonRpc(url, 5)
    try:
        with pytest.raises(NodeError) as caught:
            await rpc.ask("eth_chainId")
    finally:
        await rpc.close()
    return str(caught.value)


async def sdk_says(url: str) -> str:
    """Return why no answer of a node can be used, as the SDK's own call tells it."""
    node = Node(url, 5)
    try:
        async with httpx.AsyncClient(transport=node.transport(5)) as client:
            with pytest.raises(httpx.RemoteProtocolError) as caught:
                await client.post("http://ignored.example", json={"method": "eth_chainId"})
    finally:
        await node.close()
    return str(caught.value)


each_reader = pytest.mark.parametrize(
    ("ask", "bound"), [(facilitator_says, FACILITATOR_BYTES), (node_says, NODE_BYTES), (sdk_says, NODE_BYTES)]
)


@each_reader
async def test_an_answer_of_700_mb_costs_two_mib_and_says_so(ask: Callable[[str], Any], bound: int) -> None:
    async with provider(endless) as running:
        tracemalloc.start()
        try:
            said = await ask(running.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert f"answer is over {bound // 1024} KiB" in said
    # The provider is in this process too, with a piece of a mebibyte in its hands and another in its buffer.
    assert peak < (2 + 2) * MIB


@each_reader
async def test_duplicate_members_are_no_answer(ask: Callable[[str], Any], bound: int) -> None:
    said = b'{"isValid": true, "success": true, "isValid": true, "jsonrpc": "2.0", "id": 1, "result": {"a": 1, "a": 2}}'
    async with provider(whole(said)) as running:
        why = await ask(running.url)
    assert "usable document" in why if ask is facilitator_says else "two members of one name" in why


async def test_a_node_s_answer_may_be_larger_than_a_request() -> None:
    hashes = [f"0x{number:064x}" for number in range(12_000)]
    said = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"transactions": hashes}}).encode()
    assert 131_072 < len(said) < NODE_BYTES
    async with provider(whole(said)) as running:
        rpc = JsonRpc(running.url, 5)
        assert (await rpc.block("latest"))["transactions"] == hashes
        await rpc.close()


@pytest.mark.parametrize("said", [b"[", b"[" * 100_000, b'{"result": "\xff"}', b"[1]", b'{"id": 1}'])
async def test_what_is_not_json_rpc_is_a_node_s_error(said: bytes) -> None:
    async with provider(whole(said)) as running:
        assert "the node's answer to eth_chainId is not JSON" in await node_says(running.url)


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with provider(whole(b'{"result": "0x1"}')) as other:
        async with provider(whole(b"{}", "307 Temporary Redirect", f"location: {other.url}/")) as running:
            assert "status 307" in await node_says(running.url)
            await facilitator_says(running.url)
        assert other.connections == 0


async def test_a_call_asks_for_plain_bytes_and_brings_no_cookie_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with provider(whole(b"{}", "200 OK", "set-cookie: a=b; path=/")) as running:
        client = ProviderClient("the node", max_bytes=100, seconds=5)
        for _ in range(2):
            await client.call("POST", running.url, b"{}")
        await client.close()
    assert all("accept-encoding: identity\r\n" in head and "cookie" not in head for head in running.heads)
    assert len(running.heads) == 2


async def test_a_compressed_answer_is_not_unpacked() -> None:
    async with provider(whole(b"\x1f\x8bnot unpacked", "200 OK", "content-encoding: gzip")) as running:
        client = ProviderClient("the node", max_bytes=100, seconds=5)
        assert (await client.call("GET", running.url)).body == b"\x1f\x8bnot unpacked"
        await client.close()


async def test_the_deadline_is_for_the_whole_answer() -> None:
    async with provider(dripping) as running:
        client = ProviderClient("the node", max_bytes=10_000, seconds=0.4)
        started = time.monotonic()
        with pytest.raises(Late, match="the node did not answer in time"):
            await client.call("POST", running.url, b"{}")
        assert time.monotonic() - started < 2
        await client.close()


async def test_no_connection_is_told_from_one_that_broke() -> None:
    async def hangs_up(writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with provider(hangs_up) as running:
        client = ProviderClient("the node", max_bytes=100, seconds=5)
        with pytest.raises(Broken):
            await client.call("POST", running.url, b"{}")
    with pytest.raises(NotConnected):
        await client.call("POST", running.url, b"{}")
    with pytest.raises(NotConnected):
        await client.call("POST", "http://provider.invalid", b"{}")
    await client.close()


@pytest.mark.parametrize(("fresh", "connections"), [(True, 3), (False, 1)])
async def test_fresh_calls_never_share_a_connection(fresh: bool, connections: int) -> None:
    async with provider(whole(b"{}")) as running:
        client = ProviderClient("the node", max_bytes=100, seconds=5, fresh=fresh)
        for _ in range(3):
            await client.call("POST", running.url, b"{}")
        await client.close()
    assert running.connections == connections


async def test_an_answer_of_exactly_the_bound_is_taken() -> None:
    async with provider(whole(b"x" * 1024)) as running:
        for bound in (1024, 1023):
            client = ProviderClient("the node", max_bytes=bound, seconds=5)
            try:
                if bound == 1024:
                    assert len((await client.call("GET", running.url)).body) == bound
                else:
                    with pytest.raises(TooLarge):
                        await client.call("GET", running.url)
            finally:
                await client.close()


async def test_how_long_a_provider_asks_to_wait_comes_with_its_answer() -> None:
    async with provider(whole(b"{}", "429 Too Many Requests", "retry-after: 7")) as running:
        client = ProviderClient("the node", max_bytes=100, seconds=5)
        answer = await client.call("GET", running.url)
        await client.close()
    assert (answer.status, answer.retry_after) == (429, 7)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", None),
        ("0", 0),
        ("7", 7),
        ("86400", LONGEST_RETRY_AFTER),
        ("9" * 5000, LONGEST_RETRY_AFTER),
        ("-7", None),
        ("7.5", None),
        ("\u0667", None),
        ("soon", None),
        ("Fri, 01 Jan 1999 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER),
        ("Fri, 01 Jan 1999 00:00:00 -0000", None),
    ],
)
def test_retry_after_is_read_in_both_of_its_forms(header: str, seconds: int | None) -> None:
    assert retry_after(header) == seconds
