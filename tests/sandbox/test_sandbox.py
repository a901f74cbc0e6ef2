"""The sandbox brings up every protocol and the service, tells how to use them, and leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from decimal import Decimal
from typing import TYPE_CHECKING

import httpx
import pytest
from rich.console import Console
from web3 import Web3

from ranking_evaluate import evaluate
from ranking_evaluate.cli.buying import Order, run_pay
from ranking_evaluate.cli.exchange import http_client
from ranking_evaluate.cli.pay import new_key
from ranking_evaluate.cli.payers.payer import Mandate, PayError
from ranking_evaluate.cli.sandbox import SMALL_INPUT, exports_text, first_call, info_text, summary, write_private
from ranking_evaluate.payments.config import USDC
from ranking_evaluate.sandbox import Sandbox, SandboxError
from ranking_evaluate.sandbox.processes import free_port, is_port_free
from ranking_evaluate.sandbox.x402 import BASE_SEPOLIA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.table import Table

# Stands in for the service: it is ready at once and tells the settings it was started with.
STAND_IN = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"arguments": sys.argv[1:], "environment": dict(os.environ)}).encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Callable[..., Sandbox]:
    program = tmp_path / "service.py"
    program.write_text(STAND_IN)
    return lambda **options: Sandbox(**{"command": [sys.executable, program], **options})


def told(origin: str) -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = httpx.get(origin, trust_env=False).json()
    return content


def test_the_service_gets_the_settings_of_every_protocol_and_nothing_else(
    sandbox: Callable[..., Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKING_EVALUATE_PUBLIC_ORIGIN", "https://of.the.shell")
    with sandbox(environment={"RANKING_EVALUATE_SETTLE_TIMEOUT": "5"}) as running:
        info = running.info
        given = {name: value for name, value in told(running.origin)["environment"].items() if "RANKING" in name}
    x402 = info["x402"]
    assert {name: given[name] for name in given if "MPP" not in name} == {
        "RANKING_EVALUATE_DATABASE_URL": info["database"],
        "RANKING_EVALUATE_REQUEST_RATE": "",
        "RANKING_EVALUATE_PAYMENT_RATE": "",
        "RANKING_EVALUATE_SETTLE_TIMEOUT": "5",
        "RANKING_EVALUATE_X402_PAY_TO": x402["payTo"],
        "RANKING_EVALUATE_X402_NETWORK": "eip155:31337",
        "RANKING_EVALUATE_X402_ASSET": x402["asset"],
        "RANKING_EVALUATE_X402_ASSET_NAME": x402["assetName"],
        "RANKING_EVALUATE_X402_ASSET_VERSION": x402["assetVersion"],
        "RANKING_EVALUATE_X402_FACILITATOR_URL": x402["facilitator"],
        "RANKING_EVALUATE_X402_RPC_URL": x402["rpc"],
    }


def test_nothing_stays_behind(sandbox: Callable[..., Sandbox]) -> None:
    with sandbox() as running:
        ports = [httpx.URL(running.origin).port, *(httpx.URL(funded.rpc).port for funded in running.protocols)]
        assert not any(is_port_free(port) for port in ports if port is not None)
    assert all(is_port_free(port) for port in ports if port is not None)
    assert not running.processes.directory.exists()


def test_a_killed_service_starts_again_with_the_same_money_and_database(sandbox: Callable[..., Sandbox]) -> None:
    with sandbox() as running:
        before = told(running.origin)
        running.stop_service(kill=True)
        with pytest.raises(httpx.ConnectError):
            told(running.origin)
        running.start_service()
        assert told(running.origin) == before


def test_a_process_that_ends_by_itself_is_noticed(sandbox: Callable[..., Sandbox]) -> None:
    with sandbox() as running:
        running.processes.start("guest", [sys.executable, "-c", "raise SystemExit('out of cheese')"])
        with pytest.raises(SandboxError, match=r"(?s)guest process ended with exit code 1.*out of cheese"):
            running.watch()


def test_a_service_that_does_not_start_is_quoted(sandbox: Callable[..., Sandbox]) -> None:
    broken = sandbox(command=[sys.executable, "-c", "raise SystemExit('RANKING_EVALUATE_X402_ASSET: missing')"])
    with pytest.raises(SandboxError, match="RANKING_EVALUATE_X402_ASSET: missing"), broken:
        pass
    assert not broken.processes.directory.exists()


def test_a_taken_port_is_named(sandbox: Callable[..., Sandbox]) -> None:
    with sandbox(port=free_port()) as running:
        port = httpx.URL(running.origin).port
        with pytest.raises(SandboxError, match=f"Port {port} is taken"), sandbox(port=port):
            pass


def test_the_info_file_appears_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "info.json"
    write_private(path, info_text({"origin": "http://127.0.0.1:8402"}))
    assert json.loads(path.read_text()) == {"origin": "http://127.0.0.1:8402"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_shell_takes_in_what_the_example_clients_read(sandbox: Callable[..., Sandbox], tmp_path: Path) -> None:
    path = tmp_path / "sandbox.env"
    with sandbox() as running:
        x402, mpp = running.protocols
        write_private(path, exports_text(running.exports))
        told = subprocess.run(["env", "-i", "sh", "-c", f". {path}; env"], capture_output=True, text=True, check=True)
    given = dict(line.split("=", 1) for line in told.stdout.splitlines())
    assert (
        given.items()
        >= {
            "ORIGIN": running.origin,
            "WALLET_KEY": x402.payer.key,
            "X402_NETWORK": x402.network,
            "X402_ASSET": x402.asset,
            "MPP_NETWORK": mpp.network,
            "MPP_ASSET": mpp.asset,
            "MPP_RPC_URL": mpp.rpc,
        }.items()
    )
    assert x402.payer == mpp.payer


def test_the_chains_have_multicall3_as_real_ones_do(sandbox: Callable[..., Sandbox]) -> None:
    address = Web3.to_checksum_address("0xcA11bde05977b3631167028862bE2a173976CA11")
    with sandbox() as running:
        for funded in running.protocols:
            code = Web3(Web3.HTTPProvider(funded.rpc)).eth.get_code(address)
            # The digest that it has on Ethereum, Base and the others.
            assert Web3.keccak(code).hex() == "d5c15df687b16f2ff992fc8d767b4216323184a2bbc6ee2f9c398c318e770891"


def test_a_chain_that_passes_for_base_sepolia_has_the_token_where_usdc_is(sandbox: Callable[..., Sandbox]) -> None:
    with sandbox(x402_networks=[BASE_SEPOLIA]) as running:
        x402 = running.protocols[0]
        assert (x402.network, x402.asset) == (BASE_SEPOLIA, USDC[BASE_SEPOLIA].asset)
        assert x402.balance(x402.payer.address) == 1_000 * 10**6


def test_pay_buys_from_the_real_service_once_over_each_protocol_and_as_the_sandbox_says(tmp_path: Path) -> None:
    said: list[str] = []
    body = SMALL_INPUT.encode()
    with Sandbox() as running:
        page = printed(summary(running))
        for funded in running.protocols:
            url = f"{running.origin}/v1/{funded.protocol}/ranking-evaluate"
            order = Order(url=url, protocol=funded.protocol, body=body, key=new_key())
            mandate = Mandate(
                wallet_key=funded.payer.key,
                key=order.key,
                max_amount=Decimal("0.01"),
                asset=funded.asset,
                rpc_url=funded.rpc,
            )
            before = funded.balance(funded.payee)
            with http_client(url) as client:
                first = run_pay(order, mandate, state_dir=tmp_path / "here", client=client, say=said.append)
                running.stop_service(kill=True)
                running.start_service()
                second = run_pay(order, mandate, state_dir=tmp_path / "here", client=client, say=said.append)
                with pytest.raises(PayError, match="Nothing new is signed"):
                    run_pay(order, mandate, state_dir=tmp_path / "elsewhere", client=client, say=said.append)
            assert funded.balance(funded.payee) == before + 10_000
            assert first.body == second.body == evaluate("ranking-evaluate", body)
            assert first.receipt == second.receipt
            assert (first.replayed, second.replayed) == (False, True)

            done = subprocess.run(
                ["sh", "-c", first_call(running, funded)],
                cwd=tmp_path,
                env={"PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}", "HOME": str(tmp_path)},
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr.decode()
            assert done.stdout == evaluate("ranking-evaluate", body)
            assert funded.balance(funded.payee) == before + 20_000
            for fact in (
                funded.protocol,
                funded.network,
                funded.asset,
                funded.payer.address,
                funded.payer.key,
                funded.rpc,
            ):
                assert fact in page


def printed(table: Table) -> str:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_the_command_prints_and_writes_what_the_example_clients_read(tmp_path: Path) -> None:
    env, info = tmp_path / "sandbox.env", tmp_path / "sandbox.json"
    command = [f"{sysconfig.get_path('scripts')}/ranking-evaluate", "sandbox", "--port", "0", "--base-sepolia"]
    running = subprocess.Popen(
        [*command, "--env", env, "--info", info],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not (env.exists() and info.exists()):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    written, network = env.read_text(), json.loads(info.read_text())["x402"]["network"]
    assert (env.stat().st_mode & 0o777, info.stat().st_mode & 0o777) == (0o600, 0o600)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=30)
    assert written in said.decode()
    assert f"export X402_NETWORK={BASE_SEPOLIA}\n" in written
    assert network == BASE_SEPOLIA
    assert running.returncode == 0
    assert list(tmp_path.glob("sandbox.*")) == []
