"""Fresh wallets and their money.

Keys are random each time: a key that is printed in many books would be robbed wherever it is used by mistake.
"""

from typing import Final

from eth_account import Account
from web3 import Web3
from web3.types import RPCEndpoint

from ranking_evaluate.sandbox.anvil import Chain
from ranking_evaluate.sandbox.funded import Wallet

ETHER: Final = 10**18


def new_wallet() -> Wallet:
    """Return a wallet with a fresh random key and no money."""
    account = Account.create()
    return Wallet(key=Web3.to_hex(account.key), address=account.address)


def give_ether(chain: Chain, address: str, ether: int) -> None:
    """Set the ether that `address` has for gas."""
    chain.web3.provider.make_request(RPCEndpoint("anvil_setBalance"), [address, hex(ether * ETHER)])
