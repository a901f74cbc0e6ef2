"""Multicall3, the contract that wallets and facilitators expect at one address of every chain.

A plain anvil starts without it, and one that speaks Tempo has it in its first block: its code is taken from there.
"""

from typing import Final

from web3 import Web3
from web3.types import RPCEndpoint

from ranking_evaluate.sandbox.anvil import Chain, start_anvil
from ranking_evaluate.sandbox.processes import Processes

ADDRESS: Final = Web3.to_checksum_address("0xcA11bde05977b3631167028862bE2a173976CA11")


def install_multicall3(chain: Chain, processes: Processes) -> None:
    """Put the contract onto `chain`, at the address that it has everywhere."""
    donor = start_anvil(processes, name="donor", arguments=("--network", "tempo"))
    code = donor.web3.eth.get_code(ADDRESS)
    processes.end("donor", kill=True)
    chain.web3.provider.make_request(RPCEndpoint("anvil_setCode"), [ADDRESS, Web3.to_hex(code)])
