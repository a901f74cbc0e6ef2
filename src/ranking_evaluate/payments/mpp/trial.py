"""What is asked of the node before a payment is sent, so that one that cannot succeed is a definite refusal.

Once it is sent, a refusal by the node cannot be told from a lost success.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ranking_evaluate.payments.json_rpc import NodeRefusal
from ranking_evaluate.payments.mpp.keychain import Keychain
from ranking_evaluate.payments.mpp.rpc import Node
from ranking_evaluate.payments.mpp.signature import Signer
from ranking_evaluate.payments.mpp.transaction import TRANSFER_WITH_MEMO, SignedTransaction

PATH_USD: Final = "0x20c0000000000000000000000000000000000000"
"""In which gas is paid where nothing else says so."""

REFUSED_ON_TRIAL: Final = frozenset({3, -32000, -32003})
"""Errors of a node's trial that are about the transaction: reverted, invalid, rejected. Others are its own trouble."""

INTERNAL_ERROR: Final = -32603
TRANSACTION_ERROR: Final = "tempo transaction error"
"""How an internal error begins that is about the transaction all the same."""

VALIDITY: Final = "valid_before"
"""Stands in the error about a transaction that is valid for longer than the chain takes."""


class Price(NamedTuple):
    """What is to be paid, in base units of a token, and to whom."""

    token: str
    recipient: str
    amount: int


async def objection(node: Node, transaction: SignedTransaction, price: Price) -> str | None:
    """Return why the transaction would not pay, or None when it would; a reason begins with its problem type.

    Raises:
        NodeError: The node gave no usable answer.
    """
    signer = transaction.signer
    if signer is None:
        return "verification-failed: nobody knows who signed the transaction"
    costs = await _costs(node, transaction, price, signer.account)
    return (
        await _objection_of_key(node, transaction, price, signer, costs)
        or await _objection_of_trial(node, transaction)
        or await _objection_of_gas(node, transaction)
        or await _objection_of_balance(node, signer.account, costs)
    )


async def _costs(node: Node, transaction: SignedTransaction, price: Price, account: str) -> dict[str, int]:
    """Return what the transaction may take at most of each token, by its address in lower case."""
    swaps = len(transaction.calls) > 1
    token = transaction.fee_token or await node.fee_token(account)
    if token is None:
        # A node takes the token of the transfers for the gas, unless other calls stand beside them.
        token = PATH_USD if swaps else price.token
    # What is swapped for the price is not held before; whether the swap succeeds the trial shows.
    costs = {} if swaps else {price.token.lower(): price.amount}
    return {**costs, token.lower(): costs.get(token.lower(), 0) + transaction.highest_fee}


async def _objection_of_key(
    node: Node, transaction: SignedTransaction, price: Price, signer: Signer, costs: dict[str, int]
) -> str | None:
    """Return why the access key may not make the payment: by what the chain, or its new authorization, says of it."""
    new = transaction.new_key
    if not signer.is_access_key:
        return None
    keychain = Keychain(node, signer)
    known = await keychain.key()
    if new is not None:
        if known.is_known:
            return (
                "verification-failed: the chain knows the access key already: sign a new transaction without its "
                "authorization"
            )
        permitted = new.permits(price.token, TRANSFER_WITH_MEMO, price.recipient)
        short = [token for token, amount in costs.items() if not new.allows(token, amount)]
    else:
        reason = known.objection(signer.key.kind, transaction.valid_before or 0)
        if reason is not None:
            return f"verification-failed: {reason}"
        permitted = await keychain.permits(price.token, TRANSFER_WITH_MEMO, price.recipient)
        limited = costs.items() if known.has_limits else ()
        short = [token for token, amount in limited if await keychain.remaining(token) < amount]
    if not permitted:
        return (
            "verification-failed: the access key may not call transferWithMemo of this token for this recipient: "
            "authorize a key that may"
        )
    if short:
        return (
            "payment-insufficient: the access key may not spend the price and the gas: raise its limit, or authorize "
            "another key"
        )
    return None


async def _objection_of_trial(node: Node, transaction: SignedTransaction) -> str | None:
    """Let the node execute the transaction without keeping it."""
    try:
        await node.ask("eth_call", transaction.simulation(), "latest")
    except NodeRefusal as refusal:
        is_internal = refusal.code == INTERNAL_ERROR and refusal.message.startswith(TRANSACTION_ERROR)
        if refusal.code not in REFUSED_ON_TRIAL and not is_internal:
            raise
        if VALIDITY in refusal.message:
            return (
                "verification-failed: the chain does not take a transaction that is valid for so long: sign it to end "
                "at most 25 seconds from now"
            )
        return "verification-failed: the transaction would fail; does the wallet hold the price and gas?"
    return None


async def _objection_of_gas(node: Node, transaction: SignedTransaction) -> str | None:
    # The node's trial leaves out the price of gas, and what the wallet needs for it.
    lowest_fee, gas_limit = await node.gas_terms()
    if lowest_fee <= transaction.max_fee >= transaction.max_priority_fee and transaction.gas <= gas_limit:
        return None
    return "verification-failed: no block would take the transaction at its price and amount of gas"


async def _objection_of_balance(node: Node, account: str, costs: dict[str, int]) -> str | None:
    for token, amount in costs.items():
        if await node.balance(token, account) < amount:
            return "payment-insufficient: the wallet does not hold the price and the gas"
    return None
