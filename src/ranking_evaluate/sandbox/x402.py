"""x402 in the sandbox: chain, token, facilitator and funded wallets."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ranking_evaluate.payments.config import USDC
from ranking_evaluate.sandbox.anvil import start_anvil
from ranking_evaluate.sandbox.facilitator import facilitator_app, run_in_thread
from ranking_evaluate.sandbox.funded import FundedProtocol, Wallet
from ranking_evaluate.sandbox.multicall3 import install_multicall3
from ranking_evaluate.sandbox.processes import Processes
from ranking_evaluate.sandbox.token import deploy_token, is_confirmed
from ranking_evaluate.sandbox.wallets import give_ether, new_wallet

LOCAL: Final = "eip155:31337"
BASE_SEPOLIA: Final = "eip155:84532"

PAYER_TOKENS: Final = 1_000 * 10**6
FACILITATOR_ETHER: Final = 10_000


@contextmanager
def x402_protocol(processes: Processes, payer: Wallet, network: str = LOCAL) -> Iterator[FundedProtocol]:
    """Start everything that x402 payments need, give the payer its money, and yield it.

    Args:
        processes: Where the chain belongs.
        payer: Who is to buy.
        network: What the chain calls itself; one that is known by name has the token where that network has USDC.
    """
    chain = start_anvil(processes, chain_id=int(network.removeprefix("eip155:")))
    install_multicall3(chain, processes)
    token = deploy_token(chain, at=USDC[network].asset if network in USDC else None)
    payee, operator = new_wallet(), new_wallet()
    token.mint(payer.address, PAYER_TOKENS)
    give_ether(chain, operator.address, FACILITATOR_ETHER)
    app = facilitator_app(rpc=chain.rpc, key=operator.key, network=chain.network)
    with run_in_thread(app) as facilitator:
        info = {
            "network": chain.network,
            "asset": token.address,
            "assetName": token.name,
            "assetVersion": token.version,
            "payTo": payee.address,
            "facilitator": facilitator,
            "rpc": chain.rpc,
            "payerKey": payer.key,
            "payerAddress": payer.address,
        }
        yield FundedProtocol(
            protocol="x402",
            network=chain.network,
            asset=token.address,
            asset_name=token.name,
            payer=payer,
            payee=payee.address,
            environment={
                "RANKING_EVALUATE_X402_PAY_TO": info["payTo"],
                "RANKING_EVALUATE_X402_NETWORK": info["network"],
                "RANKING_EVALUATE_X402_ASSET": info["asset"],
                "RANKING_EVALUATE_X402_ASSET_NAME": info["assetName"],
                "RANKING_EVALUATE_X402_ASSET_VERSION": info["assetVersion"],
                "RANKING_EVALUATE_X402_FACILITATOR_URL": info["facilitator"],
                "RANKING_EVALUATE_X402_RPC_URL": info["rpc"],
            },
            info=info,
            exports={"NETWORK": chain.network, "ASSET": token.address},
            rpc=chain.rpc,
            balance=token.balance,
            is_confirmed=lambda transaction: is_confirmed(chain, transaction),
        )
