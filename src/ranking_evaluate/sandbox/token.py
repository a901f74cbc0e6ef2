"""The sandbox dollar: deploys the compiled EIP-3009 token, mints it, moves it and reads balances.

`token3009.json` is `token3009.vy` compiled, with the compiler, its options and the digest of the source, so that nobody
needs the compiler and a test notices a source that was changed and not compiled.
"""

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from eth_typing import ChecksumAddress, HexStr
from web3 import Web3
from web3.contract import Contract
from web3.exceptions import TransactionNotFound
from web3.types import RPCEndpoint, TxReceipt

from ranking_evaluate.sandbox.anvil import Chain

ARTIFACT: Final = "token3009.json"
RECEIPT_POLL_SECONDS: Final = 0.01
RECEIPT_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Token:
    """The deployed token on its chain."""

    chain: Chain
    contract: Contract

    @property
    def address(self) -> ChecksumAddress:
        """The token's address."""
        return self.contract.address

    @property
    def name(self) -> str:
        """The name in the EIP-712 domain that authorizations are signed for."""
        return str(self.contract.functions.name().call())

    @property
    def version(self) -> str:
        """The version in the EIP-712 domain that authorizations are signed for."""
        return str(self.contract.functions.version().call())

    def balance(self, holder: str) -> int:
        """Return the base units that `holder` has."""
        return int(self.contract.functions.balanceOf(Web3.to_checksum_address(holder)).call())

    def mint(self, holder: str, amount: int) -> None:
        """Give `holder` new tokens, counted in base units."""
        self.send("mint", Web3.to_checksum_address(holder), amount)

    def is_used(self, authorizer: str, nonce: bytes) -> bool:
        """Return whether the authorization with this nonce was used or canceled."""
        return bool(self.contract.functions.authorizationState(Web3.to_checksum_address(authorizer), nonce).call())

    def send(self, function: str, *arguments: object) -> TxReceipt:
        """Call `function` in a transaction of the chain's own unlocked account and return its receipt.

        Raises:
            web3.exceptions.ContractLogicError: The token refuses, in its own words.
        """
        sender = self.chain.web3.eth.accounts[0]
        transaction = self.contract.get_function_by_name(function)(*arguments).transact({"from": sender})
        return self.chain.web3.eth.wait_for_transaction_receipt(transaction, RECEIPT_SECONDS, RECEIPT_POLL_SECONDS)


def artifact() -> dict[str, Any]:
    """Return the compiled token: compiler, source digest, abi and bytecode."""
    text = resources.files(__package__).joinpath(ARTIFACT).read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def deploy_token(chain: Chain, at: str | None = None) -> Token:
    """Deploy the token on `chain` and return it; with `at` its code is put to that address instead."""
    compiled = artifact()
    factory: type[Contract] = chain.web3.eth.contract(abi=compiled["abi"], bytecode=compiled["bytecode"])
    transaction = factory.constructor().transact({"from": chain.web3.eth.accounts[0]})
    receipt = chain.web3.eth.wait_for_transaction_receipt(transaction, RECEIPT_SECONDS, RECEIPT_POLL_SECONDS)
    deployed = factory(receipt["contractAddress"])
    if at is None:
        return Token(chain, deployed)
    address = Web3.to_checksum_address(at)
    code = chain.web3.eth.get_code(deployed.address)
    chain.web3.provider.make_request(RPCEndpoint("anvil_setCode"), [address, Web3.to_hex(code)])
    return Token(chain, factory(address))


def is_confirmed(chain: Chain, transaction: str) -> bool:
    """Return whether `chain` holds this transaction as a successful one."""
    try:
        return chain.web3.eth.get_transaction_receipt(HexStr(transaction))["status"] == 1
    except TransactionNotFound:
        return False
