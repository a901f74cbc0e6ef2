"""x402 in the sandbox: chains, tokens, facilitator and funded wallets."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ranking_evaluate.payments.config import USDC
from ranking_evaluate.sandbox.anvil import BLOCKS, start_anvil
from ranking_evaluate.sandbox.facilitator import facilitator_app, run_in_thread
from ranking_evaluate.sandbox.funded import FundedNetwork, FundedProtocol, Wallet
from ranking_evaluate.sandbox.multicall3 import install_multicall3
from ranking_evaluate.sandbox.processes import Processes
from ranking_evaluate.sandbox.token import Token, deploy_token, is_confirmed
from ranking_evaluate.sandbox.wallets import give_ether, new_wallet

LOCAL: Final = "eip155:31337"
SECOND_LOCAL: Final = "eip155:1337"
BASE_SEPOLIA: Final = "eip155:84532"

PAYER_TOKENS: Final = 1_000 * 10**6
FACILITATOR_ETHER: Final = 10_000


@contextmanager
def x402_protocol(processes: Processes, payer: Wallet, networks: Sequence[str] = (LOCAL,)) -> Iterator[FundedProtocol]:
    """Start everything that x402 payments need, give the payer its money, and yield it.

    Args:
        processes: Where the chains belong.
        payer: Who is to buy.
        networks: What each chain calls itself; one that is known by name has the token where that network has USDC.
    """
    payee, operator = new_wallet(), new_wallet()
    tokens = [
        _funded_token(processes, f"anvil-{number}" if number > 1 else "anvil", network, payer, operator)
        for number, network in enumerate(networks, 1)
    ]
    nodes = {token.chain.network: token.chain.rpc for token in tokens}
    with run_in_thread(facilitator_app(key=operator.key, nodes=nodes)) as facilitator:
        first, *others = (_network(token) for token in tokens)
        yield FundedProtocol(
            protocol="x402",
            network=first.network,
            asset=first.asset,
            asset_name=first.asset_name,
            payer=payer,
            payee=payee.address,
            environment=_settings(tokens, payee, facilitator),
            info={
                **_info(tokens[0]),
                "payTo": payee.address,
                "facilitator": facilitator,
                "payerKey": payer.key,
                "payerAddress": payer.address,
                "networks": [_info(token) for token in tokens],
            },
            exports={"NETWORK": first.network, "ASSET": first.asset},
            rpc=first.rpc,
            balance=first.balance,
            is_confirmed=first.is_confirmed,
            others=tuple(others),
        )


def _funded_token(processes: Processes, name: str, network: str, payer: Wallet, operator: Wallet) -> Token:
    """Start a chain and return its token, of which the payer has some; the operator has ether for gas."""
    chain = start_anvil(processes, name=name, chain_id=int(network.removeprefix("eip155:")), arguments=BLOCKS)
    install_multicall3(chain, processes)
    token = deploy_token(chain, at=USDC[network].asset if network in USDC else None)
    token.mint(payer.address, PAYER_TOKENS)
    give_ether(chain, operator.address, FACILITATOR_ETHER)
    return token


def _network(token: Token) -> FundedNetwork:
    return FundedNetwork(
        network=token.chain.network,
        asset=token.address,
        asset_name=token.name,
        rpc=token.chain.rpc,
        balance=token.balance,
        is_confirmed=lambda transaction: is_confirmed(token.chain, transaction),
        fund=token.mint,
    )


def _info(token: Token) -> dict[str, str]:
    return {
        "network": token.chain.network,
        "asset": token.address,
        "assetName": token.name,
        "assetVersion": token.version,
        "rpc": token.chain.rpc,
    }


def _settings(tokens: Sequence[Token], payee: Wallet, facilitator: str) -> dict[str, str]:
    """Return the service's settings; those that have a value by network hold pairs where there are several."""

    def by_network(values: Sequence[str]) -> str:
        pairs = [f"{token.chain.network}={value}" for token, value in zip(tokens, values, strict=True)]
        return ",".join(pairs) if len(pairs) > 1 else values[0]

    return {
        "RANKING_EVALUATE_X402_PAY_TO": payee.address,
        "RANKING_EVALUATE_X402_NETWORK": ",".join(token.chain.network for token in tokens),
        "RANKING_EVALUATE_X402_ASSET": by_network([token.address for token in tokens]),
        "RANKING_EVALUATE_X402_ASSET_NAME": by_network([token.name for token in tokens]),
        "RANKING_EVALUATE_X402_ASSET_VERSION": by_network([token.version for token in tokens]),
        "RANKING_EVALUATE_X402_FACILITATOR_URL": facilitator,
        "RANKING_EVALUATE_X402_RPC_URL": by_network([token.chain.rpc for token in tokens]),
    }
