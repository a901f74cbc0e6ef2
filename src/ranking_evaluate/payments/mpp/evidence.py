"""What the chain says of a payment: the receipt of the transaction whose hash we knew before it was sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ranking_evaluate.payments.json_rpc import JsonRpc, NodeError
from ranking_evaluate.payments.mpp.transaction import is_memo_of
from ranking_evaluate.payments.protocol import Evidence, Landed, NeverLanded, PaymentFacts, Unknown

TRANSFER_WITH_MEMO_LOG: Final = "0x57bc7354aa85aed339e000bccffabbc529466af35f0772c8f8ee1145927de7f0"
"""Topic of TransferWithMemo(address,address,uint256,bytes32), TIP-20."""

_TRANSACTION_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}")


async def evidence_of(node: JsonRpc, facts: PaymentFacts, realm: str) -> Evidence:
    """Return where the payment stands; `realm` is the one that its challenge was made for.

    Raises:
        NodeError: The node gave no usable answer.
    """
    transaction = facts.transaction
    if transaction is None or not _TRANSACTION_HASH.fullmatch(transaction):
        return Unknown("the record holds no transaction to look for")
    # Another chain has no receipt of it either, which must never look like a payment that did not land.
    chain_id = await node.chain_id()
    if facts.network != f"eip155:{chain_id}":
        return Unknown(f"the node is on eip155:{chain_id}, the payment on {facts.network}")
    # The final block's time is read before the receipt: read after it, the payment could land in between unseen.
    final = await node.final_time()
    receipt = await node.ask("eth_getTransactionReceipt", transaction)
    if receipt is None:
        if facts.valid_before is not None and final > facts.valid_before:
            return NeverLanded("there is no receipt, and a final block is past the transaction's last second")
        return Unknown("there is no receipt so far, and no final block yet past the transaction's last second")
    if not isinstance(receipt, dict) or str(receipt.get("transactionHash")).lower() != transaction.lower():
        raise NodeError("the node's receipt is one of another transaction")
    match receipt.get("status"):
        case "0x0":
            return NeverLanded("the transaction was reverted: it is on the chain and moved nothing")
        case "0x1" if any(_is_payment(log, facts, realm) for log in receipt.get("logs") or []):
            return Landed(transaction.lower())
        case "0x1":
            return Unknown("the transaction succeeded, and its receipt does not show this payment")
        case _:
            raise NodeError("the node's receipt has no status")


def _is_payment(log: object, facts: PaymentFacts, realm: str) -> bool:
    """Return whether a log is the transfer of this amount, to this recipient, for this challenge."""
    if not isinstance(log, Mapping):
        return False
    topics, data = log.get("topics"), log.get("data")
    if not isinstance(topics, list) or not isinstance(data, str) or len(topics) != 4:
        return False
    kind, _, recipient, memo = (str(topic).lower() for topic in topics)
    return (
        str(log.get("address")).lower() == facts.asset.lower()
        and kind == TRANSFER_WITH_MEMO_LOG
        and recipient == "0x" + facts.pay_to.removeprefix("0x").lower().rjust(64, "0")
        and data == f"0x{facts.amount:064x}"
        and is_memo_of(memo, facts.payment_id, realm)
    )
